"""Devices of a mesh on a cluster: mesh coordinate -> device number -> chip.

With n devices per node, device number d of the mesh is chip d % n of node d // n. With eight chips
per node and mesh data=2, tensor=8, `tensor` stays inside a node and `data` crosses; all eight
groups of `data` leave through the NICs of the same node at once.

On a TPU slice the mesh follows the torus instead, as in JAX: axes run along whole dimensions, so
that data=4, fsdp=4, tensor=4 on 4x4x4 chips are rings along one dimension each. Where no dimensions
multiply to the axes, the mesh lies row-major: its last axis runs along the last dimension.

Whatever prices a mesh asks `groups_on`, but for compiled programs that name their devices.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

import numpy as np

from scaling.meshes.cluster import Cluster, Level, level_nodes, torus_shape
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.shape import MeshShape, axes_text, groups_along, longer
from scaling.meshes.torus import coordinates, slice_shape


def check_fits(mesh: MeshShape | Mapping[str, int], cluster: Cluster) -> None:
    """Raise InputError if `mesh` has more devices than the cluster."""
    sizes = _sizes(mesh)
    count = math.prod(sizes.values())
    if count > cluster.devices:
        nodes = -(-count // cluster.devices_per_node)
        raise InputError(
            f"mesh {axes_text(longer(sizes))} needs {count} devices, but {cluster.name} with "
            f"{cluster.nodes} node{'s' * (cluster.nodes > 1)} x {cluster.devices_per_node} has "
            f"{cluster.devices}; use --nodes {nodes} or a smaller mesh"
        )


def groups_on(
    mesh: MeshShape | Mapping[str, int], axes: Iterable[str], cluster: Cluster
) -> np.ndarray:
    """Groups of devices of the cluster along `axes`: int array [groups, size(axes)].

    A mesh from a mapping may have axes of any names, outermost first.

    Raises:
        InputError: the mesh has more devices than the cluster, or no such axis.
    """
    sizes = _sizes(mesh)
    check_keys(axes, sizes, "axes", "axis")
    return devices_of(sizes, cluster)[groups_along(sizes, axes)]


def devices_of(mesh: MeshShape | Mapping[str, int], cluster: Cluster) -> np.ndarray:
    """Device ids of a mesh in its row-major order: int array [devices].

    On a slice of a torus, an axis lies along the dimensions of the mesh's box that `torus_dims`
    finds; where it finds none, and everywhere else, the mesh lies row-major on the first devices.

    Raises:
        InputError: the mesh has more devices than the cluster.
    """
    check_fits(mesh, cluster)
    sizes = _sizes(mesh)
    count = math.prod(sizes.values())
    if cluster.torus is None:
        return np.arange(count)
    box, dims = torus_box(count, cluster), torus_dims(sizes, cluster)
    if dims is None:
        return _along_torus(cluster)[:count]
    order = [dim for axis in sizes for dim in dims[axis]]
    grid = _along_torus(cluster).reshape(_slices_and_shape(cluster))[tuple(map(slice, box))]
    return grid.transpose(order + [d for d in range(grid.ndim) if d not in order]).ravel()


def torus_box(count: int, cluster: Cluster) -> tuple[int, ...]:
    """Slices, and chips of each along every dimension, that a mesh of so many devices takes.

    Part of a slice is a corner with the shape that a slice of its own would have: 2x2 of 2x4 chips.
    () if there is none, or it is no part of these slices.
    """
    slices, *shape = _slices_and_shape(cluster)
    chips = math.prod(shape)
    if count % chips == 0:
        return count // chips, *shape
    try:
        assert cluster.torus is not None
        part = slice_shape(cluster.torus, count)
    except InputError:
        return ()
    fits = all(size <= whole for size, whole in zip(part, shape, strict=True))
    return (1, *part) if fits else ()


def _sizes(mesh: MeshShape | Mapping[str, int]) -> Mapping[str, int]:
    return mesh.sizes if isinstance(mesh, MeshShape) else mesh


def torus_dims(sizes: Mapping[str, int], cluster: Cluster) -> dict[str, tuple[int, ...]] | None:
    """The dimensions of its box that each axis of a mesh lies along, whole; None: there are none.

    Dimension 0 counts the slices, the others are those of `torus_box`. jax's `mesh_utils` lays axes
    in this way (jax 0.10.2, `create_device_mesh`).
    """
    box = torus_box(math.prod(sizes.values()), cluster)
    if not box:
        return None
    for dims in _assigned(list(sizes.values()), box, [d for d, n in enumerate(box) if n > 1]):
        return dict(zip(sizes, dims, strict=True))
    return None


def _assigned(
    sizes: Sequence[int], shape: Sequence[int], free: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every way to give the sizes dimensions that multiply to them; few and first ones first."""
    if not sizes:
        yield ()
        return
    for count in range(len(free) + 1):
        for dims in combinations(free, count):
            if math.prod(shape[dim] for dim in dims) == sizes[0]:
                left = [dim for dim in free if dim not in dims]
                yield from ((dims, *rest) for rest in _assigned(sizes[1:], shape, left))


def _slices_and_shape(cluster: Cluster) -> tuple[int, ...]:
    shape = torus_shape(cluster)
    return cluster.devices // math.prod(shape), *shape


@lru_cache(maxsize=16)
def _along_torus(cluster: Cluster) -> np.ndarray:
    """Devices in row-major order of their positions, slice after slice; int array [devices]."""
    torus, shape = cluster.torus, torus_shape(cluster)
    assert torus is not None
    chips = cluster.devices_per_node * cluster.domain_nodes
    inside = sorted(range(chips), key=lambda chip: coordinates(torus, shape, chip))
    slices = np.arange(cluster.devices // chips) * chips
    return (slices[:, None] + np.array(inside)).ravel()


def crossed_level(groups: np.ndarray, cluster: Cluster) -> Level:
    """The highest level that any of the groups (device ids [groups, members]) crosses.

    "chip" if every group has one member. Two devices on different rails under one group of leaves
    count as "leaf": the traffic changes rails inside a node, over NVLink.
    """
    first, last = groups.min(axis=1), groups.max(axis=1)  # units hold consecutive devices
    if bool((first == last).all()):
        return "chip"
    for level, size in level_nodes(cluster).items():
        unit = size * cluster.devices_per_node
        if bool((first // unit == last // unit).all()):
            return level
    raise AssertionError("the highest level holds every device")
