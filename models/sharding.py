"""Where tensors live and in which number format blocks compute: the link between rules and jax.

A sharded matmul of fully sharded data parallelism is three lines of textbook:

    forward   gather the weight over fsdp, multiply
    backward  gather it again, multiply twice
              reduce-scatter the weight's gradient over fsdp, all-reduce the shard over data

`Layout.project` says exactly that to the compiler, through explicit shardings.
"""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import Rules, named
from scaling.models import float8

DTYPES = {
    "fp8": jnp.bfloat16,  # products only, see `scaling.models.float8`
    "bf16": jnp.bfloat16,
    "fp16": jnp.float16,
    "fp32": jnp.float32,
    "tf32": jnp.float32,
}


@dataclass(frozen=True)
class Layout:
    """What every block needs besides its weights; hashable, so that jit can take it as static."""

    rules: Rules
    compute: Literal["fp8", "bf16", "fp16", "tf32", "fp32"] = "bf16"
    remat: Literal["none", "selective", "full"] = "none"
    attention: Literal["cudnn", "xla"] = "xla"
    context: Literal["ring", "all-gather"] = "ring"  # how attention sees a sequence that is cut
    rounds: int = 1  # of the pipeline over stages, see scaling.models.pipeline.schedule
    recompute_stages: bool = False  # keep a stage's input only of each of its ticks
    zero: int = 3  # stage of ZeRO on the fsdp axis, see `scaling.models.zero`

    @property
    def dtype(self) -> jnp.dtype:
        """Format of activations and of the weights as they are multiplied."""
        return jnp.dtype(DTYPES[self.compute])

    @property
    def precision(self) -> jax.lax.Precision:
        """True fp32 products for "fp32"; the device's default (TF32 on NVIDIA) otherwise."""
        highest = self.compute == "fp32"
        return jax.lax.Precision.HIGHEST if highest else jax.lax.Precision.DEFAULT

    @property
    def gathers_in_ticks(self) -> bool:
        """Whether weights are gathered in a scan over ticks that jax differentiates: it would
        gather all of them before the scan, as they are the same in every tick, see `tied`."""
        stages = self.rules.axes("layers") and not self.recompute_stages
        return bool(stages and self.rules.axes("embed") and not self.gathers_once)

    @property
    def gathers_once(self) -> bool:
        """Whether blocks meet matrices that are whole over fsdp (`models.zero`)."""
        return self.zero < 3 and bool(self.rules.axes("embed"))

    def spec(self, *dims: str | None) -> P:
        """The PartitionSpec of a tensor with these logical dimensions."""
        return P(*self.rules.spec(*dims))

    def place(self, x: jax.Array, *dims: str | None) -> jax.Array:
        """`x` resharded to its logical dimensions: a gather, a slice, or nothing."""
        return reshard(x, self.spec(*dims))

    def gather(self, w: jax.Array, dims: tuple[str | None, ...], over: frozenset[str]) -> jax.Array:
        """A stored weight in compute format, whole along "embed", to meet sharded activations.

        Args:
            w: the weight, stored with `spec(*dims)`; or whole already (`gathers_once`).
            dims: its logical dimensions.
            over: mesh axes that cut the activations it meets. The gradient arrives as one partial
                sum per device of these axes; it is reduce-scattered over those that cut the stored
                weight, then all-reduced over the others. Both steps are needed: one reshard alone
                makes XLA all-reduce the whole weight (seen with jax 0.10.2).
        """
        used = self.rules.spec(*(None if dim == "embed" else dim for dim in dims))
        stored = used if self.gathers_once else self.rules.spec(*dims)
        over = over - named(used)
        w = reshard(w.astype(self.dtype), P(*stored, reduced=over - named(stored)))
        return reshard(w, P(*used, reduced=over))

    def project(
        self,
        equation: str,
        x: jax.Array,
        w: jax.Array,
        dims: tuple[str | None, ...],
        out: tuple[str | None, ...],
        partial: bool = False,
    ) -> jax.Array:
        """The product of an activation and a stored weight, `jnp.einsum(equation, x, w)`.

        The gathered weight is not kept for the backward pass but gathered again: else every
        layer's whole weights would stay in memory until then. A layer that is recomputed as a
        whole (`models.remat`) does so anyway, and one gather serves it and its backward pass.

        Args:
            equation: for einsum; `x` first.
            x: activations, in compute format.
            w: a stored weight with logical dimensions `dims`.
            dims: see `w`.
            out: logical dimensions of the result.
            partial: the contraction runs over `tensor`: partial products are summed over it,
                which with a sequence-parallel `out` is a reduce-scatter.
        """
        over = axes_of(x)
        summed = self.rules.axes("mlp") if partial else ()
        before = tuple("sequence" if d == "residual" else d for d in out) if summed else out
        target = P(*self.rules.spec(*before), unreduced=frozenset(summed))

        def multiply(x: jax.Array, w: jax.Array) -> jax.Array:
            w = tied(w, x) if self.remat == "none" and self.gathers_in_ticks else w
            whole = self.gather(w, dims, over)
            if self.compute == "fp8":
                return float8.product(self.rules, equation, target, x, whole)
            return jnp.einsum(
                equation,
                x,
                whole,
                out_sharding=target,
                precision=self.precision,
                preferred_element_type=self.dtype,
            )

        if self.remat == "none":
            multiply = jax.checkpoint(multiply, prevent_cse=False)
        y = multiply(x, w)
        # The barrier separates, in the backward pass, the gather of this result's gradient from the
        # residual stream's gradient. Without it XLA takes both from one gather and turns the slice
        # of it into a collective-permute without any pairs, that is, zeros (XLA of jax 0.10.2).
        return jax.lax.optimization_barrier(reshard(y, self.spec(*out))) if summed else y


@jax.custom_vjp
def tied(weights: Any, x: jax.Array) -> Any:
    """The weights, but not before `x`: so nothing made of them alone can leave a loop."""
    return jax.lax.optimization_barrier((weights, x))[0]


# Not the barrier's own derivative: the gradient of x would wait for that of the weights.
tied.defvjp(lambda weights, x: (tied(weights, x), None), lambda _, gradient: (gradient, None))


def axes_of(x: jax.Array) -> frozenset[str]:
    """Mesh axes that cut `x`."""
    return named(jax.typeof(x).sharding.spec.partitions)
