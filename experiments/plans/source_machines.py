"""The machines of the source documents: what they measured, what the closed form predicts, and why.

    python -m experiments.plans.source_machines      # prints and writes experiments/plans/README.md

Every row is one command that `scaling` runs. Measured seconds are samples per step over the
stated samples per second. The figure of RTX 3090's PCIe links was fitted on what DDP waits for on 2
to 10 of these cards; no other row was fitted on.
"""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from textwrap import fill

import scaling as sc
from scaling.report.formatting import columns

OUT = Path("experiments/plans/README.md")
REPORT = "GPU cluster performance report, ten RTX 3090 (Worker-04)"
CASE = "support case, Qwen3-0.6B with DeepSpeed ZeRO-2 on 4 x A100 40GB and 4 x AWS P5e"
WIDTH = 100  # characters of a line of the page
PER_CARD = 4  # sequences on each RTX 3090, as the report states
DDP = {1: 27.4, 2: 29.3, 4: 28.6, 8: 39.6, 10: 47.9, 20: 73.3}  # samples/s by cards
ZERO2 = {1: 27.5, 2: 31.4, 4: 36.3, 8: 59.4, 10: 52.6, 20: 82.8}
QWEN = {"dgx-a100-40g": 359.184, "p5e": 549.465}  # samples/s on four nodes
QWEN_BATCH = 32 * 4  # per_device_train_batch_size = 4 on 4 nodes of 8 (the 8 is assumed)


@dataclass(frozen=True)
class Row:
    """One measured run: seconds of a step (None: not measured), and how it is predicted."""

    title: str
    recipe: str
    cluster: str
    nodes: int
    mesh: str
    settings: dict[str, object]
    overrides: dict[str, float]
    measured: float | None = None

    @property
    def command(self) -> str:
        """The command that prints the same prediction."""
        words = ["scaling", "predict", self.recipe, "--source", "analytic"]
        words += ["--cluster", self.cluster, "--nodes", str(self.nodes), "--mesh", self.mesh]
        for name, figure in self.overrides.items():
            words += ["--override", f"{name}={figure:g}"]
        for key, value in self.settings.items():
            words += ["--set", f"{key}={value}"]
        return shlex.join(words)

    def predicted(self) -> sc.Prediction:
        """The prediction of the command."""
        return sc.predict(
            self.recipe,
            cluster=self.cluster,
            nodes=self.nodes,
            mesh=self.mesh,
            source="analytic",
            overrides=self.overrides,
            set=self.settings,
        )


def cards() -> Iterator[Row]:
    """GPT-305M on 1 to 20 RTX 3090, by DDP and by ZeRO-2."""
    for name, axis, software, samples in (
        ("DDP", "data", "pytorch-fsdp", DDP),
        ("ZeRO-2", "fsdp", "deepspeed", ZERO2),
    ):
        for count, rate in samples.items():
            nodes = 2 if count > 10 else 1
            settings: dict[str, object] = {"software": software}
            settings["batch.global_batch"] = PER_CARD * count
            if name == "ZeRO-2":
                settings["sharding.zero_stage"] = 2
            overrides = {"gpus_per_node": float(count)} if count < 10 else {}
            title = f"{count} x RTX 3090, {name}"
            place = ("gpt-305m", "rtx3090-10", nodes, f"{axis}={count}")
            yield Row(title, *place, settings, overrides, PER_CARD * count / rate)


def bridged() -> Iterator[Row]:
    """The same model on two cards with and without an NVLink bridge, not measured."""
    for cluster in ("rtx3090-10", "rtx3090-10-nvlink"):
        settings: dict[str, object] = {"software": "pytorch-fsdp", "batch.global_batch": 8}
        place = ("gpt-305m", cluster, 1, "data=2")
        yield Row(f"2 cards of {cluster}, DDP", *place, settings, {"gpus_per_node": 2.0})


def qwen() -> Iterator[Row]:
    """Qwen3-0.6B with ZeRO-2 at several lengths: the source has 4,096 tokens at most, no mean."""
    for length in (512, 1024, 2048, 4096):
        for cluster in QWEN:
            settings: dict[str, object] = {"software": "deepspeed", "sharding.zero_stage": 2}
            settings |= {"batch.global_batch": QWEN_BATCH, "batch.seq_len": length}
            settings |= {"batch.microbatches": 1}
            place = ("qwen3-0.6b", cluster, 4, "fsdp=32")
            yield Row(f"4 x {cluster}, {length} tokens", *place, settings, {})


def speedups() -> str:
    """How much faster P5e is than A100 at each length, as measured and as predicted."""
    rows = list(qwen())
    pairs = zip(rows[::2], rows[1::2], strict=True)
    ratios = [
        f"{a.predicted().step_time / b.predicted().step_time:.2f} at {a.settings['batch.seq_len']}"
        for a, b in pairs
    ]
    measured = QWEN["p5e"] / QWEN["dgx-a100-40g"]
    return f"P5e is {measured:.2f} times as fast as measured; predicted {', '.join(ratios)} tokens."


