"""Several meshes side by side, one for each configuration of an array.

data=8,fsdp=8           data    [8, 16, 4]
data=16,fsdp=4          fsdp    [8,  4, 8]
data=4,fsdp=8,tensor=2  tensor  [1,  1, 2]
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.meshes.shape import AXES, AxisSizes, MeshShape

AxisSize = int | np.ndarray  # of an axis: of one mesh, or one for each configuration


@dataclass(frozen=True, eq=False)
class MeshBatch(AxisSizes[AxisSize]):
    """Sizes of the axes of several meshes of one device order: int arrays [configurations].

    Reads like a `MeshShape`; an axis that no mesh cuts is the number 1.
    """

    data: AxisSize
    fsdp: AxisSize
    stage: AxisSize
    expert: AxisSize
    context: AxisSize
    tensor: AxisSize
    device_order: tuple[str, ...]


def side_by_side(meshes: Sequence[MeshShape], counts: Sequence[int]) -> MeshBatch:
    """Meshes of one device order, each for so many configurations."""
    table = np.array([[getattr(mesh, axis) for mesh in meshes] for axis in AXES], np.int64)
    each = np.repeat(table, counts, axis=1)
    sizes = (row if (row > 1).any() else 1 for row in each)
    return MeshBatch(**dict(zip(AXES, sizes, strict=True)), device_order=meshes[0].device_order)


AnyMesh = MeshShape | MeshBatch  # of one configuration, or of each
