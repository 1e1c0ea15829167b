"""A scan over layers whose attention differs in turn, such as five with a window and one without.

The stack [L, ...] is scanned as [L / p, p, ...] for a pattern of p layers, whose bodies follow each
other in one iteration: so compile time grows with the pattern, not with the layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from scaling.models.config import ModelConfig
from scaling.models.execution import spec_of
from scaling.models.pipeline.shard_map import on_shards

Layer = Callable[[Any, Any], tuple[Any, Any]]  # the body of a scan


def scan_layers(
    layer: Callable[[ModelConfig], Layer], kinds: Sequence[ModelConfig], carry: Any, stack: Any
) -> tuple[Any, Any]:
    """`jax.lax.scan` of `layer(kind)` over a stack whose rows are of `kinds` in turn.

    The rows are whole patterns, or fewer than one, which are of the first kinds.
    """
    rows = jax.tree.leaves(stack)[0].shape[0]
    kinds = kinds[:rows]
    if len(kinds) == 1:
        return jax.lax.scan(layer(kinds[0]), carry, stack)

    def body(carry: Any, group: Any) -> tuple[Any, Any]:
        results = []
        for place, kind in enumerate(kinds):
            one = jax.tree.map(lambda x, place=place: x[place], group)
            carry, result = layer(kind)(carry, one)
            results.append(result)
        return carry, jax.tree.map(lambda *rows: jnp.stack(rows), *results)

    groups = jax.tree.map(lambda x: _in_groups(x, len(kinds)), stack)
    carry, results = jax.lax.scan(body, carry, groups)
    return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)


def _in_groups(x: jax.Array, size: int) -> jax.Array:
    """A stack [L, ...] as [L / size, size, ...]; nothing moves.

    On shards, because jax 0.10.2 does not reshape weights that are marked `reduced`.
    """
    stored = spec_of(x)
    entries: list[Any] = [*stored.partitions, *[None] * (x.ndim - len(stored.partitions))]
    first, *rest = entries
    spec = P(first, None, *rest, unreduced=stored.unreduced, reduced=stored.reduced)
    return on_shards(lambda x: x.reshape(-1, size, *x.shape[1:]), stored, spec, x)
