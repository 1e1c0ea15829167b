"""Trainings at scale that others published, priced as they were laid out.

    A100    Narayanan et al. 2021, arXiv 2104.04473, table 1: 2,048 tokens, recomputed in full, 16 bits
    H100    NVIDIA/Megatron-LM, README, table of weak scaling (2024): 4,096 tokens, 48 copies
    H800    DeepSeek-V3, arXiv 2412.19437: 180,000 hours of a GPU for 10^12 tokens, fp8

A rate of a GPU becomes the seconds of a step by the FLOPs that its source counts. What a source does
not state (microbatches, virtual stages; remat and ZeRO stage of the second table) the planner
chooses: so the time is that of the best run with that mesh.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import scaling as sc
from scaling.meshes.errors import InputError

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
SHARDED = 16  # of the 48 copies of the second table


@dataclass(frozen=True)
class Published:
    """One published run, and what it takes by the plan."""

    name: str
    devices: int
    mesh: str
    measured: float  # s of a step
    predicted: float | None  # s; None: nothing fits
    why: str = ""  # nothing fits, or what the planner chose

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one."""
        return None if self.predicted is None else self.predicted / self.measured - 1


def gpts(table: str) -> Iterator[Published]:
    """Yield the runs of "narayanan" or "megatron"."""
    old = table == "narayanan"
    rows, seq, vocab = (NARAYANAN, 2048, 51_200) if old else (MEGATRON, 4096, 131_072)
    cluster, fixed = ("dgx-a100", {"remat": "full"}) if old else ("dgx-h100", {})
    for billions, heads, width, layers, tensor, stages, gpus, batch, rate in rows:
        # 96 with the forward pass again, 72 without; of attention all scores
        passes = 96 if old else 72
        head = vocab / ((16 if old else 12) * layers * width)
        flops = passes * batch * seq * layers * width**2 * (1 + seq / (6 * width) + head)
        model = {
            **{"vocab_size": vocab, "d_model": width, "n_layers": layers, "n_heads": heads},
            **{"d_ff": 4 * width, "mlp": "gelu", "norm": "layernorm", "positions": "learned"},
            **{"tied_embeddings": True, "bias": True},
        }
        run = {
            **{"name": f"{billions:g}B", "model": model, "software": "megatron"},
            **({"attention": "unfused"} if old else {}),  # FlashAttention is of 2022
            **{"batch": {"global_batch": batch, "seq_len": seq}},
            **{"precision": {"compute": "fp16" if old else "bf16"}},
        }
        # the second table has the distributed optimizer; fsdp has to divide the width
        copies = gpus // (tensor * stages)
        copy = f"data={copies}" if old else f"data={copies // SHARDED},fsdp={SHARDED}"
        mesh = f"stage={stages},{copy},tensor={tensor}"
        measured = flops / (gpus * rate * 1e12)
        yield _planned(f"{billions:g}B", run, cluster, gpus, mesh, measured, fixed)


def deepseek() -> Published:
    """DeepSeek-V3 on 2,048 H800: 16 stages, 64 ways of experts over 8 nodes, ZeRO-1."""
    measured = 15_360 * 4096 / 1e12 * 180_000 * 3600 / 2048
    settings = {"batch.global_batch": 15_360, "batch.seq_len": 4096, "software": "megatron"}
    settings |= {"precision.compute": "fp8", "pipeline.schedule": "zero_bubble"}
    run: Any = sc.load_run("deepseek-v3", set=settings)
    link = {"link_bandwidth": "200GB/s"}  # of H800: 400 GB/s, both directions
    mesh = "stage=16,data=2,expert=64"
    return _planned("DeepSeek-V3", run, "dgx-h100", 2048, mesh, measured, {}, link)


def _planned(
    name: str,
    run: Any,
    cluster: str,
    gpus: int,
    mesh: str,
    measured: float,
    fixed: dict[str, Any],
    overrides: dict[str, str] | None = None,
) -> Published:
    try:
        found = sc.plan(
            run,
            cluster,
            max(1, gpus // 8),
            mesh,
            fixed=fixed,
            wide=True,
            top=1,
            overrides=overrides,
        )
    except InputError as error:
        return Published(name, gpus, mesh, measured, None, str(error))
    if found.best is None:
        return Published(name, gpus, mesh, measured, None, found.error or "nothing fits")
    return Published(
        name, gpus, mesh, measured, float(found.best.step_time), _chosen(found.best.run)
    )


def _chosen(run: Any) -> str:
    """What the planner chose, in a few words."""
    virtual = run.pipeline.virtual_stages
    more = f", {virtual} virtual stages" if virtual > 1 else ""
    zero = f", ZeRO-{run.sharding.zero_stage}" if run.mesh.fsdp > 1 else ""
    return f"{run.batch.microbatches} microbatches, remat {run.remat}{zero}{more}"
