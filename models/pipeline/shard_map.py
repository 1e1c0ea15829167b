"""`jax.shard_map` in code that is written for one pipeline stage and runs under a vmap over stages.

A `shard_map` inside such a vmap would be manual over all axes but `stage`, which XLA does not
compile reliably: an all-gather over `data` beside a collective-permute was seen with jax 0.10.2.
So the vmap of such a function is defined here: one `shard_map` over all axes, whose arrays have a
leading dimension that is sharded over `stage`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.sharding import PartitionSpec as P

from scaling.meshes.rules import Rules
from scaling.models.execution import spec_of

STAGE = "stage"  # the mesh axis


def on_shards(f: Callable, in_specs: Any, out_specs: Any, *args: Any) -> Any:
    """`f` of each device's shards of the arguments."""
    return jax.shard_map(f, in_specs=in_specs, out_specs=out_specs)(*args)


def shard_map_per_stage(
    rules: Rules,
    f: Callable,
    in_specs: Any,
    out_specs: Any,
    check_vma: bool = True,
    abstract_impl: Callable | None = None,
) -> Callable:
    """`jax.shard_map` over all mesh axes; in a pipeline, for code that runs once per stage.

    Specs are without `stage`; None stands for no array. `abstract_impl` is that of
    `custom_vmap_rule`; None: a `shard_map`, which takes no weights that are marked `reduced`.
    """
    plain = jax.shard_map(f, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
    if not rules.axes("layers"):
        return plain

    def on_stages(batched: Any, *args: Any) -> Any:
        def local(*args: Any) -> Any:
            own = jax.tree.map(lambda x, on: x[0] if on else x, args, batched)
            return jax.tree.map(lambda y: y[None], f(*own))

        specs = _map(lambda spec, on: stacked_spec(spec) if on else spec, in_specs, batched)
        out = _map(stacked_spec, out_specs)
        return jax.shard_map(local, in_specs=specs, out_specs=out, check_vma=check_vma)(*args)

    return custom_vmap_rule(abstract_impl or (lambda *args: plain(*args)), on_stages)


def custom_vmap_rule(abstract_impl: Callable, on_stages: Callable) -> Callable:
    """A function of one stage's arrays whose vmap over stages is `on_stages`.

    Args:
        abstract_impl: gives results of the right shapes; it is traced, never executed.
        on_stages: takes which arguments have a leading stage dimension (booleans in trees like
            them) and the arguments; all its results have that dimension.
    """
    call = custom_vmap(abstract_impl)

    @call.def_vmap
    def rule(stages: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        result = on_stages(tuple(batched), *args)
        return result, jax.tree.map(lambda _: True, result)

    return call


def take_own(stacked: Any) -> Callable:
    """A function that returns one stage's arrays, inside a vmap over stages, of those stacked.

    It takes any array of the stage. jax 0.10.2 has no vmap whose arguments are marked `reduced`.
    """

    one = lambda x: jnp.zeros(x.shape[1:], x.dtype, out_sharding=P(*spec_of(x).partitions[1:]))
    return custom_vmap_rule(lambda _: jax.tree.map(one, stacked), lambda *_: stacked)


def stacked_spec(spec: P) -> P:
    """The spec of one array per stage, stacked along a leading dimension."""
    return P(STAGE, *spec.partitions, unreduced=spec.unreduced, reduced=spec.reduced)


def _map(f: Callable, specs: Any, *trees: Any) -> Any:
    return jax.tree.map(f, specs, *trees, is_leaf=lambda leaf: isinstance(leaf, P))
