"""Groups of TPU chips along dimensions of their slices."""

from scaling.meshes.levels import levels
from scaling.meshes.torus import groups_along as groups_along


def grid_of(cluster):
    """The torus of a cluster."""
    return levels(cluster)[0].grid
