"""Runs that the source documents measured, each with the command that predicts it.

Measured seconds are samples per step over the stated samples per second. The figure of RTX 3090's
PCIe links was fitted on what DDP waits for on 2 to 10 of these cards; no other row was fitted on.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import scaling as sc

PER_CARD = 4  # sequences on each RTX 3090, as the report states
DDP = {1: 27.4, 2: 29.3, 4: 28.6, 8: 39.6, 10: 47.9, 20: 73.3}  # samples/s by cards
ZERO2 = {1: 27.5, 2: 31.4, 4: 36.3, 8: 59.4, 10: 52.6, 20: 82.8}
P5E = "p5e"
QWEN = {"dgx-a100-40g": 359.184, P5E: 549.465}  # samples/s on four nodes
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


def epochs() -> Iterator[Row]:
    """GPT-2 on four V100, A100 and one H200: how much faster the newer ones are."""
    yield epoch("gpt2-124m", "dgx-station-v100", 4, "fp16")
    yield epoch("gpt2-124m", "dgx-station-v100", 4, "fp32")
    yield epoch("gpt2-124m", "dgx-a100-40g", 4, "bf16")
    yield epoch("gpt2-124m", "dgx-h200", 1, "bf16")
    yield epoch("gpt2-124m", "rtx-pro-6000-4", 4, "bf16")


def epoch(model: str, cluster: str, count: int, compute: str) -> Row:
    """A step of 64 sequences on so many devices of one host."""
    settings: dict[str, object] = {"software": "pytorch-fsdp", "remat": "full"}
    settings |= {"batch.global_batch": 64, "batch.microbatches": 1, "precision.compute": compute}
    place = (model, cluster, 1, f"data={count}")
    return Row(f"{count} x {cluster}, {compute}", *place, settings, {"gpus_per_node": float(count)})
