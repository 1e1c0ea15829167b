"""Steps that XLA compiled for GPUs: published times beside our compiled step of the same shapes.

    python -m experiments.published.jax_programs             prices the programs in programs/
    python -m experiments.published.jax_programs --compile   makes those anew, half a minute each

Published is what others' programs took, priced is the step that this trainer compiles. Where the
row's program has kernels that ours does not (grouped products of QuACK, FlashAttention 4 in CuTe, a
Muon on the hyperball), the nearest that the trainer has stands in: experts with
`capacity_factor` 1, cuDNN's attention, Muon. `reason` lists why the others are not priced.
"""

import gzip
import hashlib
import json
import sys
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from experiments.published.training import jax_runs
from scaling.api.predict import predict
from scaling.api.result import with_step_error
from scaling.program.serialization import program_dict, read_program_dict
from scaling.report.formatting import columns
from scaling.run import read_run
from scaling.simulate.resolve import profile_for, target
from scaling.simulate.step import price
from scaling.simulate.summary import summarize

PROGRAMS = Path(__file__).parent / "programs"
CLUSTERS = {"H100 SXM 80GB": ("dgx-h100", 8), "B200": ("dgx-b200", 8), "GB200": ("gb200-nvl72", 4)}
DATA_AXES = {"data", "data(fsdp)", "fsdp", "replica"}
# Their loss goes over the vocabulary in parts; ours needs this many microbatches for its logits.
MICROBATCHES = 2
Row = dict[str, str]


@dataclass(frozen=True)
class Priced:
    """One row with the time of our compiled step."""

    row: Row
    measured: float  # s
    time: float
    low: float
    high: float
    is_dense: bool

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.time / self.measured - 1


def reason(row: Row) -> str:
    """Why a row is not priced; "" if it is."""
    if _number(row["measured_step_s"]) is None:
        return "no step time"
    if not row["global_batch"] or row["gpu"] not in CLUSTERS:
        return "batch not stated" if row["gpu"] in CLUSTERS else "no such cluster in the catalogue"
    if not all(row[key].split()[0].isdigit() for key in ("layers", "d_model", "heads") if row[key]):
        return "shape not stated"
    if not (row["layers"] and row["d_model"] and row["heads"] and row["vocab"] and row["mesh"]):
        return "shape not stated"
    if not _axes(row["mesh"]):
        return "mesh not stated, or experts exchanged by kernels of their own"
    if "latent" in row["model"] or "hero" in row["model"] or not row["kv_heads"][:1].isdigit():
        return "latent attention, latent experts or alternating windows"
    return ""


