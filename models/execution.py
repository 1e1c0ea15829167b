"""The execution of a model on a mesh: sharding rules, number format, kernels, ZeRO stage.

The rules alone decide where weights are stored (`scaling.models.initializers`); the options decide
what is computed, saved for the backward pass and communicated. A run's options are chosen by
`scaling.training.execution`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import Rules, named
from scaling.models.accounting.remat import Remat
from scaling.models.lora import Lora

DTYPES = {
    "fp8": jnp.bfloat16,  # matrix products only, see `scaling.models.float8`
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
}


@dataclass(frozen=True)
class Execution:
    """The options of every block, besides its weights; hashable, so that jit takes it as static."""

    rules: Rules
    _: KW_ONLY
    compute: Literal["fp8", "bf16", "fp16", "tf32", "fp32"] = "bf16"
    remat: Remat = "none"
    attention_kernel: Literal["cudnn", "xla"] = "xla"
    grouped_kernel: Literal["triton", "tiles", "ragged"] = "ragged"  # `models.moe.expert_mlps`
    context_method: Literal["ring", "all-gather"] = "ring"  # exchange of keys over `context`
    virtual_stages: int = 1  # of the pipeline, see `scaling.models.pipeline.schedule`
    zero_stage: int = 3  # ZeRO on the axes of "embed", see `scaling.models.zero`
    reduce: Literal["bf16", "fp32"] = "bf16"  # gradients over devices, `models.partial_sums`
    lora: Lora | None = None  # adapters beside matrices, see `scaling.models.adapters`
    frozen: Literal["fp32", "bf16"] = "fp32"  # format in which frozen matrices are stored
    reference: "Execution | None" = None  # of the frozen model that the loss compares with

    @property
    def dtype(self) -> jnp.dtype:
        """Format of activations, and of weights as they are multiplied."""
        return jnp.dtype(DTYPES[self.compute])

    @property
    def precision(self) -> jax.lax.Precision:
        """True fp32 products for "fp32"; the device's default (TF32 on NVIDIA) otherwise."""
        highest = self.compute == "fp32"
        return jax.lax.Precision.HIGHEST if highest else jax.lax.Precision.DEFAULT

    @property
    def gathers_weights_once(self) -> bool:
        """True if matrices are all-gathered once per step (ZeRO stage 1)."""
        return self.zero_stage < 3 and bool(self.rules.axes("embed"))

    def spec(self, *dims: str | None) -> P:
        """The PartitionSpec of a tensor with these logical dimensions."""
        return P(*self.rules.spec(*dims))

    def place(self, x: jax.Array, *dims: str | None) -> jax.Array:
        """`x` resharded to its logical dimensions: an all-gather, a slice, or nothing."""
        return reshard(x, self.spec(*dims))


def spec_of(x: jax.Array) -> P:
    """The PartitionSpec that `x` has."""
    return jax.typeof(x).sharding.spec


def axes_of(x: jax.Array) -> frozenset[str]:
    """The mesh axes that `x` is sharded over."""
    return named(spec_of(x).partitions)
