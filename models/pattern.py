"""A scan over layers whose attention differs in turn, such as five with a window and one without.

The stack [L, ...] is scanned as [L / p, p, ...] for a pattern of p layers, whose bodies follow each
other in one iteration: so compile time grows with the pattern, not with the layers.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from scaling.models.accounting.matrices import LayerStack
from scaling.models.config import ModelConfig
from scaling.models.execution import spec_of
from scaling.models.pipeline.shard_map import on_shards

Layer = Callable[[Any, Any], tuple[Any, Any]]  # the body of a scan


def scan_layers(
    layer: Callable[[ModelConfig], Layer],
    kinds: Sequence[ModelConfig],
    carry: Any,
    *stacks: Any,
    places: Sequence[int] = (),
) -> tuple[Any, list[Any]]:
    """`jax.lax.scan` of `layer(kind)` over stacks whose layers are of `kinds` in turn; the results
    of each stack.

    The rows of a single stack are whole patterns, or fewer than one, which are of the first kinds.
    With several stacks, `places` has the number of the stack of each layer of a pattern.
    """
    rows = jax.tree.leaves(stacks[0])[0].shape[0]
    places = places or (0,) * min(rows, len(kinds))
    in_groups = lambda size: lambda x: _in_groups(x, size) if len(places) > 1 else x
    groups = [jax.tree.map(in_groups(places.count(i)), stack) for i, stack in enumerate(stacks)]
    return scan_patterns(layer, kinds, carry, *groups, places=places)


def scan_patterns(
    layer: Callable[[ModelConfig], Layer],
    kinds: Sequence[ModelConfig],
    carry: Any,
    *stacks: Any,
    places: Sequence[int],
) -> tuple[Any, list[Any]]:
    """The same of stacks [L / p, p, ...]; [L, ...] where all layers are alike."""
    if len(places) == 1:
        carry, results = jax.lax.scan(layer(kinds[0]), carry, stacks[0])
        return carry, [results]

    def body(carry: Any, groups: Any) -> tuple[Any, Any]:
        results: list[list[Any]] = [[] for _ in stacks]
        for place, number in enumerate(places):
            row = len(results[number])
            one = jax.tree.map(operator.itemgetter(row), groups[number])
            carry, result = layer(kinds[place % len(kinds)])(carry, one)
            results[number].append(result)
        return carry, [jax.tree.map(lambda *rows: jnp.stack(rows), *each) for each in results]

    carry, results = jax.lax.scan(body, carry, stacks)
    return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), results)


def scan_places(config: ModelConfig, stacks: Sequence[LayerStack]) -> tuple[int, ...]:
    """`places` of `scan_layers` for stacks that are scanned together (`layer_scans`)."""
    layers = range(config.pattern_length) if len(stacks) > 1 else ()
    return tuple(next(n for n, stack in enumerate(stacks) if i in stack.layers) for i in layers)


def _in_groups(x: jax.Array, size: int) -> jax.Array:
    """A stack [L, ...] as [L / size, size, ...]; nothing moves.

    On shards, because jax 0.10.2 does not reshape weights that are marked `reduced`.
    """
    stored = spec_of(x)
    entries: list[Any] = [*stored.partitions, *[None] * (x.ndim - len(stored.partitions))]
    first, *rest = entries
    spec = P(first, None, *rest, unreduced=stored.unreduced, reduced=stored.reduced)
    return on_shards(lambda x: x.reshape(-1, size, *x.shape[1:]), stored, spec, x)