def run_of(row: Row) -> dict:
    """The run.json of a row."""
    first = lambda key: int(row[key].split()[0])
    gpus = int(row["n_gpus"])
    cluster, each = CLUSTERS[row["gpu"]]
    replicas = _axes(row["mesh"]).get("replica", 1)
    heads, width = first("heads"), first("d_model")
    model = {
        "vocab_size": first("vocab"),
        "d_model": width,
        "n_layers": first("layers"),
        "n_heads": heads,
        "n_kv_heads": first("kv_heads") if row["kv_heads"] else heads,
        "head_dim": int(row["head_dim"]),
        "d_ff": _width(row["d_ff"]),
        "mlp": "swiglu",
        "norm": "rmsnorm",
        "positions": "rope",
    }
    experts = bool(row["moe_experts"])
    if experts:
        model["moe"] = {
            "n_experts": int(row["moe_experts"]),
            "experts_per_token": int(row["moe_topk"]),
            "d_ff_expert": int(row["d_ff_expert"]),
            "n_shared_experts": 1,
            "capacity_factor": 1.0,
        }
    remat = "none" if row["remat"].startswith("none") else "full"
    return {
        "name": row["id"],
        "model": model,
        "batch": {
            "global_batch": first("global_batch"),
            "seq_len": first("seq_len"),
            "microbatches": MICROBATCHES if experts else 1,
        },
        "mesh": {"data": replicas, "fsdp": gpus // replicas},
        "optimizer": "muon" if experts else "adamw",
        "remat": remat,
        "cluster": {"name": cluster, "nodes": -(-gpus // each), **_used(gpus, each)},
    }


def _used(gpus: int, each: int) -> dict:
    return {"overrides": {"gpus_per_node": gpus}} if gpus < each else {}


def _axes(mesh: str) -> dict[str, int]:
    """Sizes of the axes if all are data axes, else {}."""
    parts = [part.strip().rpartition("=") for part in mesh.split(",")]
    if not all(name in DATA_AXES and size.isdigit() for name, _, size in parts):
        return {}
    return {name: int(size) for name, _, size in parts}


def _width(text: str) -> int:
    return int(text.split()[-1])


def _number(text: str) -> float | None:
    try:
        return float(text.split()[0])
    except (ValueError, IndexError):
        return None


def file_of(row: Row) -> Path:
    """Where the program of a row is kept; equal runs have one."""
    run = {key: value for key, value in run_of(row).items() if key != "name"}
    return PROGRAMS / f"{hashlib.sha256(json.dumps(run).encode()).hexdigest()[:12]}.json.gz"


def compile_all() -> None:
    """Compile every row's program and keep it."""
    PROGRAMS.mkdir(exist_ok=True)
    for row in jax_runs():
        if reason(row) or file_of(row).exists():
            continue
        program = predict(run_of(row), source="compiled").pricing.program
        data = gzip.compress(json.dumps(program_dict(program)).encode(), mtime=0)
        file_of(row).write_bytes(data)
        print(row["id"], len(data), flush=True)


@lru_cache(maxsize=1)
def priced() -> tuple[tuple[Priced, ...], dict[str, int]]:
    """All rows that can be priced, and the number of others by reason."""
    found, others = [], Counter[str]()
    for row in jax_runs():
        why = reason(row)
        if why:
            others[why] += 1
            continue
        path = file_of(row)
        if not path.exists():
            others["not compiled: --compile makes its program"] += 1
            continue
        where = target(read_run(run_of(row)))
        profile = with_step_error(profile_for(where.cluster)[0], where.run.software)
        text = gzip.decompress(path.read_bytes()).decode()
        p = summarize(price(read_program_dict(json.loads(text)), where.cluster, profile), where.run)
        times = (float(p.step_time), float(p.step_time_low), float(p.step_time_high))
        measured = _number(row["measured_step_s"]) or np.nan
        found.append(Priced(row, measured, *times, not row["moe_experts"]))
    return tuple(found), dict(others)


def table() -> list[str]:
    """A line per row, their medians, and the reasons of the others."""
    found, others = priced()
    cells = [["run", "GPU", "n", "model", "mesh", "measured", "compiled step", "error", "in range"]]
    for p in found:
        inside = "yes" if p.low <= p.measured <= p.high else "no"
        cells.append([
            p.row["id"], p.row["gpu"], p.row["n_gpus"], p.row["model"][:30], p.row["mesh"][:24],
            f"{p.measured:.4g} s", f"{p.time:.4g} s", f"{p.error:+.0%}", inside,
        ])  # fmt: skip
    lines = ["", "```", *columns(cells, (0, 1, 3, 4)), "```", ""]
    for name, dense in (("dense", True), ("with experts, other kernels than ours", False)):
        errors = np.array([p.error for p in found if p.is_dense == dense])
        if len(errors):
            median = f"{np.median(np.abs(errors)):.1%}, bias {np.median(errors):+.1%}"
            lines.append(f"- {name}: {len(errors)} rows, median error {median}")
    lines += [f"- not priced, {count} rows: {why}" for why, count in sorted(others.items())]
    return [*lines, ""]


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_all()
    print("\n".join(table()))
