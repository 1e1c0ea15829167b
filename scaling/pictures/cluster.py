"""A cluster from the chips up: a layer for each network level, with the links that lead to it.

    ==========================    NICs of a node, 400 GB/s     a bar joins the units of a level
         |             |                                       that are neighbours, lines are links
    ===========    ===========    NVLink of a chip, 450 GB/s
    [] [] [] []    [] [] [] []    chips of a node

A few nodes stand for all: the first ones, and where there are several leaf groups some of the
second. A level that only bounds the bytes of another one stands in the words of that one's bar.
Levels that a collective loads are lit, and chips with one number talk with one another.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from scaling.meshes.cluster import Cluster, level_nodes
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.torus import shape_text
from scaling.meshes.units import format_rate, format_size
from scaling.pictures.palette import BLUE, COLOURS, GREEN, GREY, INK_ON, ORANGE, VERMILION
from scaling.pictures.shapes import SMALL, WIDTH, Line, Picture, Rect, Shape, Text, text_width

MOST_CHIPS, SHOWN = 32, 4  # chips that are drawn, but of one node all; nodes
LINKS = {"nvlink": GREEN, "xgmi": GREEN, "ici": GREEN, "pcie": ORANGE, "network": BLUE}
LIT = VERMILION
SIDE, EDGE = 34.0, 10.0  # pixels: a chip at most, left and right of all
WIRE, NOTE = 24.0, 20.0  # pixels from a bar to the words below it, and of a line of words


def shown_nodes(cluster: Cluster) -> list[int]:
    """Return the nodes that are drawn: some of the first two leaf groups, where there are two."""
    most = min(SHOWN, max(1, MOST_CHIPS // cluster.devices_per_node))
    leaf = level_nodes(cluster).get("leaf", cluster.nodes)
    if leaf >= cluster.nodes or most == 1:
        return list(range(min(most, cluster.nodes)))
    some = min(most // 2, leaf)
    return [*range(some), *range(leaf, min(leaf + some, cluster.nodes))]


def cluster_levels(
    cluster: Cluster,
    title: str = "",
    groups: Mapping[int, int] | None = None,
    loads: Mapping[str, str] | None = None,
) -> Picture:
    """Return the chips of a cluster and the levels of its network.

    Args:
        cluster: a few of its nodes are drawn.
        groups: number of the group that a device talks in, by device; None: nobody talks.
        loads: what a collective puts on the busiest links, by the name of the level, in words.

    Raises:
        InputError: links without figures.
    """
    groups, loads = groups or {}, dict(loads or {})
    nodes, per_node = shown_nodes(cluster), cluster.devices_per_node
    devices = np.array([node * per_node + chip for node in nodes for chip in range(per_node)])
    place = np.arange(len(devices)) + np.arange(len(devices)) // per_node  # a gap between nodes
    pitch = min(SIDE + 4, (WIDTH - 2 * EDGE) / (place[-1] + 1))
    xs = (WIDTH - pitch * (place[-1] + 1)) / 2 + pitch * place  # left edges of the chips
    shapes: list[Shape] = []
    words: list[Shape] = []
    layers = _layers(cluster)
    y = float(sum(WIRE + NOTE * len(names) for _, names in layers)) + 4
    height = y + pitch + 2 * NOTE
    shapes += _chips(cluster, nodes, xs, (y, pitch), groups)
    below = y  # what the lines of a layer lead to
    for main, bounds in layers:
        lit = any(level.name in loads for level in bounds)
        top = y - WIRE
        shapes += _wires(main, devices, xs + pitch / 2 - 2, (below, top), groups if lit else None)
        shapes += _bars(main, devices, xs, pitch, top, LIT if lit else LINKS.get(main.link, GREY))
        for number, level in enumerate(reversed(bounds)):
            said = loads.pop(level.name, None)
            line = _words(cluster, level) if said is None else f"{level.name}: {said}"
            words.append(Text(WIDTH / 2, top - 7 - NOTE * number, line, "middle", halo=True))
        below, y = top, top - NOTE * len(bounds)
    chip = cluster.accelerator
    memory = "" if chip.memory is None else f", {format_size(chip.memory)}"
    notes = [f"{cluster.devices:,} {chip.name}{memory}"]
    if len(nodes) < cluster.nodes:
        notes[0] += f"; {len(nodes)} of {cluster.nodes:,} nodes are drawn"
    notes += [f"{level}: {said}" for level, said in loads.items()]
    for note in notes:
        words.append(Text(WIDTH / 2, height, note, "middle", size=SMALL + 1))
        height += NOTE
    return Picture(title, WIDTH, height - NOTE + 10, [*shapes, *words])


def _layers(cluster: Cluster) -> list[tuple[NetworkLevel, list[NetworkLevel]]]:
    """The levels with a bar, from below, each with itself and those that only bound its bytes."""
    found: list[tuple[NetworkLevel, list[NetworkLevel]]] = []
    for level in levels(cluster):
        if level.own_hops or not found:
            found.append((level, [level]))
        else:
            found[-1][1].append(level)
    return found


def _chips(
    cluster: Cluster,
    nodes: Sequence[int],
    xs: np.ndarray,
    size: tuple[float, float],
    groups: Mapping[int, int],
) -> list[Shape]:
    """The nodes with their chips; `size` is the upper edge and the width of a chip's place."""
    (top, pitch), per_node = size, cluster.devices_per_node
    side = pitch - 4
    shapes: list[Shape] = []
    for number, node in enumerate(nodes):
        own = xs[number * per_node : (number + 1) * per_node]
        left, wide = own[0] - 4, own[-1] - own[0] + pitch + 4
        shapes.append(Rect(left, top - 4, wide, side + 8 + NOTE, "#8882", words=f"node {node}"))
        name = f"node {node}" if text_width(f"node {node}") < wide else str(node)
        shapes.append(Text(left + wide / 2, top + side + NOTE - 2, name, "middle"))
        for chip, x in enumerate(own.tolist()):
            device = node * per_node + chip
            group = groups.get(device)
            colour = GREY if group is None else COLOURS[group % len(COLOURS)]
            said = f"device {device}" + ("" if group is None else f", in group {group}")
            shapes.append(Rect(x, top, side, side, colour, words=said))
            if group is not None and side > text_width(str(group), SMALL):
                at, ink = (x + side / 2, top + side / 2 + 4.5), INK_ON.get(colour, "black")
                shapes.append(Text(*at, str(group), "middle", ink, SMALL))
    return shapes


