"""Permutes on a torus: every pair by its shortest way, link by link.

0 > 1 > 2   3   +    from 0 to 2 and from 1 to 2: two pairs over the link from 1 to 2
"""

import numpy as np

from scaling.collectives.torus import GridShare
from scaling.meshes.torus import TorusGrid


def pair_share(source: np.ndarray, target: np.ndarray, grid: TorusGrid) -> GridShare:
    """The load of a permute: dimension by dimension, each the shorter way around.

    Args:
        source, target: devices [pairs]; those in different slices are left out.
    """
    near = (grid.slices[source] == grid.slices[target]) & (source != target)
    source, target = source[near], target[near]
    if source.size == 0:
        return GridShare(0.0, 0.0, 0, 1, 0.0)
    at, goal = grid.positions[source].copy(), grid.positions[target]
    distance, busiest = np.zeros(len(at), int), 0
    for dim, size in enumerate(grid.shape):
        steps = _steps(at[:, dim], goal[:, dim], size, grid.closed[dim])
        busiest = max(busiest, _busiest(at, steps, grid.slices[source], dim, grid))
        at[:, dim] = goal[:, dim]
        distance += np.abs(steps)
    return GridShare(float(busiest), float(busiest), busiest, 2, float(distance.max()))


def _steps(at: np.ndarray, goal: np.ndarray, size: int, closed: bool) -> np.ndarray:
    """Signed steps along one dimension."""
    straight = goal - at
    return (straight + size // 2) % size - size // 2 if closed else straight


def _busiest(
    at: np.ndarray, steps: np.ndarray, slices: np.ndarray, dim: int, grid: TorusGrid
) -> int:
    """The most pairs that cross one link of a dimension in one direction."""
    most = 0
    for way in (1, -1):
        links = []
        for t in range(int((way * steps).max(initial=0))):
            moving = way * steps > t
            here = at[moving].copy()
            here[:, dim] = (here[:, dim] + way * t) % grid.shape[dim]
            links.append(np.ravel_multi_index((slices[moving], *here.T), _cells(slices, grid)))
        if links:
            most = max(most, int(np.bincount(np.concatenate(links)).max()))
    return most


def _cells(slices: np.ndarray, grid: TorusGrid) -> tuple[int, ...]:
    return (int(slices.max()) + 1, *grid.shape)
