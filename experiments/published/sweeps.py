"""Published sweeps: every configuration of a model that somebody tried on a cluster.

    sweep_playbook.csv.gz  Ultra-Scale Playbook: nanotron on H100; its head says how it was measured
    training_runs.jsonl    of it, what was measured in `FEWEST` configurations or more; all ran

A *problem* is one model on so many devices with one global batch and sequence: what a planner is
asked. Times of one problem compare only where the network was the same (`fabric`).
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any, Literal

from experiments.published.csv_rows import rows_of
from experiments.published.training import Measured, measured_runs
from scaling.meshes.units import BINARY, DECIMAL

GB, GIB = DECIMAL["G"], BINARY["Gi"]
PLAYBOOK = Path(__file__).parent / "sweep_playbook.csv.gz"
# layers, units, heads, key and value heads, hidden units, vocabulary, tied embeddings
MODELS = {
    "llama 3.57B": (28, 3072, 32, 32, 8192, 131072, True),
    "llama 8.86B": (32, 4096, 32, 32, 14336, 131072, False),
    "llama 403B": (126, 16384, 128, 8, 53248, 49152, False),
    "llama 406B": (126, 16384, 128, 8, 53248, 131072, False),
    "llama 469B": (126, 16384, 128, 128, 53248, 131072, False),
}
SHAPE = ("n_layers", "d_model", "n_heads", "n_kv_heads", "d_ff", "vocab_size", "tied_embeddings")
SEQUENCE, NODE = 4096, 8  # tokens; GPUs
CALL = 2**30  # bytes of the jobs' test of their network, assumed: the source does not say
ALIKE = 2.0  # far above the spread of jobs (1.1), far below what is another illness (9)
BUSES = (("reduce", "all-reduce"), ("gather", "all-gather"), ("scatter", "reduce-scatter"))
SOFTWARE = "nanotron"
TIGHT = 68 * GIB  # reserved, of 80 GB
REFERENCE = (
    "eyao600/Rapid-LLM validation_scripts/huggingface_data/bench_final2_mod_add.csv @ 9a8d0a10"
)
FEWEST = 4  # configurations that make a problem


@dataclass(frozen=True)
class Bus:
    """Bus bandwidth of one collective, by nccl-tests, in the same job."""

    collective: str
    ranks: int
    bandwidth: float  # bytes/s


@dataclass(frozen=True)
class Tried:
    """One configuration that somebody ran."""

    id: str
    source: str
    problem: str  # source, model, devices, global batch, sequence
    model: str
    gpus: int
    run: dict[str, Any]  # run.json
    status: Literal["ok", "oom", "failed"]  # failed: a crash or a hang, not out of memory
    step_time: float | None = None  # s, of one step
    allocated: float | None = None  # bytes after the step; not the peak
    reserved: float | None = None  # bytes that the allocator took from the device, at most
    buses: tuple[Bus, ...] = ()
    fabric: Literal["good", "slow"] | None = None  # None: nobody measured it
    ranks: bool = True  # its time may be ranked among those of its problem and fabric
    evidence: bool = True  # whether it ran out of memory says something of the configuration

    @property
    def mesh(self) -> dict[str, int]:
        """Its axes."""
        return self.run["mesh"]

    @property
    def inside(self) -> float:
        """Bus bandwidth of the all-reduce inside a node, bytes/s; 0: its job did not measure it."""
        buses = (b for b in self.buses if (b.collective, b.ranks) == ("all-reduce", NODE))
        return next((bus.bandwidth for bus in buses), 0.0)


@lru_cache(maxsize=1)
def playbook() -> tuple[Tried, ...]:
    """All runs of the Ultra-Scale Playbook that are here.

    ZeRO-1 is `fsdp` with zero_stage 1, plain replicas are `data`. Pipelines were broken for a
    time (fixed 0): no time of then is ranked, and only where there was one stage does it count as
    evidence that memory ran out.
    """
    return tuple(map(_tried, rows_of(PLAYBOOK)))


def _tried(row: dict[str, str]) -> Tried:
    axes = {axis: int(row[axis]) for axis in ("data", "tensor", "stage")}
    gpus, batch, zero = int(row["gpus"]), int(row["global_batch"]), int(row["zero"])
    words = (
        f"{row['job']}-d{row['data']}-t{row['tensor']}-s{row['stage']}-b{row['sequences']}-z{zero}"
    )
    mesh = {"fsdp" if axis == "data" and zero else axis: size for axis, size in axes.items()}
    run = {
        "name": words,
        "model": dict(zip(SHAPE, MODELS[row["model"]], strict=True))
        | {"mlp": "swiglu", "norm": "rmsnorm", "positions": "rope"},
        "batch": {
            "global_batch": batch,
            "seq_len": SEQUENCE,
            "microbatches": batch // axes["data"] // int(row["sequences"]),
        },
        "mesh": {axis: size for axis, size in mesh.items() if size > 1},
        "sharding": {"zero_stage": 1, "sequence_parallel": axes["tensor"] > 1},
        "precision": {"compute": "bf16", "parameters": "bf16", "gradients": "fp32"},
        "remat": "none",
        "attention": "flash",
        "cluster": {"name": "p5", "nodes": gpus // NODE},
        "software": SOFTWARE,
    }
    figure = lambda name, unit: float(row[name]) * unit if row[name] else None
    ends = (("", gpus), ("_8", NODE))[: 1 if gpus == NODE else 2]
    fixed, ok = row["fixed"] == "1", row["status"] == "ok"
    return Tried(
        *(words, "Ultra-Scale Playbook"),
        problem=f"Ultra-Scale Playbook|{row['model']}|{gpus}|{batch}|{SEQUENCE}",
        model=row["model"],
        gpus=gpus,
        run=run,
        status=row["status"],  # type: ignore[arg-type]
        step_time=figure("step_s", 1.0),
        allocated=figure("allocated_GiB", GIB),
        reserved=figure("reserved_GiB", GIB),
        buses=tuple(
            Bus(collective, ranks, speed)
            for end, ranks in ends
            for bus, collective in BUSES
            if (speed := figure(f"bus_{bus}{end}", GB))
        ),
        fabric=row["fabric"] or None,  # type: ignore[arg-type]
        ranks=ok and fixed,
        evidence=row["status"] != "failed" and (ok or fixed or axes["stage"] == 1),
    )


@lru_cache
def health(fabric: str, gpus: int) -> float:
    """Median `inside` of the Playbook's jobs on so many GPUs of a network, bytes/s."""
    return median(row.inside for row in playbook() if (row.fabric, row.gpus) == (fabric, gpus))


