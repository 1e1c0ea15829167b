"""Power of boards and nodes, and GPU hours of whole trainings, beside what was measured.

    python -m experiments.published.score_energy                               a minute or two

boards     watts of engines that serve, of steps as long as measured: each model left out of the fit
limits     what other boards (Zeus) draw at most, and how near to a limit that binds: none is fitted
nodes      boards as predicted and hosts as the median of all other nodes: each node left out
networks   W for a device, from the other of two rows
runs       hours of model cards over those of the best plan, with failures, saves and restarts

A node's boards are busy while the kernels of its steps run. Of MLPerf's LoRA of Llama 2 70B these
are predicted for the meshes of NVIDIA's submission (configs of mlcommons/training_results_v4.0,
NVIDIA/benchmarks/llama2_70b_lora); its samples are those of the reference convergence points
(mlcommons/logging, training_4.0.0/rcps_llama2_70b_lora.json @ ced0239e), between batches of 32 and
128 as a power of the batch. Of the other nodes only "compute-intensive" is known: always busy.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import scaling as sc
from experiments.published.csv_rows import rows_of
from experiments.published.fit_power import trainings
from experiments.published.score_serving import figures, measured, watts_left_out
from scaling.meshes import catalog
from scaling.profiles.power import power_file
from scaling.report.formatting import columns

TABLE = Path(__file__).parent / "energy_training.csv"
SAMPLES = {8: 3072, 32: 5952, 128: 11_136}  # by sequences of a step, medians
LENGTH = 8192  # tokens of a sequence
# By GPUs: mesh, sequences of a step, microbatches.
LORA = {
    8: ("data=2,tensor=4", 8, 4),
    64: ("data=8,context=2,tensor=4", 8, 1),
    512: ("data=64,context=2,tensor=4", 64, 1),
}
# Model, tokens, nodes of DGX H100, sequences of a step, GPU hours of the card (Llama 3's 15.6 T
# tokens of 405B and its 16,384 GPUs: arXiv 2407.21783).
CARDS = (
    ("llama3-8b", 15e12, 128, 512, 1.3e6),
    ("llama3-70b", 15e12, 256, 512, 6.4e6),
    ("llama3-405b", 15.6e12, 2048, 2048, 30.84e6),
)


@dataclass(frozen=True)
class Node:
    """A measured node of 8 H100."""

    name: str
    watts: float  # without its share of the network
    board: float  # W of one of its boards, predicted
    rated: float
    network: float | None  # W for a device

    @property
    def host(self) -> float:
        """W beside the boards, over the most that these draw."""
        return (self.watts - 8 * self.board) / (8 * most())


def most() -> float:
    """W of a board at most."""
    return catalog.load("dgx-h100").accelerator.required("power")


def samples(batch: int) -> float:
    """Sequences until the quality is reached, with so many in a step."""
    return float(
        np.exp(np.interp(np.log(batch), *np.log(list(zip(*SAMPLES.items(), strict=True)))))
    )


def lora_board(gpus: int, seconds: float) -> float:
    """Mean W of a board in MLPerf's LoRA of so many seconds."""
    mesh, batch, microbatches = LORA[gpus]
    settings: dict[str, Any] = {
        "batch.global_batch": batch,
        "batch.seq_len": LENGTH,
        "precision.compute": "fp8",
    }
    settings |= {"batch.microbatches": microbatches, "train.lora": {"rank": 16}}
    place: dict[str, Any] = {"nodes": gpus // 8, "mesh": mesh, "source": "analytic"}
    step = sc.predict("llama2-70b", "dgx-h100", **place, set=settings)
    share = samples(batch) / batch / seconds
    busy = share * (float(step.time.compute) + float(step.time.optimizer))
    math = share * float(step.hfu or 0.0) * float(step.step_time)
    return float(power_file().board.power(most(), math, busy=min(busy, 1.0)).total)


def nodes() -> Iterator[Node]:
    """Every node whose watts were measured."""
    board = power_file().board
    for row in rows_of(TABLE):
        if not row["avg_power_W"] or "node" not in row["power_of"]:
            continue
        gpus, watts, rated = int(row["gpus"]), float(row["avg_power_W"]), float(row["rated_W"])
        alone = re.search(r"node alone ([0-9.]+) kW", row["notes"])
        own = float(alone[1]) * 1e3 if alone else watts
        lora = "LoRA" in row["what"]
        drawn = lora_board(gpus, float(row["duration_s"])) if lora else board.limit * most()
        shared = (watts - own) / 8 if gpus > 8 else None
        yield Node(f"{row['source'].split(',')[0]}, {gpus} GPUs", own, drawn, rated, shared)


def errors(off: Sequence[float] | np.ndarray) -> str:
    """`median 5.2 %, mean 8.3 %, worst 22.3 %`."""
    size = np.abs(off)
    return f"median {np.median(size):.1%}, mean {size.mean():.1%}, worst {size.max():.1%}"


def board_lines() -> Iterator[str]:
    """Watts of boards that serve, and of boards under limits."""
    off, drawn = watts_left_out() - 1, figures("watts")
    limits = np.array([one.case.servers.cluster.accelerator.power for one in measured()])
    models = len(set(figures("model")))
    yield f"boards that serve, {len(off)} points of {models} models, each left out: {errors(off)}"
    yield f"  rated power: {errors(limits / drawn - 1)}"
    lines: list[tuple[str, ...]] = [
        ("boards of Zeus", "trainings", "least", "most", "of a limit that binds")
    ]
    for gpu, each in trainings().items():
        ends = np.array([draw / limit for (limit, _, draw), *_ in each])
        bound = [w / at for (_, _, draw), *less in each for at, _, w in less if at < 0.9 * draw]
        shares = (f"{x:.2f}" for x in (*np.quantile(ends, (0.1, 0.9)), np.median(bound)))
        lines.append((gpu, str(len(each)), *shares))
    board = power_file().board
    lines.append(("fitted", "", f"{board.idle:.2f}", f"{board.limit:.2f}", ""))
    yield from columns(lines, left=(0,))


def node_lines() -> Iterator[str]:
    """Watts of nodes, with hosts as in the others."""
    every, off, naive = list(nodes()), [], []
    head = ("node left out", "boards", "host", "predicted", "measured", "error", "rated power")
    lines: list[tuple[str, ...]] = [head]
    for node in every:
        host = median(other.host for other in every if other is not node)
        watts = 8 * (node.board + host * most())
        off.append(watts / node.watts - 1)
        naive.append(node.rated / node.watts - 1)
        cells = (
            f"{8 * node.board:,.0f} W",
            f"{host:.2f}",
            f"{watts:,.0f} W",
            f"{node.watts:,.0f} W",
        )
        lines.append((node.name, *cells, f"{off[-1]:+.1%}", f"{naive[-1]:+.1%}"))
    yield from columns(lines, left=(0,))
    within = sum(abs(each) <= 0.12 for each in off)
    yield f"  {len(off)} nodes, each left out: {errors(off)}; {within} within 12 %"
    yield f"  rated power: {errors(naive)}"
    shares = sorted(node.host for node in every)
    ends = f"{shares[0]:.3f} to {shares[-1]:.3f}"
    yield f"  hosts, of the most that boards draw: {median(shares):.3f} ({ends})"
    first, second = (node.network for node in every if node.network)
    far = f"{first / second - 1:+.0%} and {second / first - 1:+.0%}"
    yield f"  network for a device: {first:.0f} and {second:.0f} W; each by the other is {far} off"


def run_lines() -> Iterator[str]:
    """Hours of whole trainings over those of the cards."""
    head = ("training", "GPUs", "MFU", "goodput", "predicted", "card", "ratio", "MWh")
    lines: list[tuple[str, ...]] = [head]
    ratios = []
    for name, tokens, count, batch, hours in CARDS:
        options: dict[str, Any] = {"software": "megatron", "batch.global_batch": batch}
        best = sc.plan(name, "dgx-h100", count, tokens=tokens, top=1, set=options).best
        assert best and best.device_hours and best.energy
        ratios.append(best.device_hours / hours)
        cells = (f"{8 * count:,}", f"{best.mfu:.2f}", f"{best.goodput:.3f}")
        sums = (f"{best.device_hours / 1e6:.2f}M", f"{hours / 1e6:.2f}M", f"{ratios[-1]:.2f}")
        lines.append((name, *cells, *sums, f"{best.energy / 3.6e9:,.0f}"))
    yield from columns(lines, left=(0,))
    yield f"  {len(ratios)} trainings, none fitted: median ratio {median(ratios):.2f}"


if __name__ == "__main__":
    for part in (board_lines, node_lines, run_lines):
        print("\n".join(part()), end="\n\n", flush=True)
