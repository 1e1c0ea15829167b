"""Arrays on a mesh: shapes and bytes of the parts that devices hold, and which part each holds.

shards x copies = devices          bytes per device x devices = copies x bytes of one copy
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.shape import axes_text
from scaling.models.accounting.matrices import NUMBER_BYTES
from scaling.profiles.profile import Profile
from scaling.questions.answer import Input
from scaling.questions.notation import ArraySpec, format_array

MOST_ELEMENTS = 2**63 - 1  # of one array: an index is an int64
Numbers = TypeVar("Numbers", int, np.ndarray)  # of devices


@dataclass(frozen=True, eq=False)
class MeshOnCluster:
    """Where a mesh lies, and the figures of its times."""

    cluster: Cluster
    fitted: Profile
    ideal: Profile
    by_rule: bool = False  # the textbook's times order what there is to choose, and say what binds


@dataclass(frozen=True)
class ShapeContext:
    """What an expression is asked of."""

    mesh: Mapping[str, int]  # axis -> devices along it, outermost first
    sizes: Mapping[str, int]  # dimension -> size
    dtype: str  # of the arrays that have none of their own
    place: MeshOnCluster | None = None  # None: only bytes and FLOPs, no times

    @property
    def devices(self) -> int:
        return math.prod(self.mesh.values())

    @property
    def unit(self) -> str:
        """What communication is counted in."""
        return "bytes" if self.place is None else "s"

    @property
    def by_rule(self) -> bool:
        """True where the textbook's times count; without a place there are no others."""
        return self.place is not None and self.place.by_rule

    def ways(self, axes: Iterable[str]) -> int:
        """Devices along some axes."""
        return math.prod(self.mesh[axis] for axis in axes)

    def size(self, dim: str) -> int:
        """Size of a dimension, by its name."""
        return int(dim) if dim.isdigit() else self.sizes[dim]

    def size_inputs(self, dims: Iterable[str]) -> list[Input]:
        """Sizes of those dimensions that have a name, as symbols."""
        return [Input(dim, self.size(dim), "", "size") for dim in dims if not dim.isdigit()]

    def axis_inputs(self, axes: Iterable[str], meaning: str = "along it") -> list[Input]:
        """Sizes of axes as symbols."""
        return [Input(axis, self.mesh[axis], "devices", meaning) for axis in axes]


def check_array(array: ArraySpec, setting: ShapeContext) -> None:
    """Raise InputError unless every dimension has a size that its axes divide."""
    text = format_array(array, setting.mesh)
    for dim in array.dims:
        if not dim.name.isdigit() and dim.name not in setting.sizes:
            known = axes_text(setting.sizes)
            raise InputError(
                f"dimension {dim.name} of {text} has no size; write --shape "
                f"{known + ',' if known else ''}{dim.name}=4096"
            )
        size, ways = setting.size(dim.name), setting.ways(dim.axes)
        if size % ways:
            above = -(-size // ways) * ways
            raise InputError(
                f"{text}: dimension {dim.name} of {size} cannot be split evenly over "
                f"{' x '.join(f'{a}={setting.mesh[a]}' for a in dim.axes)}: {size} / {ways} = "
                f"{size / ways:g}; pad it to {above}"
            )
    if math.prod(shape(array, setting)) > MOST_ELEMENTS:
        raise InputError(f"{text} has more than {MOST_ELEMENTS:,} elements")


def number_bytes(array: ArraySpec, setting: ShapeContext) -> float:
    """Bytes of one number of the array."""
    return NUMBER_BYTES[array.dtype or setting.dtype]


def shape(array: ArraySpec, setting: ShapeContext) -> tuple[int, ...]:
    """Sizes of the whole array."""
    return tuple(setting.size(dim.name) for dim in array.dims)


def device_shape(array: ArraySpec, setting: ShapeContext) -> tuple[int, ...]:
    """Sizes of the part that one device holds."""
    return tuple(setting.size(dim.name) // setting.ways(dim.axes) for dim in array.dims)


def total_bytes(array: ArraySpec, setting: ShapeContext) -> float:
    """Bytes of one copy."""
    return _bytes(shape(array, setting), array, setting)


def device_bytes(array: ArraySpec, setting: ShapeContext) -> float:
    """Bytes of the part that one device holds."""
    return _bytes(device_shape(array, setting), array, setting)


def copies(array: ArraySpec, setting: ShapeContext) -> int:
    """Devices that hold the same part, or a term of its sum."""
    return setting.devices // setting.ways(array.axes)


def slices(array: ArraySpec, setting: ShapeContext) -> Iterator[tuple[dict[str, int], str]]:
    """For each device its coordinates on the mesh and what it holds, `A[0:256,0:4096]`."""
    for device in range(setting.devices):
        place = coordinates(device, setting.mesh)
        parts = []
        for dim, size in zip(array.dims, device_shape(array, setting), strict=True):
            number = index(dim.axes, place, setting.mesh)
            parts.append(f"{number * size}:{(number + 1) * size}")
        terms = "".join(f", term {place[axis]} of {axis}" for axis in array.unreduced)
        yield place, f"{array.name}[{', '.join(parts)}]{terms}"


def coordinates(device: Numbers, mesh: Mapping[str, int]) -> dict[str, Numbers]:
    """Place on each axis of device number `device` of a mesh, outermost axis first."""
    place: dict[str, Numbers] = {}
    for axis, size in reversed(list(mesh.items())):
        device, place[axis] = divmod(device, size)
    return {axis: place[axis] for axis in mesh}


def index(axes: Iterable[str], place: Mapping[str, Numbers], mesh: Mapping[str, int]) -> Numbers:
    """Number of the part that a device at `place` holds of a dimension split over `axes`."""
    number: Any = 0
    for axis in axes:
        number = number * mesh[axis] + place[axis]
    return number


def _bytes(sizes: tuple[int, ...], array: ArraySpec, setting: ShapeContext) -> float:
    exact = math.prod(sizes) * Fraction(number_bytes(array, setting))
    return int(exact) if exact.denominator == 1 else float(exact)
