"""The mesh: six named axes, their sizes, and the order in which they are laid over the devices.

Device number d has the coordinates of d as a mixed-radix number, outermost axis first:

    mesh data=2, tensor=4:   data  0 0 0 0 1 1 1 1
                             tensor 0 1 2 3 0 1 2 3     the last axis has neighbouring devices

A `MeshBatch` is several meshes side by side, one for each configuration of an array:

    data=8,fsdp=8; data=16,fsdp=4     data [8, 16]    fsdp [8, 4]
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from scaling.meshes.errors import InputError, check_keys, is_count

N = TypeVar("N")  # the size of an axis: int, or an array of several meshes' sizes

# The default device order, outermost first: a pipeline stage sends least, so stages lie farthest
# apart; tensor sends most, so it has neighbours. Megatron-LM orders its groups alike.
AXES = ("stage", "data", "fsdp", "expert", "context", "tensor")
# What others call these axes, and settings that they take for axes.
ALIASES = {
    **dict.fromkeys(("dp", "ddp", "replica", "replicas", "data_parallel"), "data"),
    **dict.fromkeys(("dp_shard", "shard", "fully_sharded"), "fsdp"),
    **dict.fromkeys(("tp", "mp", "model", "tensor_parallel"), "tensor"),
    **dict.fromkeys(("pp", "pipe", "pipeline", "stages", "pipeline_parallel"), "stage"),
    **dict.fromkeys(("ep", "experts", "expert_parallel"), "expert"),
    **dict.fromkeys(("cp", "seq", "sequence", "context_parallel"), "context"),
}
SETTINGS = {
    **dict.fromkeys(
        ("sp", "sequence_parallel"),
        "sequence parallelism is over the tensor axis, by sharding.sequence_parallel=true; "
        "attention of a cut sequence is the axis 'context'",
    ),
    **dict.fromkeys(
        ("zero", "zero1", "zero2", "zero3"),
        "ZeRO shards over fsdp, expert and context, in the stage that sharding.zero_stage says",
    ),
}


class AxisSizes(Generic[N]):
    """Sizes by axis: the base of one mesh and of a batch of meshes."""

    device_order: tuple[str, ...]  # outermost first

    @property
    def sizes(self) -> dict[str, N]:
        """Axis sizes in device order, outermost first."""
        return {axis: getattr(self, axis) for axis in self.device_order}

    @property
    def devices(self) -> N:
        """Number of devices."""
        return self.size(AXES)

    @property
    def batch_shards(self) -> N:
        """Number of shards of the global batch."""
        return self.size(("data", "fsdp", "expert"))

    def size(self, axes: Iterable[str]) -> N:
        """Product of the sizes of `axes`."""
        product: Any = math.prod(getattr(self, axis) for axis in axes)
        return product


@dataclass(frozen=True)
class MeshShape(AxisSizes[int]):
    """Sizes of the six axes; the batch is sharded over data x fsdp x expert.

    >>> import scaling as sc
    >>> mesh = sc.MeshShape(fsdp=8, tensor=2)
    >>> str(mesh), mesh.devices, mesh.batch_shards
    ('fsdp=8,tensor=2', 16, 8)
    """

    data: int = 1  # replicas
    fsdp: int = 1  # replicas that share one sharded copy of the parameters
    stage: int = 1  # pipeline
    expert: int = 1  # experts
    context: int = 1  # sequence
    tensor: int = 1  # heads, hidden units, vocabulary
    device_order: tuple[str, ...] = AXES  # outermost first

    def __post_init__(self) -> None:
        for axis in AXES:
            size = getattr(self, axis)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise InputError(f"mesh axis {axis}={size!r} must be a positive whole number")
        check_axes(self.device_order, "device_order")
        if sorted(self.device_order) != sorted(AXES):
            raise InputError(
                f"device_order must name each of {', '.join(AXES)} once, "
                f"got {', '.join(self.device_order)}"
            )

    def coordinates(self, device: int) -> dict[str, int]:
        """Place of device number `device` on each axis."""
        if not 0 <= device < self.devices:
            raise InputError(f"device {device} is not one of the {self.devices} of mesh {self}")
        position = np.unravel_index(device, tuple(self.sizes.values()))
        return {axis: int(i) for axis, i in zip(self.sizes, position, strict=True)}

    def groups(self, axes: Iterable[str]) -> np.ndarray:
        """Device numbers of each group along `axes`: int array [groups, size(axes)].

        Members are in device order; a collective over `axes` runs in all groups at once.
        """
        check_axes(axes, "axes")
        return groups_along(self.sizes, axes)

    def __str__(self) -> str:
        return axes_text(longer(self.sizes)) or "data=1"


AxisSize = int | np.ndarray  # of an axis: of one mesh, or one for each configuration


@dataclass(frozen=True, eq=False)
class MeshBatch(AxisSizes[AxisSize]):
    """Sizes of the axes of several meshes: int arrays [configurations].

    Reads like a `MeshShape`; an axis that no mesh cuts is the number 1. The order is that of the
    first, which axes are named in; where the groups of each lie, `simulate.batch.calls_of` is told.
    """

    data: AxisSize
    fsdp: AxisSize
    stage: AxisSize
    expert: AxisSize
    context: AxisSize
    tensor: AxisSize
    device_order: tuple[str, ...]


AnyMesh = MeshShape | MeshBatch  # of one configuration, or of each


def side_by_side(meshes: Sequence[MeshShape], counts: Sequence[int]) -> MeshBatch:
    """Meshes, each for so many configurations."""
    table = np.array([[getattr(mesh, axis) for mesh in meshes] for axis in AXES], np.int64)
    sizes = (row if (row > 1).any() else 1 for row in np.repeat(table, counts, axis=1))
    return MeshBatch(**dict(zip(AXES, sizes, strict=True)), device_order=meshes[0].device_order)


def groups_along(sizes: Mapping[str, int], axes: Iterable[str]) -> np.ndarray:
    """Like `MeshShape.groups`, for a mesh with axes of any names, outermost first."""
    names, wanted = list(sizes), set(axes)
    rest = [i for i, axis in enumerate(names) if axis not in wanted]
    kept = [i for i, axis in enumerate(names) if axis in wanted]
    grid = np.arange(math.prod(sizes.values())).reshape(tuple(sizes.values()))
    members = math.prod(sizes[names[i]] for i in kept)
    return grid.transpose(rest + kept).reshape(-1, members)


def check_axes(names: Iterable[str], where: str) -> None:
    """Raise InputError for the first name that is no axis, saying what it is called here."""
    unknown = [name for name in names if name not in AXES]
    called = [f"{n!r} is {ALIASES[n.lower()]!r}" for n in unknown if n.lower() in ALIASES]
    if called:
        raise InputError(f"{where}: unknown axis {unknown[0]!r}; here {', '.join(called)}")
    for name in unknown:
        if name.lower() in SETTINGS:
            raise InputError(f"{where}: unknown axis {name!r}; {SETTINGS[name.lower()]}")
        check_keys([name], AXES, where, "axis")


def parse_mesh(text: str, order: tuple[str, ...] = AXES) -> MeshShape:
    """A mesh from `data=2,fsdp=4`; axes that are not named have size 1.

    Raises:
        InputError: an unknown or repeated axis, or a size that is not a positive whole number.
    """
    sizes = parse_axes(text)
    check_axes(sizes, "--mesh")
    return MeshShape(**sizes, device_order=order)


def longer(sizes: Mapping[str, int]) -> dict[str, int]:
    """The axes of more than one device, in their order."""
    return {axis: size for axis, size in sizes.items() if size > 1}


def axes_text(sizes: Mapping[str, object]) -> str:
    """`data=8,model=2`, as `parse_axes` reads it."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())


