"""`jax.shard_map` in code that is written for one pipeline stage and runs under a vmap over all.

A `shard_map` inside such a vmap would be manual over all axes but `stage`, which XLA is not
dependable with: an all-gather over `data` beside a collective-permute was seen with jax 0.10.2. So
what the vmap means is spelled out: one `shard_map` over all axes, whose arrays have a dimension
more, that `stage` cuts into ones.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jax.sharding import PartitionSpec as P

from scaling.meshes.rules import Rules

AXIS = "stage"


def stage_map(
    rules: Rules,
    f: Callable,
    in_specs: Any,
    out_specs: Any,
    check_vma: bool = True,
    alone: Callable | None = None,
) -> Callable:
    """As `jax.shard_map` over all mesh axes; in a pipeline, for code that runs on each stage.

    Args:
        rules: say whether there are stages.
        f: of one device's parts of arrays.
        in_specs: a spec for every array of the arguments, in trees like them, without `stage`.
        out_specs: of the results, likewise; a None stands for no array.
        check_vma: see `jax.shard_map`.
        alone: as for `spelled_out`; None: a `shard_map` says it, which takes no weights whose
            gradients stay partial.
    """
    plain = jax.shard_map(f, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
    if not rules.axes("layers"):
        return plain

    def on_stages(batched: Any, *args: Any) -> Any:
        def local(*args: Any) -> Any:
            own = jax.tree.map(lambda x, on: x[0] if on else x, args, batched)
            return jax.tree.map(lambda y: y[None], f(*own))

        specs = _map(lambda spec, on: with_stages(spec) if on else spec, in_specs, batched)
        out = _map(with_stages, out_specs)
        return jax.shard_map(local, in_specs=specs, out_specs=out, check_vma=check_vma)(*args)

    return spelled_out(alone or (lambda *args: plain(*args)), on_stages)


def spelled_out(alone: Callable, on_stages: Callable) -> Callable:
    """A function of one stage's arrays that is given as one of all stages'.

    Args:
        alone: only says which arrays come out.
        on_stages: which of its arguments have a dimension for the stages in front (booleans in
            trees like them), and the arguments, to results that all have it.
    """
    call = custom_vmap(alone)

    @call.def_vmap
    def rule(stages: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        result = on_stages(tuple(batched), *args)
        return result, jax.tree.map(lambda _: True, result)

    return call


def with_stages(spec: P) -> P:
    """The spec of one array for each stage, stacked."""
    return P(AXIS, *spec.partitions, unreduced=spec.unreduced, reduced=spec.reduced)


def _map(f: Callable, specs: Any, *trees: Any) -> Any:
    return jax.tree.map(f, specs, *trees, is_leaf=lambda leaf: isinstance(leaf, P))
