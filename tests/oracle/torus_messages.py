"""All-gathers on a torus written out: rings and lines of every dimension, part by part.

    part 1   all lines along x, then along y    each chip passes on all that it has by then
    part 2   all lines along y, then along x    parts so large that x and y carry as much

    ring     a shard goes both ways, half around; of several dimensions, the last step of an even
             ring is split between both ways: the book's idealisation
    line     every shard goes to both ends

A reduce-scatter is an all-gather backwards: what was passed on is added up instead. The closed form
is `collectives.torus`, after "How to Scale Your Model", chapter on sharded matrices (jax-ml/
scaling-book, sharding.md, 2026-06); that each part takes the dimensions in another order is this
project's way to do what the book supposes, that all dimensions work at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from scaling.meshes.cluster import Cluster, torus_shape
from scaling.meshes.errors import InputError
from scaling.meshes.torus import coordinates, wraparound
from scaling.program.ir import CollectiveKind
from tests.oracle.messages import Plan

Place = tuple[int, ...]  # coordinates of a chip
Waits = dict[Place, list[int]]  # of each chip, sends


@dataclass(frozen=True, eq=False)
class Box:
    """The members of a group in one slice: a grid of its chips."""

    shape: Place  # chips of the slice
    closed: tuple[bool, ...]  # dimensions with wraparound links
    device: dict[Place, int]  # of every chip of the slice
    along: tuple[tuple[int, ...], ...]  # coordinates of the members, by dimension

    @property
    def spanned(self) -> list[int]:
        """Dimensions with more than one member."""
        return [dim for dim, places in enumerate(self.along) if len(places) > 1]

    @property
    def places(self) -> list[Place]:
        """All members."""
        return list(product(*self.along))

    def is_ring(self, dim: int) -> bool:
        """Whether the members of a row lie evenly around a closed dimension."""
        places = self.along[dim]
        gaps = zip(places, (*places[1:], places[0]), strict=True)
        return self.closed[dim] and len({(b - a) % self.shape[dim] for a, b in gaps}) == 1

    def rows(self, dim: int) -> list[list[Place]]:
        """Members in order along one dimension, for all places in the others."""
        firsts = product(*(ps[:1] if d == dim else ps for d, ps in enumerate(self.along)))
        return [[_moved(at, dim, place) for place in self.along[dim]] for at in firsts]

    def walk(self, source: Place, dim: int, steps: int) -> tuple[Place, ...]:
        """The chips from `source` so many signed steps along a dimension, both ends included."""
        way = 1 if steps >= 0 else -1
        ahead = (source[dim] + way * k for k in range(abs(steps) + 1))
        return tuple(_moved(source, dim, place % self.shape[dim]) for place in ahead)


@dataclass(frozen=True)
class Hop:
    """A send along a row, with waits for others of its list."""

    way: tuple[Place, ...]  # chips from the first to the last
    bytes: float
    after: tuple[int, ...]  # places in the list
    queue: tuple[object, ...]


def slice_box(cluster: Cluster, group: Sequence[int]) -> Box:
    """All chips of the slice that a group is in; InputError if it is in several."""
    assert cluster.torus is not None
    shape = torus_shape(cluster)
    first = min(group) // prod(shape) * prod(shape)
    if max(group) >= first + prod(shape):
        raise InputError(f"{cluster.name}: collectives over several slices are not played")
    device = {coordinates(cluster.torus, shape, k): first + k for k in range(prod(shape))}
    along = tuple(tuple(range(size)) for size in shape)
    return Box(shape, wraparound(cluster.torus, shape), device, along)


def box_of(cluster: Cluster, group: Sequence[int]) -> Box:
    """The grid of a group; InputError if its members are in several slices, or no grid."""
    whole, members = slice_box(cluster, group), {int(d) for d in group}
    places = [at for at, number in whole.device.items() if number in members]
    along = tuple(tuple(sorted({at[dim] for at in places})) for dim in range(len(whole.shape)))
    if prod(map(len, along)) != len(members):
        raise InputError(
            f"{cluster.name}: of groups only grids of chips are played; these {len(members)} lie "
            f"in a box of {prod(map(len, along))}"
        )
    return replace(whole, along=along)


def add_gathers(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """An all-gather, a reduce-scatter, or both of an all-reduce; all parts, slice by slice."""
    box = box_of(plan.cluster, group)
    for order, weight in parts_of(box):
        for _ in range(slices):
            hops = _gathered(box, order, bytes * weight / slices / len(group))
            ends: Waits = {}
            if kind != "all-gather":
                ends = _emit(plan, box, backwards(hops), (order, "scatter"), ends)
            if kind != "reduce-scatter":
                _emit(plan, box, hops, (order, "gather"), ends)


def parts_of(box: Box) -> list[tuple[tuple[int, ...], float]]:
    """Orders of the dimensions, and the fraction of the array that takes each.

    Of each cyclic order so much that the busiest links of all dimensions carry as much; equal
    fractions where no such mixture exists.
    """
    dims = box.spanned
    orders = [tuple(dims[k:] + dims[:k]) for k in range(len(dims))]
    # Unknown are the fractions and the load that all dimensions have in common.
    rows = [[*(_load(box, order, dim) for order in orders), -1.0] for dim in dims]
    rows.append([*[1.0] * len(dims), 0.0])
    found = np.linalg.solve(np.array(rows), [*[0.0] * len(dims), 1.0])[:-1]
    if found.min() < 0:
        found = np.full(len(dims), 1 / len(dims))
    return list(zip(orders, found.tolist(), strict=True))


def _load(box: Box, order: Sequence[int], dim: int) -> float:
    """Shards over the busiest link of a dimension of what takes the dimensions in that order."""
    before = prod(len(box.along[d]) for d in order[: order.index(dim)])
    return before * (len(box.along[dim]) - 1) / (2 if box.is_ring(dim) else 1)


def _gathered(box: Box, order: Sequence[int], shard: float) -> list[Hop]:
    """One slice of one part: dimension by dimension, every chip passes on all that it has."""
    hops: list[Hop] = []
    held: Waits = {at: [] for at in box.places}  # what brought what a chip has
    for dim in order:
        arrived: Waits = {at: [] for at in held}
        for row in box.rows(dim):
            for way in (1, -1):
                _pass_on(hops, box, row, dim, way, shard, held, arrived)
        held = {at: held[at] + arrived[at] for at in held}
        shard *= len(box.along[dim])
    return hops


def _pass_on(
    hops: list[Hop],
    box: Box,
    row: Sequence[Place],
    dim: int,
    way: int,
    block: float,
    held: Waits,
    arrived: Waits,
) -> None:
    """The blocks of all chips of a row, one way around a ring, or to one end of a line."""
    count, ring, split = len(row), box.is_ring(dim), _is_split(box, dim)
    reach = count - 1
    if ring:
        reach = count // 2 if way == 1 or split else (count - 1) // 2
    got = {i: held[at] for i, at in enumerate(row)}
    for distance in range(1, reach + 1):
        size = block / 2 if split and distance == reach else block
        passed = {}
        for i, waits in got.items():
            if not ring and not 0 <= i + way < count:
                continue  # the end of the line
            j = (i + way) % count
            steps = (row[j][dim] - row[i][dim]) * way % box.shape[dim]
            chips = box.walk(row[i], dim, way * steps)
            passed[j] = [len(hops)]
            arrived[row[j]].append(len(hops))
            hops.append(Hop(chips, size, tuple(waits), (dim, way, row[i])))
        got = passed


def _is_split(box: Box, dim: int) -> bool:
    """Whether the shards from the far side of a ring come half from either way."""
    return box.is_ring(dim) and len(box.along[dim]) % 2 == 0 and len(box.spanned) > 1


def backwards(hops: Sequence[Hop]) -> list[Hop]:
    """The same backwards in time and in space."""
    last = len(hops) - 1
    waits: list[list[int]] = [[] for _ in hops]
    for number, hop in enumerate(hops):
        for earlier in hop.after:
            waits[last - earlier].append(last - number)
    turned = [replace(hop, way=hop.way[::-1]) for hop in reversed(hops)]
    return [replace(hop, after=tuple(found)) for hop, found in zip(turned, waits, strict=True)]


def _emit(
    plan: Plan, box: Box, hops: Sequence[Hop], phase: tuple[object, ...], ready: Waits
) -> Waits:
    """Adds the sends to the plan; returns those that nobody here waits for, by their target.

    Args:
        ready: of each chip, the sends of the plan after which it begins.
    """
    numbers: list[int] = []
    waited = {earlier for hop in hops for earlier in hop.after}
    ends: Waits = {at: [] for at in box.places}
    for number, hop in enumerate(hops):
        source, *by, target = (box.device[place] for place in hop.way)
        waits = [numbers[k] for k in hop.after] or ready.get(hop.way[0], [])
        queue = (*phase, *hop.queue)
        numbers.append(plan.send(source, target, hop.bytes, waits, queue, tuple(by)))
        if number not in waited:
            ends[hop.way[-1]].append(numbers[-1])
    return ends


def _moved(at: Place, dim: int, place: int) -> Place:
    return (*at[:dim], place, *at[dim + 1 :])
