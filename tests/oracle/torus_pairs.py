"""What goes straight on a torus written out: permutes and all-to-alls; and broadcasts along a row.

    0 > 1 > 2   3   +     one dimension after another, each the shorter way around; where both
    |   |   v   |         are as long, a permute goes down, an all-to-all half each way
    4   5   6   7   +

The closed forms are `scaling.collectives.torus_permutes` and `scaling.collectives.torus`.
"""

from collections.abc import Sequence
from itertools import permutations, product

from scaling.collectives.skew import fractions
from scaling.meshes.errors import InputError
from tests.oracle.messages import Plan
from tests.oracle.torus_messages import Box, Place, box_of, slice_box


def add_pairs(plan: Plan, bytes: float, group: Sequence[int]) -> None:
    """A permute: a pair, or a ring in which each member sends to the next."""
    box = slice_box(plan.cluster, group)
    place = {number: at for at, number in box.device.items()}
    targets = [group[1]] if len(group) == 2 else [*group[1:], group[0]]
    for source, target in zip(group, targets, strict=False):
        if source != target:
            ways = ways_between(box, place[int(source)], place[int(target)])
            plan.send(int(source), int(target), bytes, by=_by(box, ways[-1]))


def add_exchange(plan: Plan, bytes: float, group: Sequence[int], skew: float) -> None:
    """An all-to-all: everyone to everyone at once."""
    box = box_of(plan.cluster, group)
    busiest, others = fractions(skew, len(group))
    for a, b in permutations(box.places, 2):
        source, target = box.device[a], box.device[b]
        share = bytes * (busiest if target == int(group[0]) else others)
        ways = ways_between(box, a, b)
        for way in ways:
            plan.send(source, target, share / len(ways), by=_by(box, way))


def ways_between(box: Box, source: Place, target: Place) -> list[tuple[Place, ...]]:
    """All ways that take one dimension after another, each the shorter way around; up first."""
    signed = [
        _shorter(target[dim] - source[dim], size, box.closed[dim])
        for dim, size in enumerate(box.shape)
    ]
    found: list[tuple[Place, ...]] = []
    for steps in product(*signed):
        way: tuple[Place, ...] = (source,)
        for dim, count in enumerate(steps):
            way = (*way, *box.walk(way[-1], dim, count)[1:])
        found.append(way)
    return found


def add_broadcast(plan: Plan, bytes: float, group: Sequence[int], slices: int) -> None:
    """Along a row, both ways around a ring with half each, or from one place to both ends.

    Raises:
        InputError: the group spans several dimensions.
    """
    box = box_of(plan.cluster, group)
    if len(box.spanned) > 1:
        raise InputError(f"{plan.cluster.name}: broadcasts are played along one dimension")
    [dim] = box.spanned
    [row] = box.rows(dim)
    ring, count = box.is_ring(dim), len(row)
    root = next(i for i, at in enumerate(row) if box.device[at] == int(group[0]))
    for way in (1, -1):
        reach = count - 1 if ring else (count - 1 - root if way == 1 else root)
        for _ in range(slices):
            got: list[int] = []
            for i in range(reach):
                a, b = (row[(root + way * k) % count] for k in (i, i + 1))
                steps = (b[dim] - a[dim]) * way % box.shape[dim]
                by = _by(box, box.walk(a, dim, way * steps))
                size = bytes / slices / (2 if ring else 1)
                got = [plan.send(box.device[a], box.device[b], size, got, (way, i), by)]


def _shorter(steps: int, size: int, closed: bool) -> list[int]:
    """Signed steps; two where both ways around are as long."""
    if not closed:
        return [steps]
    up = steps % size
    if 2 * up == size:
        return [up, -up]
    return [up if 2 * up < size else up - size]


def _by(box: Box, way: Sequence[Place]) -> tuple[int, ...]:
    return tuple(box.device[place] for place in way[1:-1])