def _wires(
    level: NetworkLevel,
    devices: np.ndarray,
    middles: np.ndarray,
    ends: tuple[float, float],
    talking: Mapping[int, int] | None,
) -> list[Shape]:
    """A line from each pool of links up to the bar; those of devices that talk are lit."""
    shapes: list[Shape] = []
    for pool in _runs(level.labels.pool[devices]):
        x = float(middles[pool].mean())
        lit = talking is not None and any(device in talking for device in devices[pool].tolist())
        colour, width = (LIT, 3) if lit else (LINKS.get(level.link, GREY), 1.5)
        shapes.append(Line([(x, ends[0]), (x, ends[1])], colour, width))
    return shapes


def _bars(
    level: NetworkLevel, devices: np.ndarray, xs: np.ndarray, pitch: float, y: float, colour: str
) -> list[Shape]:
    """A bar over neighbouring units, or over each pair of chips that has links of its own."""
    if level.pair_links:
        links = np.array(level.pair_links)
        pairs = np.argwhere(np.triu(links)).tolist()
        half = pitch / 2 - 2
        return [
            Line([(xs[node + first] + half, y), (xs[node + second] + half, y)], colour, 5)
            for node in range(0, len(xs), len(links))
            for first, second in pairs
        ]
    parents = level.labels.parent
    shapes: list[Shape] = []
    for parent in _runs(parents[devices]):
        last = int(devices[parent[-1]])
        goes_on = last + 1 < len(parents) and parents[last + 1] == parents[last]
        right = float(xs[parent[-1]]) + pitch - 4 + pitch / 2 * goes_on
        shapes.append(Line([(float(xs[parent[0]]), y), (min(right, WIDTH), y)], colour, 5))
    return shapes


def _words(cluster: Cluster, level: NetworkLevel) -> str:
    """`NVLink of a chip, 450 GB/s, joins 8`."""
    shape = "" if level.grid is None else f", torus {shape_text(level.grid.shape)}"
    joined = cluster.devices // len(_runs(level.labels.parent))
    joins = "" if level.pair_links or not level.own_hops else f", joins {joined:,} chips"
    return f"{level.name}{shape}, {format_rate(level.bandwidth)}{joins}"


def _runs(labels: np.ndarray) -> Sequence[np.ndarray]:
    """Indices of neighbours with the same label."""
    return np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)