def parse_axes(text: str) -> dict[str, int]:
    """Axis -> size, outermost first, from `data=8,model=8`; axes may have any names.

    Raises:
        InputError: no axis, a repeated one, or a size that is not a positive whole number.
    """
    sizes = parse_sizes(text, "--mesh", "axis", "data=2,fsdp=4")
    if not sizes:
        raise InputError("--mesh is empty; write for example data=2,fsdp=4")
    return sizes


def parse_sizes(text: str, option: str, what: str, example: str) -> dict[str, int]:
    """Name -> size from `I=1024,J=4096`, in its order; a name is called `what` in messages.

    Raises:
        InputError: a repeated name, or a size that is not a positive whole number.
    """
    sizes: dict[str, int] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, size = (s.strip() for s in part.partition("="))
        if not name or not size:
            raise InputError(f"{option}: expected {what}=size such as {example}, got {part!r}")
        if not is_count(size) or int(size) < 1:
            raise InputError(
                f"{option}: {part!r}: the size of {'an' if what == 'axis' else 'a'} {what} is a "
                f"whole number, at least 1; write for example {example}"
            )
        if name in sizes:
            raise InputError(f"{option}: {what} {name!r} is given twice in {text!r}")
        sizes[name] = int(size)
    return sizes


def parse_order(axes: Iterable[str]) -> tuple[str, ...]:
    """A device order: `axes` outermost, the others behind; InputError for unknown or repeated."""
    named = tuple(axes)
    check_axes(named, "--device-order")
    if len(set(named)) < len(named):
        raise InputError(f"--device-order {','.join(named)}: an axis is named twice")
    return named + tuple(axis for axis in AXES if axis not in named)


def check_devices(mesh: MeshShape, devices: int) -> None:
    """Raise InputError unless `mesh` uses exactly `devices` devices."""
    if mesh.devices == devices:
        return
    product = " x ".join(f"{a} {n}" for a, n in mesh.sizes.items() if n > 1) or "1"
    raise InputError(
        f"mesh {mesh} needs {mesh.devices} devices ({product}), but {devices} are present; "
        f"use axis sizes that multiply to {devices}, or fake host devices: --devices {mesh.devices}"
    )
