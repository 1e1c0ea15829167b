"""The `Execution` of a run: the formats, kernels and gathers that its blocks use on a platform."""

from collections.abc import Mapping
from typing import Any, Literal

import jax

from scaling.models.execution import Execution
from scaling.parallelism.pipeline import recomputes
from scaling.run import Run

FLASH_CAPABILITY = 8.0  # NVIDIA Ampere, the oldest with flash attention (cuDNN 9 support matrix)
# Where products of experts have a kernel (`scaling.models.moe.grouped_matmul`)
GROUPED_KERNELS: Mapping[str, Literal["triton", "ragged"]] = {
    "gpu": "triton",
    "cuda": "triton",
    "tpu": "ragged",
}


def execution_for(run: Run, rules: Any, platform: str) -> Execution:
    """The `Execution` of a run on `platform` ("gpu"/"cuda", "cpu", "tpu").

    Flash attention is cuDNN's: on NVIDIA GPUs, in bf16, for head_dim a multiple of 8 up to 128
    (cuDNN 9 documentation, fused attention support matrix). Elsewhere XLA's plain one is used,
    and for latent attention, whose values are of another length than its keys. Products of experts
    are our own kernels on the same GPUs, in any format.
    """
    head = run.model.head_dim
    flash = (
        run.attention == "flash"
        and platform in ("gpu", "cuda")
        and run.precision.between == "bf16"
        and not run.model.mla
        and head % 8 == 0
        and head <= 128
    )
    return Execution(
        rules,
        compute=run.precision.compute,
        remat=run.remat,
        attention_kernel="cudnn" if flash else "xla",
        grouped_kernel=GROUPED_KERNELS.get(platform, "tiles"),
        context_method=run.context.method,
        virtual_stages=run.pipeline.virtual_stages,
        recompute_stages=recomputes(run),
        zero_stage=run.sharding.zero_stage,
        reduce=run.precision.reduce,
    )


def flash_platform(device: jax.Device) -> str:
    """The device's platform as `execution_for` takes it; GPUs without cuDNN's kernel differ.

    That kernel needs NVIDIA's Ampere (compute capability 8.0) or later.
    """
    if device.platform != "gpu":
        return device.platform
    nvidia = "cuda" in getattr(device.client, "platform_version", "").lower()
    capable = nvidia and float(getattr(device, "compute_capability", 0)) >= FLASH_CAPABILITY
    return "gpu" if capable else "gpu without cuDNN"