def epochs() -> Iterator[Row]:
    """GPT-2 on four V100, A100 and one H200: how much faster the newer ones are."""
    small = {"batch.global_batch": 64, "batch.microbatches": 1, "software": "pytorch-fsdp"}
    for cluster, count, compute in (
        ("dgx-station-v100", 4, "fp16"),
        ("dgx-station-v100", 4, "fp32"),
        ("dgx-a100-40g", 4, "bf16"),
        ("dgx-h200", 1, "bf16"),
        ("rtx-pro-6000-4", 4, "bf16"),
    ):
        settings: dict[str, object] = {**small, "precision.compute": compute, "remat": "full"}
        place = ("gpt2-124m", cluster, 1, f"data={count}")
        yield Row(
            f"{count} x {cluster}, {compute}", *place, settings, {"gpus_per_node": float(count)}
        )


SECTIONS: tuple[tuple[str, Callable[[], Iterator[Row]], str], ...] = (
    (
        f"Ten RTX 3090 ({REPORT})",
        cards,
        "Predicted and measured agree on the story: the cards wait for PCIe, through host "
        "memory, from two cards on, and two nodes wait for bonded 10 Gb/s Ethernet. The format "
        "of the products is not stated (bf16 priced, gradients in fp32). ZeRO-2 falls from 59.4"
        " to 52.6 samples/s from 8 to 10 cards; the same table has 51.6 for ten elsewhere. The "
        "model has no reason for a fall: the two sockets are as full with 8 cards.",
    ),
    (
        "NVLink bridges between two RTX 3090 (not measured: the report proposes them)",
        bridged,
        "The bridged cards of each socket have the first numbers in `rtx3090-10-nvlink`.",
    ),
    (
        f"Qwen3-0.6B ({CASE})",
        qwen,
        "H200 has 3.2 times the bf16 rate and 3.1 times the memory bandwidth of A100 40GB. "
        "Measured were 356 ms on A100 and 233 ms on P5e for 128 samples, if a node has 8 GPUs "
        "and no gradients are accumulated: neither is stated, nor is the mean length of a "
        "sample. At 4,096 tokens A100 would run at half to three quarters of its peak, so "
        "samples were shorter. Then what both machines share decides: launches and the host of "
        "a small model, and an exchange of gradients that nothing hides. So the ratio can be "
        "compared, the seconds cannot.",
    ),
    (
        "V100, A100 and H200 (a comparison that measured the V100 only: 1.06 s for 128 samples)",
        epochs,
        "The measured model and its data are not stated: only ratios can be compared. GPT-2 "
        "stands in. V100 has no bf16; in fp32 it has no tensor cores.",
    ),
)


def table(rows: Sequence[Row]) -> list[str]:
    """Lines of a table: measured, predicted with its range, error, and what decides."""
    head = ["", "measured", "predicted", "from", "to", "error", "waits", "grade"]
    lines: list[list[str]] = []
    errors: list[float] = []
    for row in rows:
        p = row.predicted()
        error = None if row.measured is None else float(p.step_time) / row.measured - 1
        errors += [] if error is None else [abs(error)]
        waits = p.time.exposed_communication / p.step_time
        lines.append(
            [
                row.title,
                "-" if row.measured is None else f"{1e3 * row.measured:.0f} ms",
                *(f"{1e3 * s:.0f} ms" for s in (p.step_time, p.step_time_low, p.step_time_high)),
                "-" if error is None else f"{error:+.0%}",
                f"{waits:.0%}",
                p.grade,
            ]
        )
    text = columns([head, *lines])
    if errors:
        text += ["", f"Absolute error: n {len(errors)}, median {median(errors):.0%}, "]
        text[-1] += f"mean {mean(errors):.0%}, worst {max(errors):.0%}."
    return list(text)


def page() -> list[str]:
    """Lines of the page."""
    lines = ["# The machines of the source documents", ""]
    lines += [
        "Made by `python -m experiments.plans.source_machines`. The figure of RTX 3090's PCIe"
    ]
    lines += [
        "links was fitted on what DDP waits for on 2 to 10 cards: these four rows are no test of"
    ]
    lines += ["it. `waits`: part of the step in which a device waits for communication.", ""]
    for title, rows, why in SECTIONS:
        found = list(rows())
        lines += [f"## {title}", "", "```", *table(found), "```", "", fill(why, WIDTH)]
        lines += ["", speedups()] if rows is qwen else []
        lines += ["", "```sh"]
        lines += [*(row.command for row in found), "```", ""]
    return lines[:-1]


def main() -> None:
    """Write the page and print it."""
    text = "\n".join(page()) + "\n"
    OUT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
