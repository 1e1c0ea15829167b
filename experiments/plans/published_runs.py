"""Trainings at scale that others published, priced as they were laid out.

    A100    Narayanan et al. 2021, arXiv 2104.04473, table 1: 2,048 tokens, all recomputed, 16 bits
    H100    NVIDIA/Megatron-LM, README, table of weak scaling (2024): 4,096 tokens, 48 copies
    H800    DeepSeek-V3, arXiv 2412.19437: 180,000 hours of a GPU for 10^12 tokens, fp8

A rate of a GPU becomes the seconds of a step by the FLOPs that its source counts. What a source
does not state (sequences of a microbatch, virtual stages) is what makes the step shortest. The
software of 2021 hides no communication: it is priced as Megatron-DeepSpeed (scaling/analytic).

Weights have 16 bits in Megatron. Gradients of fp16 have as well, and a stream is scattered over
tensor between stages (NVIDIA/Megatron-LM @ 42c1cf42, megatron/arguments.py: what is on by itself).
Those of bf16 are added up in float32, over devices too unless --grad-reduce-in-bf16 is given, and
--tp-comm-overlap, which the README names, asserts sequence parallelism (@ d98e8a64).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import Any

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.meshes.rules import divisors
from scaling.meshes.units import percent

# Billions of parameters, heads, width, layers, tensor, stages, GPUs, sequences, TFLOP/s of a GPU
NARAYANAN = (
    (1.7, 24, 2304, 24, 1, 1, 32, 512, 137),
    (3.6, 32, 3072, 30, 2, 1, 64, 512, 138),
    (7.5, 32, 4096, 36, 4, 1, 128, 512, 142),
    (18.4, 48, 6144, 40, 8, 1, 256, 1024, 135),
    (39.1, 64, 8192, 48, 8, 2, 512, 1536, 138),
    (76.1, 80, 10240, 60, 8, 4, 1024, 1792, 140),
    (145.6, 96, 12288, 80, 8, 8, 1536, 2304, 148),
    (310.1, 128, 16384, 96, 8, 16, 1920, 2160, 155),
    (529.6, 128, 20480, 105, 8, 35, 2520, 2520, 163),
    (1008.0, 160, 25600, 128, 8, 64, 3072, 3072, 163),
)
MEGATRON = (
    (1.7, 16, 2048, 24, 1, 1, 48, 192, 408.8),
    (7.1, 32, 4096, 30, 2, 1, 96, 192, 465.9),
    (16, 48, 6144, 32, 4, 1, 192, 192, 489.1),
    (32, 56, 7168, 48, 8, 1, 384, 192, 459.6),
    (70, 64, 8192, 84, 8, 2, 768, 384, 419.7),
    (119, 80, 10240, 92, 8, 4, 1536, 768, 420.5),
    (177, 96, 12288, 96, 8, 6, 2304, 1152, 432.8),
    (314, 128, 16384, 96, 8, 8, 3072, 1536, 474.4),
    (462, 144, 18432, 112, 8, 16, 6144, 3072, 459.9),
)
OF_2021 = {
    **{"software": "deepspeed", "precision.compute": "fp16", "attention": "unfused"},
    **{"precision.parameters": "fp16", "precision.gradients": "fp16", "pipeline.scatter": True},
}  # FlashAttention is of 2022
OF_2024 = {
    **{"software": "megatron", "precision.parameters": "bf16", "precision.reduce": "fp32"},
    **{"sharding.zero_stage": 1, "sharding.sequence_parallel": True},
}
# DeepSeek-V3: what is priced beside the line before (arXiv 2412.19437, sections 3.2, 3.2.3, 3.3).
DEEPSEEK: dict[str, dict[str, Any]] = {
    "1F1B, zero bubble": {
        **{"batch.global_batch": 15_360, "batch.seq_len": 4096},
        **{"batch.microbatches": 120, "software": "megatron", "sharding.zero_stage": 1},
        **{"precision.compute": "fp8", "precision.parameters": "bf16", "remat": "none"},
        **{"precision.optimizer_state": "bf16", "pipeline.schedule": "zero_bubble"},
    },
    "DualPipe": {"pipeline.schedule": "dualpipe"},
    "a token once to a node": {"dispatcher": "deepep"},
    "tokens in fp8": {"precision.dispatch": "fp8"},
    "their recomputation": {
        **{"remat": "selective", "recompute": ["layernorm", "mla_up_proj", "moe_act"]},
    },
}
SHARDED = 16  # of the 48 copies of the second table: fsdp has to divide the width
SEQUENCES = (1, 2, 4, 8)  # of a microbatch, tried
MOST_VIRTUAL = 12  # stages of a device, tried


@dataclass(frozen=True)
class Published:
    """One published run beside its price."""

    name: str
    devices: int
    mesh: str
    measured: float  # s of a step
    predicted: float
    memory: float  # bytes of a device, by our account
    fits: bool
    chosen: str  # what the source does not state

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1


def gpts(table: str) -> Iterator[Published]:
    """Yield the runs of "narayanan" or "megatron"."""
    old = table == "narayanan"
    rows, seq, vocab = (NARAYANAN, 2048, 51_200) if old else (MEGATRON, 4096, 131_072)
    for billions, heads, width, layers, tensor, stages, gpus, batch, rate in rows:
        # 96 with the forward pass again, 72 without; of attention all scores
        head = vocab / ((16 if old else 12) * layers * width)
        flops = (96 if old else 72) * batch * seq * layers * width**2
        measured = flops * (1 + seq / (6 * width) + head) / (gpus * rate * 1e12)
        # stages and tensor share out a sequence here: a longer one is priced, and its time cut
        longer = -(-seq // lcm(stages, tensor)) * lcm(stages, tensor)
        copies = gpus // (tensor * stages)
        copy = f"data={copies}" if old else f"data={copies // SHARDED},fsdp={SHARDED}"
        settings = {
            **{"model.vocab_size": vocab, "model.d_model": width, "model.n_layers": layers},
            **{"model.n_heads": heads, "model.d_ff": 4 * width, "model.mlp": "gelu"},
            **{"model.norm": "layernorm", "model.positions": "learned", "model.bias": True},
            **{"model.tied_embeddings": True, "batch.global_batch": batch},
            **{"batch.seq_len": longer, "remat": "full" if old else "none"},
            **(OF_2021 if old else OF_2024),
        }
        mesh = f"stage={stages},{copy},tensor={tensor}"
        name, cluster = f"{billions:g}B", "dgx-a100" if old else "dgx-h100"
        limits = batch // copies, layers // stages
        yield _fastest(name, settings, cluster, gpus, mesh, measured, seq / longer, limits)


def deepseek(layers: int = 64) -> Iterator[Published]:
    """Yield DeepSeek-V3 on 2,048 H800, with one more of its mechanisms each time.

    64 layers and a head have the FLOPs of its 61, a further block for the token after the next, and
    two heads. An H800 is an H100 whose NVLink has 200 GB/s each way.
    """
    measured = 15_360 * 4096 / 1e12 * 180_000 * 3600 / 2048
    mesh, settings = "stage=16,fsdp=2,expert=64", {"model.n_layers": layers}
    for name, more in DEEPSEEK.items():
        settings |= more
        p = sc.predict(
            *("deepseek-v3", "dgx-h100", 256, mesh, "analytic"),
            set=settings,
            overrides={"link_bandwidth": "200GB/s"},
        )
        time, memory = float(p.step_time), float(p.memory.peak)
        chosen = f"{percent(p.time.exposed_communication / p.step_time)} waiting"
        yield Published(name, 2048, mesh, measured, time, memory, bool(p.memory.fits), chosen)


def _fastest(
    name: str,
    settings: dict[str, Any],
    cluster: str,
    gpus: int,
    mesh: str,
    measured: float,
    share: float,
    limits: tuple[int, int],
) -> Published:
    """The shortest step over what is not stated.

    `share` of the time is that of the sequence as it was; `limits` are the sequences of a copy of
    the model and the layers of a stage.
    """
    of_copy, layers = limits
    stages = int(mesh.partition(",")[0].removeprefix("stage="))
    found = []
    for sequences in (n for n in SEQUENCES if of_copy % n == 0):
        for virtual in divisors(layers) if stages > 1 else [1]:
            if virtual > MOST_VIRTUAL:
                continue
            more: dict[str, Any] = {"batch.microbatches": of_copy // sequences}
            if virtual > 1:
                more |= {"pipeline.schedule": "interleaved", "pipeline.virtual_stages": virtual}
            try:
                p = sc.predict("custom", cluster, gpus // 8, mesh, "analytic", set=settings | more)
            except InputError:  # no such pipeline
                continue
            words = f"{sequences} a microbatch" + f", {virtual} virtual stages" * (virtual > 1)
            one = Published(
                *(name, gpus, mesh, measured, float(p.step_time) * share, float(p.memory.peak)),
                fits=bool(p.memory.fits),
                chosen=words,
            )
            # where nothing fits by our account, the smallest microbatch; it did run
            found.append((not one.fits, 0 if one.fits else sequences, one.predicted, words, one))
    return min(found)[-1]
