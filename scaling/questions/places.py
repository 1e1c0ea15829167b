"""Where an axis can lie on a cluster: inside units of each level, and between them.

    inside     data over all devices of a node, of two nodes, of a leaf group, of everything; on a
               torus over one of its dimensions, two, all
    between    data over nodes, leaf groups or slices; what is inside of one holds one copy

All units of a level do the same at once, so that they share what lies above them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaling.meshes.cluster import Cluster, level_nodes
from scaling.meshes.levels import levels
from scaling.meshes.torus import TorusGrid, groups_along, shape_text

WORDS = {
    "node": "node",
    "domain": "NVLink domain",
    "leaf": "leaf group",
    "spine": "spine layer",
    "core": "cluster",
}
FEW = 2  # nodes: the guide looks at two by themselves, where NVLink binds


@dataclass(frozen=True, eq=False)
class AxisLayout:
    """Groups of devices that lie alike."""

    name: str
    groups: np.ndarray  # device ids [groups, members]

    @property
    def devices(self) -> int:
        return int(self.groups.shape[1])


def inside(cluster: Cluster) -> list[AxisLayout]:
    """Return the places of an axis over neighbours, the smallest first; those of one chip not."""
    if cluster.torus is None:
        return list(_in_units(cluster))
    layouts = list(_on_torus(levels(cluster)[0].grid))  # type: ignore[arg-type]
    if cluster.devices > (layouts[-1].devices if layouts else 1):
        slices = cluster.nodes // cluster.domain_nodes
        layouts.append(AxisLayout(f"{slices} slices", np.arange(cluster.devices)[None]))
    return layouts


def between(cluster: Cluster) -> list[AxisLayout]:
    """Return the places of an axis over units of a level, a device of each, outermost last."""
    layouts = []
    sizes = {k: n for k, n in level_nodes(cluster).items() if n < cluster.nodes}
    if cluster.torus is not None or cluster.domain_nodes > 1:
        sizes.pop("node", None)
    for level, nodes in sizes.items():
        unit = nodes * cluster.devices_per_node
        if cluster.devices % unit == 0:
            word = "slice" if cluster.torus is not None and level == "domain" else WORDS[level]
            groups = np.arange(cluster.devices).reshape(-1, unit).T
            layouts.append(AxisLayout(f"{word}s", groups))
    return layouts


def _in_units(cluster: Cluster) -> Iterator[AxisLayout]:
    """Whole units of every level, and of two nodes."""
    sizes = {nodes: level for level, nodes in level_nodes(cluster).items()}
    if cluster.nodes > FEW:
        sizes.setdefault(FEW, "node")
    for nodes, level in sorted(sizes.items()):
        members = nodes * cluster.devices_per_node
        if members > 1:
            groups = np.arange(cluster.devices // members * members).reshape(-1, members)
            name = "1 node" if nodes == 1 else f"{nodes} nodes"
            if nodes < cluster.nodes and level not in ("node", "core"):
                name = f"{WORDS[level]}, {name}"
            yield AxisLayout(name, groups)


def _on_torus(grid: TorusGrid) -> Iterator[AxisLayout]:
    """One dimension of a slice, two, all; those of equal size and form once."""
    dims = [dim for dim, size in enumerate(grid.shape) if size > 1]
    seen = set()
    for count in range(1, len(dims) + 1):
        for chosen in itertools.combinations(dims, count):
            form = tuple(sorted((grid.shape[d], grid.closed[d]) for d in chosen))
            if form not in seen:
                seen.add(form)
                sizes = shape_text(tuple(grid.shape[d] for d in chosen))
                closed = sorted({grid.closed[d] for d in chosen}, reverse=True)
                lines = " and ".join("rings" if is_ring else "lines" for is_ring in closed)
                whole = "slice of " if count == len(dims) else ""
                yield AxisLayout(f"{whole}{sizes}, {lines}", groups_along(grid, chosen))
