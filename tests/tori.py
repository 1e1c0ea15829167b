"""Groups of TPU chips along dimensions of their slices."""

import numpy as np

from scaling.meshes.levels import levels


def grid_of(cluster):
    """The torus of a cluster."""
    return levels(cluster)[0].grid


def groups_along(grid, dims):
    """Device ids [groups, members]: the rings or planes that span `dims` of every slice.

    groups_along(grid, [0]) of two slices of 4x4x4: 32 groups of 4 chips.
    """
    kept = [dim for dim in range(len(grid.shape)) if dim not in dims]
    keys = np.stack([grid.slices, *(grid.positions[:, dim] for dim in kept)])
    _, number = np.unique(keys, axis=1, return_inverse=True)
    members = int(np.prod([grid.shape[dim] for dim in dims]))
    return np.argsort(number, kind="stable").reshape(-1, members)
