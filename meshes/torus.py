"""The torus of a TPU slice: its shape, which dimensions close into rings, who is next to whom.

    0 - 1 - 2 - 3 -+      one dimension of size 4 with a wraparound link: 3 is next to 0
    +--------------+

A slice of n chips gets, of all shapes with n chips that fit into the largest slice and that whole
hosts can tile, (1) one whose every dimension is a multiple of `wrap`, if there is one, and of those
(2) the most cube-like: the smallest sum of dimensions. The first rule is why 192 chips are 4x4x12,
three cubes of 4x4x4, and not 4x6x8.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue


@dataclass(frozen=True)
class Torus:
    """Chips on a grid, each joined to the next one along every dimension."""

    shape: tuple[int, ...]  # chips of the largest slice along each dimension
    host: tuple[int, ...]  # chips of one host along each dimension
    wrap: int  # dimensions of a multiple of this size have wraparound links
    bandwidth: SourcedValue  # bytes/s, one link, one direction
    hop_latency: SourcedValue  # s, from a chip to the next
    wrap_whole: bool = False  # wraparound links only where every dimension is such a multiple

    @property
    def chips(self) -> int:
        """Chips of the largest slice."""
        return math.prod(self.shape)


@dataclass(frozen=True, eq=False)
class TorusGrid:
    """The position of each device of a cluster of TPU slices."""

    positions: np.ndarray  # int [devices, dims], in its slice
    slices: np.ndarray  # int [devices], number of the slice
    shape: tuple[int, ...]  # chips of a slice along each dimension
    closed: tuple[bool, ...]  # which dimensions have wraparound links


@cache
def slice_shape(torus: Torus, chips: int) -> tuple[int, ...]:
    """Shape of the slice of `chips` chips, by the rule above; InputError names the nearest."""
    shapes = _shapes(torus, chips)
    if shapes:
        return min(shapes, key=lambda s: (any(d % torus.wrap for d in s), sum(s), s))
    raise InputError(
        f"no slice of at most {shape_text(torus.shape)} has {chips} chips; "
        f"use {' or '.join(map(str, _nearest(torus, chips)))} chips"
    )


def wraparound(torus: Torus, shape: tuple[int, ...]) -> tuple[bool, ...]:
    """For each dimension of a slice, whether its ends are joined."""
    multiples = tuple(size % torus.wrap == 0 for size in shape)
    if torus.wrap_whole and not all(multiples):
        return (False,) * len(shape)
    return multiples


def coordinates(torus: Torus, shape: tuple[int, ...], device: int) -> tuple[int, ...]:
    """Position of chip number `device` of a slice: hosts in row-major order, chips in each as well.

    A slice that whole hosts do not tile (less than a host) is numbered in row-major order.
    """
    block = torus.host if _tiles(torus.host, shape) else shape
    grid = tuple(size // b for size, b in zip(shape, block, strict=True))
    host, chip = divmod(device, math.prod(block))
    corner, inside = np.unravel_index(host, grid), np.unravel_index(chip, block)
    return tuple(int(c * b + i) for c, b, i in zip(corner, block, inside, strict=True))


def torus_grid(torus: Torus, shape: tuple[int, ...], chips: int, devices: int) -> TorusGrid:
    """The grid of `devices` devices in slices of `chips` chips, numbered in the devices' order."""
    in_slice = np.array([coordinates(torus, shape, device) for device in range(chips)])
    number = np.arange(devices)
    return TorusGrid(in_slice[number % chips], number // chips, shape, wraparound(torus, shape))


def groups_along(grid: TorusGrid, dims: Iterable[int]) -> np.ndarray:
    """Device ids [groups, members]: the rings, lines or planes that span `dims` of every slice.

    Along dimension 0 of two slices of 4x4x4: 32 groups of 4 chips.
    """
    spanned = set(dims)
    kept = [dim for dim in range(len(grid.shape)) if dim not in spanned]
    keys = np.stack([grid.slices, *(grid.positions[:, dim] for dim in kept)])
    _, number = np.unique(keys, axis=1, return_inverse=True)
    members = math.prod(grid.shape[dim] for dim in spanned)
    return np.argsort(number.ravel(), kind="stable").reshape(-1, members)


def shape_text(shape: tuple[int, ...]) -> str:
    """A shape as people write it: `4x4x8`."""
    return "x".join(map(str, shape))


def _nearest(torus: Torus, chips: int) -> list[int]:
    """The next smaller and larger number of chips that has a shape, whole hosts if `chips` is."""
    host = math.prod(torus.host)
    step = host if chips % host == 0 else 1
    below = range(min(chips - step, torus.chips // step * step), 0, -step)
    above = range(chips + step, torus.chips + 1, step)
    nearest = [next((n for n in side if _shapes(torus, n)), None) for side in (below, above)]
    return [n for n in nearest if n is not None]


def _shapes(torus: Torus, chips: int) -> list[tuple[int, ...]]:
    """All shapes with `chips` chips that fit, those only that hosts tile if any number does."""
    sizes = [[d for d in range(1, most + 1) if chips % d == 0] for most in torus.shape[:-1]]
    shapes = []
    for head in itertools.product(*sizes):
        last, rest = divmod(chips, math.prod(head))
        if not rest and 1 <= last <= torus.shape[-1]:
            shapes.append((*head, last))
    if chips % math.prod(torus.host) == 0:
        shapes = [shape for shape in shapes if _tiles(torus.host, shape)]
    return shapes


def _tiles(block: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(size % b == 0 for size, b in zip(shape, block, strict=True))
