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

A group is a box of chips, evenly spaced along each dimension, as axes of a mesh are; every k-th
chip of a ring shares its links with k - 1 other groups. Other groups are refused.
"""

import math
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from scaling.collectives.algorithms import LinkLoad, rounds
from scaling.meshes.errors import InputError
from scaling.meshes.torus import TorusGrid, shape_text
from scaling.program.ir import CollectiveKind


class NoBox(InputError):
    """Groups of a mesh that lie on a torus as nobody prices them."""


NOTHING = LinkLoad(0.0, min_share=0.0, torus_hops=0.0)


@dataclass(frozen=True)
class _Box:
    """The chips of a group in a slice: every `step`-th along each dimension."""

    step: tuple[int, ...]
    count: tuple[int, ...]
    ring: tuple[bool, ...]  # whether the chips along the dimension close into a ring
    users: tuple[int, ...]  # groups that share its links

    @property
    def links(self) -> dict[int, float]:
        """Links of a chip in each dimension that is spanned, shared with other groups."""
        spanned = (dim for dim, count in enumerate(self.count) if count > 1)
        return {dim: (2 if self.ring[dim] else 1) / self.users[dim] for dim in spanned}


def torus_load(kind: CollectiveKind, groups: np.ndarray, grid: TorusGrid) -> LinkLoad:
    """The load of a collective, other than a permute, in all groups [groups, ranks] at once."""
    parts = _parts(groups, grid)
    n = parts.shape[1]
    if n == 1:
        return NOTHING
    box = _box(parts, grid)
    share, least = _shares(kind, box, n, groups.shape[1])
    hops = sum(  # half way around every ring, from end to end of every line
        box.step[dim] * (box.count[dim] / 2 if box.ring[dim] else box.count[dim] - 1)
        for dim in box.links
    )
    hops *= rounds(kind)
    return LinkLoad(share, max(box.users), n, min_share=least, torus_hops=hops)


def torus_permute_load(source: np.ndarray, target: np.ndarray, grid: TorusGrid) -> LinkLoad:
    """The load of a permute: dimension by dimension, each the shorter way around.

    Pairs (source, target) in different slices use no link of a slice.
    """
    near = (grid.slices[source] == grid.slices[target]) & (source != target)
    source, target = source[near], target[near]
    if source.size == 0:
        return NOTHING
    links, hops = _crossed(source, target, grid, tuple(range(len(grid.shape))))
    busiest = int(np.unique(links, axis=0, return_counts=True)[1].max())
    # a message goes one way; over all links of its chips at once it could not be faster than this
    positions, shape = grid.positions, np.array(grid.shape)
    at_ends = (positions == 0).astype(int) + (positions == shape - 1)
    one_way = (2 - np.where(np.array(grid.closed), 0, at_ends)).clip(0).sum(axis=1)  # of each chip
    least = 1 / float(one_way[np.concatenate([source, target])].min())
    return LinkLoad(float(busiest), busiest, 2, min_share=least, torus_hops=float(hops.max()))


def split_permute_share(source: np.ndarray, target: np.ndarray, grid: TorusGrid) -> float:
    """The share of a permute whose messages are split evenly over all orders of the dimensions.

    A pair that differs in k dimensions so uses k ways without a common link: 1 / k.
    """
    near = (grid.slices[source] == grid.slices[target]) & (source != target)
    if not near.any():
        return 0.0
    orders = list(permutations(range(len(grid.shape))))
    links = [_crossed(source[near], target[near], grid, order)[0] for order in orders]
    counts = np.unique(np.concatenate(links), axis=0, return_counts=True)[1]
    return float(counts.max()) / len(orders)


def _crossed(
    source: np.ndarray, target: np.ndarray, grid: TorusGrid, order: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Links that pairs cross, dimension by dimension in an order, and the hops of each pair.

    A row for each link of each pair: dimension, slice, direction, position.
    """
    at, goal, slices = grid.positions[source].copy(), grid.positions[target], grid.slices[source]
    hops, links = np.zeros(len(at), int), []
    for dim in order:
        size, steps = grid.shape[dim], goal[:, dim] - at[:, dim]
        if grid.closed[dim]:
            steps = (steps + size // 2) % size - size // 2
        length = np.abs(steps)
        pair = np.repeat(np.arange(len(at)), length)  # one entry per link that a pair crosses
        crossed = np.arange(len(pair)) - np.repeat(np.cumsum(length) - length, length)
        here = at[pair].copy()
        here[:, dim] = (here[:, dim] + np.sign(steps)[pair] * crossed) % size
        along = np.full(len(pair), dim)
        links.append(np.column_stack([along, slices[pair], steps[pair] > 0, here]))
        hops += length
        at[:, dim] = goal[:, dim]
    return np.concatenate(links), hops


def _parts(groups: np.ndarray, grid: TorusGrid) -> np.ndarray:
    """The members of each group in each slice, as many in all: device ids [parts, members]."""
    ordered = np.sort(groups, axis=1)
    slices = grid.slices[ordered]
    counts = np.bincount(slices[0])
    n = int(counts.max())
    parts = ordered.reshape(-1, n) if groups.shape[1] % n == 0 else ordered
    inside = grid.slices[parts]
    if (inside != inside[:, :1]).any():
        raise _refused("not as many chips of a group in every slice", grid)
    return parts


def _box(parts: np.ndarray, grid: TorusGrid) -> _Box:
    """The box that every part is, but for where it lies."""
    positions = grid.positions[parts]  # [parts, members, dims]
    offsets = positions - positions.min(axis=1, keepdims=True)
    codes = np.sort(np.ravel_multi_index(tuple(np.moveaxis(offsets, 2, 0)), grid.shape), axis=1)
    if (codes != codes[0]).any():
        raise _refused("groups of different forms", grid)
    axes = [np.unique(offsets[0, :, dim]) for dim in range(len(grid.shape))]
    count = tuple(len(axis) for axis in axes)
    step = tuple(int(axis[1]) if len(axis) > 1 else 1 for axis in axes)
    even = all((np.diff(axis) == s).all() for axis, s in zip(axes, step, strict=True))
    if not even or math.prod(count) != parts.shape[1]:
        raise _refused("a group that is no box of evenly spaced chips", grid)
    dims = range(len(count))
    ring = tuple(grid.closed[dim] and count[dim] * step[dim] == grid.shape[dim] for dim in dims)
    return _Box(step, count, ring, tuple(min(s, len(parts)) for s in step))


def _refused(what: str, grid: TorusGrid) -> NoBox:
    return NoBox(
        f"{what} on a slice of {shape_text(grid.shape)} chips cannot be priced: choose axis sizes "
        "that divide the dimensions of the slice, so that every axis is a line, a ring or a box"
    )


def _shares(kind: CollectiveKind, box: _Box, n: int, ranks: int) -> tuple[float, float]:
    """Bytes over the busiest link as the shards pass, and at least, per byte of the call.

    A group has n members in the box, one slice, and `ranks` in all slices; not for a permute.
    """
    width, lacking = sum(box.links.values()), 1 - 1 / n
    if kind == "broadcast":
        return 1 / width, 1 / width
    if kind == "all-to-all":
        # through the middle of a line of X chips go the bytes of floor(X^2/4) of its pairs
        middles = [
            n / ranks * (box.count[dim] ** 2 // 4) / box.count[dim] / links
            for dim, links in box.links.items()
        ]
        share = max((n - 1) / ranks / width, *middles)
        return share, share
    # X/2 steps of whole shards in a ring; the last of them could be split between both directions
    passed = 1.0 if any(box.ring[dim] for dim in box.links) else lacking
    return rounds(kind) * passed / width, rounds(kind) * lacking / width
