"""The `Execution` of a run: the formats, kernels and gathers that its blocks use on a platform."""

from typing import Any, Literal

import jax

from scaling.meshes.errors import InputError
from scaling.models.attention_kernels.flash import cudnn_version
from scaling.models.attention_kernels.support import AMPERE, check_cudnn, has_flash
from scaling.models.execution import Execution
from scaling.run import Run
from scaling.run.parallelism.rules import rules_for, zero_stage
from scaling.run.reference import reference_run
from scaling.run.run import OWN_REDUCE


def execution_for(run: Run, rules: Any, platform: str, capability: float = 0.0) -> Execution:
    """The `Execution` of a run on `platform` ("gpu"/"cuda", "cpu", "tpu").

    Flash attention is cuDNN's: in bf16, on GPUs whose compute `capability` (0.0: none of NVIDIA's)
    has it for the model's heads (`scaling.models.attention_kernels.support`). Elsewhere XLA's plain
    one is used. Products of experts are our own kernels from Ampere on, in any format.

    Raises:
        InputError: packed documents of an odd length, which that attention does not take.
    """
    wanted = run.attention == "flash" and run.precision.between == "bf16"
    flash = wanted and has_flash(run.model, capability)
    chunks = 2 * context if (context := rules.mesh.context) > 1 else 1
    if flash and run.train.documents == "packed" and run.batch.seq_len // chunks % 2:
        raise InputError(
            f"train.documents 'packed' with batch.seq_len={run.batch.seq_len}: cuDNN's attention "
            f"takes masks of an even length only; use a multiple of {2 * chunks}, or --set "
            "attention=unfused"
        )
    reference = reference_run(run)
    beside = None
    if reference is not None:
        own = rules_for(reference, rules.mesh)
        beside = execution_for(reference, own, platform, capability)
    grouped: Literal["triton", "ragged", "tiles"] = "ragged" if platform == "tpu" else "tiles"
    return Execution(
        rules,
        compute=run.precision.compute,
        remat=run.remat,
        attention_kernel="cudnn" if flash else "xla",
        grouped_kernel="triton" if capability >= AMPERE else grouped,
        context_method=run.context.method,
        virtual_stages=run.pipeline.virtual_stages,
        zero_stage=zero_stage(run, rules.mesh),
        reduce=run.precision.reduce or OWN_REDUCE,
        lora=run.train.lora,
        frozen=run.precision.frozen,
        reference=beside,
    )


def execution_on(device: jax.Device, run: Run, rules: Any) -> Execution:
    """The `Execution` of a run on a device that is present.

    Raises:
        InputError: as `execution_for`, or the installed cuDNN lacks the model's attention.
    """
    execution = execution_for(run, rules, device.platform, compute_capability(device))
    if execution.attention_kernel == "cudnn":
        check_cudnn(run.model, cudnn_version())
    return execution


def compute_capability(device: jax.Device) -> float:
    """The compute capability of an NVIDIA GPU; 0.0 for any other device."""
    nvidia = "cuda" in getattr(device.client, "platform_version", "").lower()
    return float(getattr(device, "compute_capability", 0)) if nvidia else 0.0
