"""Several meshes side by side, one for each configuration of an array.

data=8,fsdp=8           data    [8, 16, 4]
data=16,fsdp=4          fsdp    [8,  4, 8]
data=4,fsdp=8,tensor=2  tensor  [1,  1, 2]
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul

import numpy as np

from scaling.meshes.shape import AXES, MeshShape

AxisSize = int | np.ndarray  # of an axis: of one mesh, or one for each configuration


@dataclass(frozen=True, eq=False)
class MeshBatch:
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

    @cached_property
    def sizes(self) -> dict[str, AxisSize]:
        """Axis sizes in device order, outermost first."""
        return {axis: getattr(self, axis) for axis in self.device_order}

    @property
    def devices(self) -> AxisSize:
        """Number of devices."""
        return self.size(AXES)

    @property
    def batch_shards(self) -> AxisSize:
        """Number of shards of the global batch."""
        return self.data * self.fsdp * self.expert

    def size(self, axes: Iterable[str]) -> AxisSize:
        """Product of the sizes of `axes`."""
        return reduce(mul, (getattr(self, axis) for axis in axes), 1)


def side_by_side(meshes: Sequence[MeshShape], counts: Sequence[int]) -> MeshBatch:
    """MeshBatch of one device order, each for so many configurations."""
    table = np.array([[getattr(mesh, axis) for mesh in meshes] for axis in AXES], np.int64)
    each = np.repeat(table, counts, axis=1)
    sizes = (row if (row > 1).any() else 1 for row in each)
    return MeshBatch(**dict(zip(AXES, sizes, strict=True)), device_order=meshes[0].device_order)


AnyMesh = MeshShape | MeshBatch  # of one configuration, or of each
