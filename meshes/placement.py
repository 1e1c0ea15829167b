"""Who sits where: mesh coordinate -> device number -> chip, and which links an axis uses.

With n devices per node, device number d of the mesh is chip d % n of node d // n. With eight chips
per node and mesh data=2, tensor=8, `tensor` stays inside a node and `data` crosses; all eight
groups of `data` leave through the NICs of the same node at once.

On a TPU slice the mesh follows the torus instead, as in JAX: its last axis runs along the last
dimension, so that data=4, fsdp=4, tensor=4 on 4x4x4 chips are rings along one dimension each.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from scaling.meshes.cluster import Cluster, Level, level_nodes, torus_shape
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.meshes.torus import coordinates


def check_fits(mesh: MeshShape, cluster: Cluster) -> None:
    """Raise InputError if `mesh` has more devices than the cluster."""
    if mesh.devices > cluster.devices:
        nodes = -(-mesh.devices // cluster.devices_per_node)
        raise InputError(
            f"mesh {mesh} needs {mesh.devices} devices, but {cluster.name} with {cluster.nodes} "
            f"node{'s' * (cluster.nodes > 1)} x {cluster.devices_per_node} has {cluster.devices}; "
            f"use --nodes {nodes} or a smaller mesh"
        )


def groups_on(mesh: MeshShape, axes: Iterable[str], cluster: Cluster) -> np.ndarray:
    """Devices of the cluster that talk to each other along `axes`: int array [groups, size(axes)].

    Raises:
        InputError: the mesh has more devices than the cluster.
    """
    check_fits(mesh, cluster)
    groups = mesh.groups(axes)
    return groups if cluster.torus is None else _along_torus(cluster)[groups]


@lru_cache(maxsize=16)
def _along_torus(cluster: Cluster) -> np.ndarray:
    """Devices in row-major order of where they sit, slice after slice; int array [devices]."""
    torus, shape = cluster.torus, torus_shape(cluster)
    assert torus is not None
    chips = cluster.devices_per_node * cluster.domain_nodes
    inside = sorted(range(chips), key=lambda chip: coordinates(torus, shape, chip))
    slices = np.arange(cluster.devices // chips) * chips
    return (slices[:, None] + np.array(inside)).ravel()


def place(mesh: MeshShape, coordinates: Mapping[str, int], cluster: Cluster) -> tuple[int, int]:
    """(node, chip of that node) of the device at `coordinates`; axes not named are at 0."""
    check_fits(mesh, cluster)
    return divmod(mesh.device(coordinates), cluster.devices_per_node)


def level_of_axes(mesh: MeshShape, axes: Iterable[str], cluster: Cluster) -> Level:
    """The highest level that a collective over `axes` has to cross, in any of its groups."""
    check_fits(mesh, cluster)
    groups = mesh.groups(axes)
    if groups.shape[1] == 1:
        return "chip"
    nodes = groups // cluster.devices_per_node
    return next(level for level, size in level_nodes(cluster).items() if _inside(nodes // size))


def levels(mesh: MeshShape, cluster: Cluster) -> dict[str, Level]:
    """The highest level each axis crosses, in device order: {"data": "leaf", "tensor": "node"}."""
    return {axis: level_of_axes(mesh, (axis,), cluster) for axis in mesh.sizes}


def groups_crossing(
    mesh: MeshShape, axes: Iterable[str], cluster: Cluster, level: Level = "node"
) -> dict[int, int]:
    """How many groups of `axes` run over the boundary of each unit of `level` at once.

    Returns:
        unit number -> groups that have members both inside and outside of it; units that no group
        leaves are absent. Units are counted from 0: node 0, leaf group 0, ...
    """
    check_fits(mesh, cluster)
    sizes = level_nodes(cluster)
    if level not in sizes:
        raise InputError(
            f"{cluster.name} with {cluster.nodes} nodes has no level {level!r}; "
            f"it has {', '.join(sizes)}"
        )
    units = mesh.groups(axes) // (cluster.devices_per_node * sizes[level])
    crossing = [np.unique(group) for group in units if group.min() != group.max()]
    if not crossing:
        return {}
    numbers, counts = np.unique(np.concatenate(crossing), return_counts=True)
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))


def groups_sharing_nics(mesh: MeshShape, axes: Iterable[str], cluster: Cluster) -> dict[int, int]:
    """How many groups of `axes` use the NICs of each node at once; idle nodes are absent."""
    return groups_crossing(mesh, axes, cluster, "node")


def _inside(units: np.ndarray) -> bool:
    """Whether every group (row) lies in one unit."""
    return bool((units == units[:, :1]).all())