def is_ill(row: Tried) -> bool:
    """True for a job of the sound network whose node was as slow as those of the sick month."""
    return row.fabric == "good" and row.inside < health("good", row.gpus) / ALIKE


@lru_cache
def measured_on(fabric: str, gpus: int) -> list[dict[str, Any]]:
    """Calls as `cluster.measured` takes them: medians over the Playbook's jobs that are as sick.

    Those whose all-reduce inside a node reaches what it does in jobs of so many GPUs, within
    `ALIKE`: the slow jobs of 2 and 4 nodes had a tenth of it, for whatever reason; larger ones all.
    """
    own = health(fabric, gpus)
    rows = [row for row in playbook() if row.fabric == fabric]
    rows = [row for row in rows if own / ALIKE < row.inside < own * ALIKE]
    return [
        {"collective": bus.collective, "ranks": bus.ranks, "ranks_per_node": NODE}
        | {"bytes": CALL, "bus_bandwidth": bus.bandwidth}
        for bus in buses_of(rows)
    ]


@lru_cache(maxsize=1)
def timed() -> tuple[Measured, ...]:
    """The Playbook's runs that say how long the software takes, each model a source of its own: on
    a sound network, tensor inside of a node, and `TIGHT` memory left aside, where times are
    multiples of their neighbours'."""
    within = lambda row: row.mesh.get("tensor", 1) <= NODE and (row.reserved or 0.0) < TIGHT
    # Inside of a node their test copied lists of tensors besides (nanotron @ 67c5ebb, trainer.py).
    calls = lambda gpus: [call for call in measured_on("good", gpus) if call["ranks"] > NODE]
    cluster = lambda row: row.run["cluster"] | {"measured": calls(row.gpus)}
    return tuple(
        Measured(
            *(row.id, f"{row.source}, {row.model}", REFERENCE, "2025-01", "h100", row.model),
            *(row.step_time or 0.0, None, None, "A", "", row.run | {"cluster": cluster(row)}),
        )
        for row in playbook()
        if row.ranks and row.fabric == "good" and within(row)
    )


def buses_of(rows: Iterable[Tried]) -> tuple[Bus, ...]:
    """Median bus bandwidth over these runs, of each collective among so many ranks."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        for bus in row.buses:
            found[bus.collective, bus.ranks].append(bus.bandwidth)
    return tuple(Bus(*key, median(speeds)) for key, speeds in sorted(found.items()))


@dataclass(frozen=True)
class Problem:
    """Configurations among which a planner chooses, on one network."""

    name: str  # source, model, devices, global batch, sequence
    source: str
    fabric: Literal["good", "slow"] | None
    rows: tuple[Tried, ...]  # times that rank, of no ill job, and what ran out of memory

    @property
    def ran(self) -> tuple[Tried, ...]:
        """Those that ran."""
        return tuple(row for row in self.rows if row.status == "ok")

    @property
    def best(self) -> float:
        """The least step time that anybody measured, s."""
        return min(row.step_time or 0.0 for row in self.ran)


def problems() -> tuple[Problem, ...]:
    """All problems of which at least `FEWEST` configurations have a time that ranks."""
    alike: dict[str, list[Tried]] = defaultdict(list)
    for row in (*playbook(), *trained()):
        alike[row.problem].append(row)
    found = []
    for name, rows in alike.items():
        for fabric in dict.fromkeys(row.fabric for row in rows if row.ranks):
            ran = [r for r in rows if r.ranks and r.fabric == fabric and not is_ill(r)]
            out = [row for row in rows if row.status == "oom" and row.evidence]
            if len(ran) >= FEWEST:
                found.append(Problem(name, rows[0].source, fabric, (*ran, *out)))
    return tuple(found)


@lru_cache(maxsize=1)
def trained() -> tuple[Tried, ...]:
    """The runs of `training_runs.jsonl`; of one that was measured several times, the median."""
    found = defaultdict(list)
    for row in measured_runs():
        run = {key: value for key, value in row.run.items() if key != "name"}
        batch, compute = run["batch"], run.get("precision", {}).get("compute", "bf16")
        gpus = math.prod(run["mesh"].values())
        what = (row.source, row.model, gpus, row.gpu, compute)
        problem = "|".join(map(str, (*what, batch["global_batch"], batch["seq_len"])))
        found[problem, json.dumps(run, sort_keys=True)].append((row, gpus))
    return tuple(
        Tried(
            *(row.id, row.source, problem, row.model, gpus, row.run, "ok"),
            step_time=median(other.step_time for other, _ in same),
        )
        for (problem, _), same in found.items()
        for row, gpus in same[:1]
    )
