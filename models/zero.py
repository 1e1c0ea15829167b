"""ZeRO stages 1 and 2 (arXiv 1910.02054, section 5): weights are gathered once per step.

    stored between steps    float32 weights and the optimiser's state, cut over fsdp, as in stage 3
    held during a step      every matrix whole, in compute format
    gradients, stage 1      whole partial sums, scattered over fsdp after the last microbatch
               stage 2      scattered layer by layer where they arise; shards are summed

So what is stored, and a checkpoint with it, is the same in every stage.

In a pipeline all microbatches are one function: its weights are `met` before its loops, where the
gradients of all ticks are summed, in float32.
"""

import functools
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard
from jax.tree_util import keystr, tree_map_with_path

from scaling.meshes.rules import named
from scaling.models.initializers import is_matrix
from scaling.models.partial_sums import partial_over
from scaling.models.sharding import Layout


def gathered(params: Any, layout: Layout) -> Any | None:
    """The parameters as a step holds them: matrices whole over fsdp, in compute format (routers in
    float32); vectors as they are. None if weights are gathered where they are multiplied."""
    if not layout.gathers_once:
        return None
    axes = layout.rules.axes("embed")

    def gather(path: tuple, param: nnx.Variable) -> nnx.Variable:
        if not is_matrix(param):
            return param
        stored = jax.typeof(param[...]).sharding.spec.partitions
        used = P(*(None if named([entry]) & set(axes) else entry for entry in stored))
        exact = keystr(path, simple=True, separator="/").endswith("router_DE")
        weight = param[...] if exact else param[...].astype(layout.dtype)
        return param.replace(reshard(weight, used))

    with jax.named_scope("gather"):
        return tree_map_with_path(gather, params, is_leaf=_is_variable)


def held(params: Any, whole: Any | None) -> Any:
    """The weights of `whole` with the gradients of `params`: reduce-scattered at this place.

    None stands for `params` themselves.
    """
    if whole is None:
        return params

    def hold(own: nnx.Variable, copy: nnx.Variable) -> nnx.Variable:
        return own.replace(_held(_spec(own), own[...], copy[...])) if is_matrix(own) else own

    return _map(hold, params, whole)


def met(layout: Layout, axes: Iterable[str], params: Any, whole: Any | None) -> tuple[Any, Any]:
    """Both arguments of `held` for weights that a loop uses, whose gradients are partial sums until
    here: over `axes`, and under stage 1 over fsdp as well.

    Args:
        axes: see `partial_over`.
        whole: as `gathered` made them; None: weights are gathered where they are multiplied.
    """
    params = partial_over(params, axes)
    if whole is None:
        return params, None
    whole = partial_over(whole, (*axes, *layout.rules.axes("embed")))
    return _map(_summed, params, whole) if layout.zero == 1 else params, whole


def ends_held(params: Any, whole: Any) -> Any:
    """`held` for all but the layers, which the scan over them holds one at a time (leading dense
    ones of a mixture of experts are few, and held here)."""

    def hold(path: tuple, own: nnx.Variable, copy: nnx.Variable) -> nnx.Variable:
        return own if keystr(path[:1], simple=True) == "layers" else held(own, copy)

    return tree_map_with_path(hold, params, whole, is_leaf=_is_variable)


def scattered(gradients: Any, params: Any) -> Any:
    """Partial sums of whole gradients, as float32 shards like those of `params`."""
    return _map(
        lambda g, own: g.replace(_scattered(g[...], _spec(own)).astype(own[...].dtype)),
        gradients,
        params,
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _held(spec: P, own: jax.Array, whole: jax.Array) -> jax.Array:
    return whole


def _forward(spec: P, own: jax.Array, whole: jax.Array) -> tuple[jax.Array, None]:
    return whole, None


def _backward(spec: P, _: None, gradient: jax.Array) -> tuple[jax.Array, None]:
    return _scattered(gradient, spec).astype(jnp.float32), None


_held.defvjp(_forward, _backward)


def _summed(own: nnx.Variable, copy: nnx.Variable) -> nnx.Variable:
    """What adds up whole gradients for `own`, in float32; nobody reads its values, so XLA keeps
    none."""
    return own.replace(_sums(_spec(own), own[...], copy[...])) if is_matrix(own) else own


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _sums(spec: P, own: jax.Array, whole: jax.Array) -> jax.Array:
    return whole.astype(jnp.float32)


def _sums_forward(spec: P, own: jax.Array, whole: jax.Array) -> tuple[jax.Array, None]:
    return whole.astype(jnp.float32), None


_sums.defvjp(_sums_forward, _backward)


def _scattered(gradient: jax.Array, spec: P) -> jax.Array:
    """A gradient like a stored weight of `spec`: first cut over fsdp, then the shard is summed over
    the other replicas, but for those whose sum the weight leaves for later
    (`models.partial_sums`)."""
    partial = jax.typeof(gradient).sharding.spec.unreduced
    cut = named(spec.partitions)
    shard = reshard(gradient, P(*spec.partitions, unreduced=partial - cut))
    return reshard(shard, P(*spec.partitions, unreduced=spec.reduced))


def _spec(param: nnx.Variable) -> P:
    return jax.typeof(param[...]).sharding.spec


def _map(function: Any, *trees: Any) -> Any:
    return jax.tree.map(function, *trees, is_leaf=_is_variable)


def _is_variable(leaf: Any) -> bool:
    return isinstance(leaf, nnx.Variable)
