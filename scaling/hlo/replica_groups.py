"""The groups of a collective: device numbers from XLA's text, mesh axes from device numbers.

    {{0,1},{2,3}}                          listed                             [[0, 1], [2, 3]]
    {}                                     all devices                        [[0, 1, 2, 3]]
    [2,2]<=[4]                             0..3 cut into rows                 [[0, 1], [2, 3]]
    [2,2]<=[2,2]T(1,0)                     the same, transposed first         [[0, 2], [1, 3]]
    mesh['a'=2,'b'=2] {'b'}                along axis b of a mesh             [[0, 1], [2, 3]]
    mesh['a'=4] {'a':(2)2}                 the part of axis a that has 2 outside it and size 2
    mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}    a mesh of other device numbers

(openxla/xla, xla/hlo/ir/replica_group.cc and mesh_and_axis.cc.) The mesh that a compiler prints is
its own; the axes that count are those of the mesh that the step was compiled for, whose device
number is the row-major coordinate: groups are compared as sets of device numbers.
"""

import math
import re
from collections.abc import Mapping

import numpy as np

from scaling.hlo.parse import Instruction, UnknownHlo
from scaling.meshes.shape import groups_along

LISTED = re.compile(r"\{(?:\{\d+(?:,\d+)*\}(?:,\{\d+(?:,\d+)*\})*)?\}")
ROWS = re.compile(r"\[(\d+,\d+)\]<=(.+)")
IOTA = re.compile(r"\[(\d+(?:,\d+)*)\](?:T\((\d+(?:,\d+)*)\))?")
SIZE = r"'([^']+)'=(\d+)"
PART = r"'([^']+)'(?::\((\d+)\)(\d+))?"
MESH = re.compile(
    r"mesh\[((?:'[^']+'=\d+,?)+)\]"
    r"(?:, device_ids=\((.+)\))?"
    r" \{((?:'[^']+'(?::\(\d+\)\d+)?,?)*)\}"
)


def replica_groups(instruction: Instruction, devices: int) -> np.ndarray:
    """Devices that talk to each other in a collective: int array [groups, members].

    A group of the one replica 0 stands for all its partitions, where the instruction has a channel
    and its numbers are not those of devices (CollectiveOpGroupMode in openxla/xla,
    xla/hlo/ir/collective_op_group_mode.h).

    Raises:
        UnknownHlo: no groups, in a spelling that is not known, or of other devices.
    """
    text = instruction.attribute("replica_groups")
    if text is None:
        raise UnknownHlo(f"no replica_groups: {instruction.excerpt}")
    ids = instruction.attribute("device_ids")  # a comma separates them from their mesh
    text = text if ids is None else f"{text}, device_ids={ids}"
    of_devices = instruction.attribute("use_global_device_ids") == "true"
    has_channel = instruction.attribute("channel_id") is not None
    all_partitions = text == "{{0}}" and has_channel and not of_devices
    try:
        return groups_in("{}" if all_partitions else text, devices)
    except UnknownHlo as error:
        raise UnknownHlo(f"{error.what}, in {instruction.excerpt}") from None


def groups_in(text: str, devices: int) -> np.ndarray:
    """Device numbers [groups, members] from what follows `replica_groups=`, `device_ids=` included.

    Raises:
        UnknownHlo: another spelling, groups of different sizes, a device that is not there or that
            is in two groups.
    """
    if text == "{}":
        groups = np.arange(devices)[None]
    elif LISTED.fullmatch(text):
        groups = _listed(text)
    elif rows := ROWS.fullmatch(text):
        groups = _reshaped(_iota(rows[2], devices, text), _numbers(rows[1]), text)
    elif mesh := MESH.fullmatch(text):
        groups = _along_axes(mesh[1], mesh[2], mesh[3], devices, text)
    else:
        raise UnknownHlo(f"replica_groups={text[:200]}: a spelling that is not known")
    if groups.max() >= devices:
        raise _beyond(devices, text)
    if np.bincount(groups.ravel()).max() > 1:
        raise UnknownHlo(f"replica_groups={text[:200]}: a device is in two groups")
    return groups


def source_target_pairs(instruction: Instruction, devices: int) -> np.ndarray:
    """Sender and receiver of a collective-permute: int array [pairs, 2].

    Raises:
        UnknownHlo: no pairs, or of other devices.
    """
    text = instruction.attribute("source_target_pairs")
    if text is None or not LISTED.fullmatch(text):
        raise UnknownHlo(f"no source_target_pairs: {instruction.excerpt}")
    pairs = np.zeros((0, 2), int) if text == "{}" else _listed(text)
    if pairs.shape[1] != 2 or pairs.max(initial=0) >= devices:
        raise UnknownHlo(f"source_target_pairs={text[:200]}: not pairs of the mesh's {devices}")
    return pairs


def axes_of_groups(groups: np.ndarray, mesh: Mapping[str, int]) -> tuple[str, ...] | None:
    """The mesh axes larger than 1 along which groups [groups, members] talk, in mesh order.

    () for groups of one device; None if no axes have just these groups.
    """
    if groups.shape[1] == 1:
        return ()
    if groups.max() >= math.prod(mesh.values()):
        return None
    places = _places(groups[0], mesh)
    axes = tuple(axis for axis, place in zip(mesh, places, strict=True) if np.ptp(place))
    ordered = np.sort(groups, axis=1)
    ordered = ordered[np.argsort(ordered[:, 0])]
    return axes if np.array_equal(ordered, groups_along(mesh, axes)) else None


