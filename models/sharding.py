"""Products of activations with sharded weights, through jax's explicit shardings.

Fully sharded data parallelism of one matrix product:

    forward   all-gather the weight over the axes that shard its "embed", multiply
    backward  all-gather it again, multiply twice,
              reduce-scatter the weight's gradient over them, all-reduce the shard over data
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import GATHERED, Dims, named
from scaling.models import float8
from scaling.models.execution import Execution, axes_of, spec_of
from scaling.models.partial_sums import in_format
from scaling.models.pipeline.shard_map import shard_map_per_stage
from scaling.models.remat import regathered

JOINED = -2  # dimension along which weights are concatenated
WHOLE = {"stream": "batch", "residual": "sequence"}  # the stream's dimensions inside a block


def gather_weight(
    execution: Execution, w: jax.Array, dims: Dims, token_axes: frozenset[str]
) -> jax.Array:
    """A stored weight in compute format, all-gathered along "embed" or "latent".

    Args:
        w: the weight, stored with `execution.spec(*dims)`, or gathered already
            (`gathers_weights_once`).
        dims: its logical dimensions.
        token_axes: mesh axes that shard the activations it is multiplied with. The gradient arrives
            as one partial sum per device of these axes; it is reduce-scattered over those that
            shard the stored weight, then all-reduced over the others. Both steps are needed: with
            a single reshard XLA all-reduces the whole weight (jax 0.10.2, 2026-11-22).
    """
    rules = execution.rules
    used = rules.spec(*(None if dim in GATHERED else dim for dim in dims))
    stored = used if execution.gathers_weights_once else rules.spec(*dims)
    summed = token_axes - named(used)

    def gather(w: jax.Array) -> jax.Array:
        w = reshard(w, P(*stored, reduced=summed - named(stored)))
        return reshard(w, P(*used, reduced=summed))

    return in_format(execution, execution.dtype, w, gather)


def project(
    execution: Execution,
    equation: str,
    x: jax.Array,
    w: jax.Array | tuple[jax.Array, ...],
    dims: Dims,
    out: Dims,
    partial: bool = False,
    shape: Callable[[Any], Any] = lambda w: w,
) -> jax.Array:
    """The product of an activation and a stored weight, `jnp.einsum(equation, x, w)`.

    Several weights are concatenated along their last dimension but one before they are
    gathered: one all-gather and one product, which reads `x` once.

    Saved for the backward pass: `x` and the stored shard (`scaling.models.remat.regathered`).

    Args:
        equation: for einsum; `x`, in compute format, is first.
        w, dims: a stored weight or several, and their logical dimensions.
        out: logical dimensions of the result.
        shape: of the stored weights makes those that the equation and `dims` are about.
        partial: the contraction runs over `tensor`: partial products are summed over it, which
            with a sequence-parallel `out` is a reduce-scatter.
    """
    token_axes = axes_of(x)
    summed = execution.rules.axes("mlp") if partial else ()
    before_sum = tuple(WHOLE.get(d or "", d) for d in out) if summed else out
    target = P(*execution.rules.spec(*before_sum), unreduced=frozenset(summed))

    def multiply(x: jax.Array, w: jax.Array | tuple[jax.Array, ...]) -> jax.Array:
        w = shape(w)
        if isinstance(w, tuple):
            early = None if execution.reduce == "fp32" else execution.dtype
            w = _joined(execution, [part.astype(early or part.dtype) for part in w])
        gathered = gather_weight(execution, w, dims, token_axes)
        if execution.compute == "fp8":
            return float8.product(execution.rules, equation, target, x, gathered)
        return jnp.einsum(
            equation,
            x,
            gathered,
            out_sharding=target,
            precision=execution.precision,
            preferred_element_type=execution.dtype,
        )

    y = regathered(execution, multiply)(x, w)
    # The barrier separates, in the backward pass, the gather of this result's gradient from the
    # residual stream's gradient. Without it XLA takes both from one gather and turns the slice
    # of it into a collective-permute without any pairs, that is, zeros (jax 0.10.2, 2026-11-22; no
    # issue known).
    return jax.lax.optimization_barrier(reshard(y, execution.spec(*out))) if summed else y


def _joined(execution: Execution, parts: list[jax.Array]) -> jax.Array:
    """Stored weights of one sharding as one, each device's shards concatenated.

    In a `shard_map`, because jax has no vmap over stages of weights that are marked `reduced`
    (0.10.2 and 0.11.2, tried 2026-11-28; no issue known).
    """
    if len(parts) == 1:
        return parts[0]
    spec, join = spec_of(parts[0]), lambda *parts: jnp.concatenate(parts, axis=JOINED)
    specs = (spec,) * len(parts)
    return shard_map_per_stage(execution.rules, join, specs, spec, abstract_impl=join)(*parts)
