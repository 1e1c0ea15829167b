"""Collectives on a torus: a group uses the rings and lines of the dimensions that it spans.

    0 > 1 > 2 > 3 >+   a ring of X chips passes shards both ways: X/2 steps, 2 links per chip
    < 0 < 1 < 2 < 3    a line has no wraparound link: X - 1 steps, 1 link at its ends

    share of the call's V bytes on the busiest link, one direction; n members in the slice
      all-gather, reduce-scatter   1 / (2 M)           M rings at once; all-reduce twice
                                   (n-1) / n / L       L lines; rings and lines 1 / (2 M + L)
      all-to-all                   X/8 of a ring, X/4 of a line, of what one chip sends; the longest
      broadcast                    1 / (2 M + L)       permute  each pair by its shortest way

With a link of W/2 bytes/s each way these are V/(W M), V (X-1)/(X W/2), and V max(A, B ..)/(4 N W)
with V of all N chips: "How to Scale Your Model", chapter on sharded matrices, collectives and its
problem 10 (jax-ml/scaling-book, sharding.md, 2026-06). That several dimensions work at once is the
book's idealisation: each carries a part of the array, in proportion to its links. Rings and lines
together, and lines in several dimensions, are this project's reading of the same rule.

A group that is no grid of chips, evenly spaced, has the links of the smallest box around it. Groups
that use the same links share them evenly: every second chip of a ring, or boxes that overlap. To be
joined, n scattered members of a box of C chips need about (n/C)^(1 - 1/D) of the links in its D
dimensions, as a minimum spanning tree does (Steele, "Growth rates of Euclidean minimal spanning
trees with power weighted edges", Annals of Probability 16, 1988); for an all-to-all n/C of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.collectives.algorithms import rounds
from scaling.collectives.contention import changes, classes, lengths
from scaling.collectives.skew import fractions
from scaling.meshes.cluster import Cluster
from scaling.meshes.levels import levels
from scaling.meshes.torus import TorusGrid
from scaling.program.ir import CollectiveKind


@dataclass(frozen=True)
class GridShare:
    """What a collective puts on the busiest link of a slice."""

    share: float  # bytes over it, one direction, per byte of the call
    least: float  # the same, by an algorithm that splits every shard between both ways of a ring
    groups: int  # that share the link
    members: int  # of one group in one slice, at most
    hops: float  # from chip to chip, that wait for one another


@dataclass(frozen=True)
class _Form:
    """The chips of one group in one slice, but for where: every step-th along each dimension."""

    step: tuple[int, ...]
    count: tuple[int, ...]
    members: int

    @property
    def filled(self) -> float:
        """Fraction of its places that are members: 1 of a grid."""
        return self.members / math.prod(self.count)


# The form of boxes around groups -> of each such box its slice and lowest corner, [boxes, 1 + dims]
_Boxes = dict[_Form, np.ndarray]


def grid_of(cluster: Cluster) -> TorusGrid:
    """The grid of a cluster with a torus."""
    grid = levels(cluster)[0].grid
    assert grid is not None
    return grid


def groups_along(grid: TorusGrid, dims: Sequence[int]) -> np.ndarray:
    """Device ids [groups, members]: the rings or planes that span `dims` of every slice.

    groups_along(grid, [0]) of two slices of 4x4x4: 32 groups of 4 chips.
    """
    kept = [dim for dim in range(len(grid.shape)) if dim not in dims]
    keys = np.stack([grid.slices, *(grid.positions[:, dim] for dim in kept)])
    _, number = np.unique(keys, axis=1, return_inverse=True)
    members = int(np.prod([grid.shape[dim] for dim in dims]))
    return np.argsort(number, kind="stable").reshape(-1, members)


def grid_share(
    kind: CollectiveKind, groups: np.ndarray, grid: TorusGrid, skew: float = 1.0
) -> GridShare:
    """The load of a collective, other than a permute, in all groups [groups, members] at once."""
    boxes = _boxes(groups, grid)
    if not boxes:
        return GridShare(0.0, 0.0, 0, 1, 0.0)
    users, members = _users(kind, boxes, grid), groups.shape[1]
    if kind == "all-to-all":
        shares = [_exchanged(form, grid, users, *fractions(skew, members)) for form in boxes]
    else:
        shares = [_share(kind, form, grid, users) for form in boxes]
    return GridShare(
        max(share for share, _ in shares),
        max(least for _, least in shares),
        round(max(users)),
        max(form.members for form in boxes),
        max(_hops(kind, form, grid) for form in boxes),
    )


def _boxes(groups: np.ndarray, grid: TorusGrid) -> _Boxes:
    """What every group has in every slice, where it has two chips or more; alike ones together."""
    slices = grid.slices[groups]
    keys = slices + (int(slices.max()) + 1) * np.arange(len(groups))[:, None]
    order = np.argsort(keys, axis=None, kind="stable")
    first = np.flatnonzero(changes(keys.ravel()[order]))
    counts, devices = lengths(first, order.size), groups.ravel()[order]
    found: _Boxes = {}
    for members in sorted(set(counts.tolist()) - {1}):
        starts = first[counts == members]
        alike = devices[starts[:, None] + np.arange(members)]
        found |= _boxes_of(grid.positions[alike], grid.slices[alike[:, 0]], grid)
    return found


def _boxes_of(places: np.ndarray, slices: np.ndarray, grid: TorusGrid) -> _Boxes:
    """Boxes of equally large groups: places [groups, members, dims].

    A scattered group over more than half of a ring has all of it: the shorter way leads around.
    """
    members = places.shape[1]
    low, high = places.min(axis=1), places.max(axis=1)
    count = 1 + np.count_nonzero(np.diff(np.sort(places, axis=1), axis=1), axis=1)
    step = np.maximum(1, (high - low) // np.maximum(1, count - 1))
    on_grid = (places - low[:, None]) % step[:, None] == 0
    even = (low + step * (count - 1) == high) & on_grid.all(axis=1)
    even = even.all(axis=1) & (count.prod(axis=1) == members)
    step = np.where(even[:, None], step, 1)
    count = np.where(even[:, None], count, high - low + 1)
    around = ~even[:, None] & np.array(grid.closed) & (2 * count > np.array(grid.shape))
    low, count = np.where(around, 0, low), np.where(around, np.array(grid.shape), count)
    corners = np.column_stack([slices, low])
    number, examples = classes(np.hstack([step, count]).T)
    return {
        _Form(tuple(step[one].tolist()), tuple(count[one].tolist()), members): corners[number == k]
        for k, one in enumerate(examples)
    }


def _is_ring(form: _Form, dim: int, grid: TorusGrid) -> bool:
    return grid.closed[dim] and form.count[dim] * form.step[dim] == grid.shape[dim]


def _users(kind: CollectiveKind, boxes: _Boxes, grid: TorusGrid) -> list[float]:
    """For each dimension, the most groups that use one of its links; at least one does."""
    used = [np.zeros(len(grid.positions)) for _ in grid.shape]
    for form, corners in boxes.items():
        spanned = sum(count > 1 for count in form.count)
        needed = form.filled ** (1 if kind == "all-to-all" else 1 - 1 / spanned)
        for dim in range(len(grid.shape)):
            links = _links(form, corners, dim, grid)
            used[dim] += needed * np.bincount(links, minlength=len(grid.positions))
    return [max(1.0, float(links.max())) for links in used]


def _links(form: _Form, corners: np.ndarray, dim: int, grid: TorusGrid) -> np.ndarray:
    """Numbers of the links along one dimension that boxes use: each by the chip that it leaves."""
    found = corners[:, :1]  # [boxes, chips of a box]
    for d, size in enumerate(grid.shape):
        low, step, count = corners[:, d + 1 : d + 2], form.step[d], form.count[d]
        if d != dim:
            along = low + step * np.arange(count)
        elif _is_ring(form, d, grid):
            along = np.broadcast_to(np.arange(size), (len(corners), size))
        else:
            along = low + np.arange(step * (count - 1))
        found = (found[:, :, None] * size + along[:, None, :]).reshape(len(corners), -1)
    return found.ravel()


def _widths(form: _Form, grid: TorusGrid, users: list[float]) -> dict[int, float]:
    """Links of a chip along each dimension that is spanned, shared with other groups."""
    spanned = [dim for dim, count in enumerate(form.count) if count > 1]
    return {dim: (2 if _is_ring(form, dim, grid) else 1) / users[dim] for dim in spanned}


def _share(
    kind: CollectiveKind, form: _Form, grid: TorusGrid, users: list[float]
) -> tuple[float, float]:
    """Bytes over the busiest link as the shards pass, and at least; no all-to-all."""
    widths = _widths(form, grid, users)
    lacking, width = 1 - 1 / form.members, sum(widths.values())
    scattered = lacking / (2 * len(grid.shape))  # at least: over all links of a chip
    if kind == "broadcast":
        return 1 / width, 1 / width if form.filled == 1 else scattered
    # X/2 steps of whole shards in a ring; the last of them could be split between both ways
    passed = 1.0 if any(_is_ring(form, dim, grid) for dim in widths) else lacking
    least = lacking / width if form.filled == 1 else scattered
    return rounds(kind) * passed / width, rounds(kind) * least


def _exchanged(
    form: _Form, grid: TorusGrid, users: list[float], busiest: float, others: float
) -> tuple[float, float]:
    """Bytes over the busiest link of an all-to-all, and at least.

    Everybody sends `others` to everybody, and what the busiest receiver gets beyond that comes in
    over all its links alike, in a corner of the box. Into each side of a line or ring go the bytes
    of the chips `behind` it.

    Args:
        busiest, others: of what a member sends, to the one and to each of the others.
    """
    widths, n = _widths(form, grid, users), form.members
    width = sum(widths.values())
    shares, middles = [], []
    for dim, links in widths.items():
        size = form.count[dim]
        behind = np.arange(1, size)
        even = n * others * behind * (size - behind) / size / links
        apart = (busiest - others) / links * behind  # spread over the lines side by side
        joined = np.maximum(apart, (busiest - others) * (n - 1) / width * behind / (size - 1))
        ring = _is_ring(form, dim, grid)
        shares.append(even.max() + joined.max() if ring else (even + joined).max())
        middles.append((even + apart).max())
    if form.filled < 1:
        least = (n - 1) * busiest / (2 * len(grid.shape))  # over all links of a chip
    else:
        least = max((n - 1) * busiest / width, *middles)
    return float(max(*shares, least)), float(least)


def _hops(kind: CollectiveKind, form: _Form, grid: TorusGrid) -> float:
    """Half way around every ring, from end to end of every line."""
    lengths = [
        step * (count / 2 if _is_ring(form, dim, grid) else count - 1)
        for dim, (step, count) in enumerate(zip(form.step, form.count, strict=True))
        if count > 1
    ]
    return rounds(kind) * sum(lengths)