def axes_of_pairs(pairs: np.ndarray, mesh: Mapping[str, int]) -> tuple[tuple[str, ...], bool]:
    """The fewest axes such that each of the pairs [pairs, 2] is in one of their groups, in mesh
    order; and whether these are rings of neighbours.

    In a ring every device of the mesh sends one place on along the axes, the last to the first, or
    every one sends one place back.
    """
    places = _places(pairs, mesh)
    differs = (places[..., 0] != places[..., 1]).any(axis=1)
    axes = tuple(axis for axis, moves in zip(mesh, differs, strict=True) if moves)
    sizes = tuple(mesh[axis] for axis in axes)
    position = np.ravel_multi_index((np.zeros_like(pairs), *places[differs]), (1, *sizes))
    members = math.prod(sizes)
    shifts = np.unique((position[:, 1] - position[:, 0]) % members)
    all_send = np.array_equal(np.sort(pairs[:, 0]), np.arange(math.prod(mesh.values())))
    is_ring = len(shifts) == 1 and int(shifts[0]) in (1, members - 1)
    return axes, bool(axes) and all_send and is_ring


def _beyond(devices: int, text: str) -> UnknownHlo:
    return UnknownHlo(f"replica_groups={text[:200]}: devices beyond the {devices} of the mesh")


def _listed(text: str) -> np.ndarray:
    groups = [_numbers(group) for group in text[2:-2].split("},{")]
    if len({len(group) for group in groups}) > 1:
        raise UnknownHlo(f"{text[:200]}: groups of different sizes")
    return np.array(groups)


def _along_axes(mesh: str, ids: str | None, names: str, most: int, text: str) -> np.ndarray:
    """Groups along `names`, axes or parts of axes of the mesh that the compiler wrote down.

    Each axis is cut into the pieces that its parts need; members are those along chosen pieces.
    """
    sizes = {name: int(size) for name, size in re.findall(SIZE, mesh)}
    chosen: dict[str, list[tuple[int, int]]] = {name: [] for name in sizes}
    for name, outside, size in re.findall(PART, names):
        if name not in sizes:
            raise UnknownHlo(f"replica_groups={text[:200]}: the mesh has no axis {name!r}")
        chosen[name].append((int(outside), int(size)) if size else (1, sizes[name]))
    dims: list[int] = []
    members: list[int] = []
    for name, size in sizes.items():
        for outside, dim in _cut(size, chosen[name], text):
            if any(start == outside for start, _ in chosen[name]):
                members.append(len(dims))
            dims.append(dim)
    if (devices := math.prod(sizes.values())) > most:
        raise _beyond(most, text)
    numbers = np.arange(devices)
    if ids is not None:  # `[4,2]T(1,0)`, or each number written out: `0,2,1,3`
        numbers = _iota(ids, most, text) if ids.startswith("[") else np.array(_numbers(ids))
    rest = [i for i in range(len(dims)) if i not in members]
    grid = _reshaped(numbers, dims, text).transpose(rest + members)
    return grid.reshape(-1, math.prod(dims[i] for i in members))


def _cut(size: int, parts: list[tuple[int, int]], text: str) -> list[tuple[int, int]]:
    """An axis cut where its parts (outside, size) begin and end: (outside, size) of each piece."""
    cuts = sorted({1, size, *(n for start, part in parts for n in (start, start * part))})
    pieces = list(zip(cuts, cuts[1:], strict=False))
    whole = {(start, start * part) for start, part in parts if part > 1} <= set(pieces)
    if not whole or size != cuts[-1] or any(end % start for start, end in pieces):
        raise UnknownHlo(f"replica_groups={text[:200]}: parts that do not divide an axis")
    return [(start, end // start) for start, end in pieces]


def _iota(text: str, most: int, whole: str) -> np.ndarray:
    """`[4,2]T(1,0)`: 0..7 laid out as 4 x 2, transposed, flat again; no more than `most`."""
    found = IOTA.fullmatch(text)
    sizes = _numbers(found[1]) if found else []
    order = _numbers(found[2]) if found and found[2] else list(range(len(sizes)))
    if not sizes or sorted(order) != list(range(len(sizes))):
        raise UnknownHlo(f"replica_groups={whole[:200]}: a spelling that is not known")
    if math.prod(sizes) > most:
        raise _beyond(most, whole)
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(order).ravel()


def _reshaped(numbers: np.ndarray, dims: list[int], text: str) -> np.ndarray:
    if numbers.size != math.prod(dims):
        raise UnknownHlo(f"replica_groups={text[:200]}: {numbers.size} devices do not fill {dims}")
    return numbers.reshape(dims)


def _numbers(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def _places(devices: np.ndarray, mesh: Mapping[str, int]) -> np.ndarray:
    """Coordinates [axes, ...] of device numbers [...]."""
    return np.array(np.unravel_index(devices, (*mesh.values(), 1))[:-1]).reshape(
        len(mesh), *devices.shape
    )
