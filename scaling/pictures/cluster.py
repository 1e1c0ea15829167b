"""A cluster from the chips up: a layer for each network level, with the links that lead to it.

    ==========================    NICs of a node, 400 GB/s     a bar joins the units of a level
         |             |                                       that are neighbours, lines are links
    ===========    ===========    NVLink of a chip, 450 GB/s
    [] [] [] []    [] [] [] []    chips of a node

A few nodes stand for all: the first ones, and where there are several leaf groups some of the
second. A level that only bounds the bytes of another one stands in the words of that one's bar.
Levels that a collective loads are lit, and chips with one letter talk with one another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from scaling.meshes.cluster import Cluster, level_nodes
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.torus import shape_text
from scaling.meshes.units import format_rate, format_size
from scaling.pictures.palette import BLUE, COLOURS, GREEN, GREY, ORANGE, VERMILION
from scaling.pictures.shapes import SMALL, WIDTH, Line, Picture, Rect, Shape, Text, box, text_width

MOST_CHIPS, SHOWN = 32, 4  # chips that are drawn, but of one node all; nodes
LINKS = {"nvlink": GREEN, "xgmi": GREEN, "ici": GREEN, "pcie": ORANGE, "network": BLUE}
LIT = VERMILION
SIDE, EDGE = 34.0, 10.0  # pixels: a chip at most, left and right of all
WIRE, NOTE = 24.0, 20.0  # pixels from a bar to the words below it, and of a line of words


class _Row(NamedTuple):
    """The chips that are drawn, beside one another with a gap between nodes."""

    devices: np.ndarray  # numbers
    lefts: np.ndarray  # left edges, in pixels
    pitch: float  # pixels from a chip to the next
    side: float  # pixels of a chip
    per_node: int


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
        groups: number of the group that a device talks in, by device; None: nobody talks.
        loads: what a collective puts on the busiest links, by the name of the level, in words.

    Raises:
        InputError: links without figures.
    """
    groups, loads = groups or {}, dict(loads or {})
    nodes, per_node = shown_nodes(cluster), cluster.devices_per_node
    devices = np.array([node * per_node + chip for node in nodes for chip in range(per_node)])
    places = np.arange(len(devices)) + np.arange(len(devices)) // per_node
    pitch = min(SIDE + 4, (WIDTH - 2 * EDGE) / (places[-1] + 1))
    lefts = (WIDTH - pitch * (places[-1] + 1)) / 2 + pitch * places
    row = _Row(devices, lefts, pitch, pitch - 4, per_node)
    layers: list[list[NetworkLevel]] = []  # from below: a level with a bar, those that bound it
    for level in levels(cluster):
        if level.own_hops or not layers:
            layers.append([])
        layers[-1].append(level)
    y = sum(WIRE + NOTE * len(layer) for layer in layers) + 4
    height = y + pitch + 2 * NOTE
    shapes = _chips(row, nodes, y, groups)
    words: list[Shape] = []
    below = y  # what the lines of a layer lead to
    for layer in layers:
        level, top = layer[0], y - WIRE
        lit = any(level.name in loads for level in layer)
        colour = LINKS.get(level.link, GREY)
        for pool in _runs(level.labels.pool[row.devices]):  # a line from each pool of links
            x = float(row.lefts[pool].mean()) + row.side / 2
            talks = lit and any(device in groups for device in row.devices[pool].tolist())
            paint, thick = (LIT, 3.0) if talks else (colour, 1.5)
            shapes.append(Line([(x, below), (x, top)], stroke=paint, thick=thick))
        for left, right in _bars(level, row):
            ends = [(left, top), (right, top)]
            shapes.append(Line(ends, stroke=LIT if lit else colour, thick=5))
        for number, level in enumerate(reversed(layer)):
            said = loads.pop(level.name, None)
            line = _words(cluster, level) if said is None else f"{level.name}: {said}"
            words.append(Text(WIDTH / 2, top - 7 - NOTE * number, line, "middle", halo=True))
        y = top - NOTE * len(layer)
        below = y + 2  # above the words, so that no line lies on them
    chip = cluster.accelerator
    memory = "" if chip.memory is None else f", {format_size(chip.memory)}"
    notes = [f"{cluster.devices:,} {chip.name}{memory}"]
    if len(nodes) < cluster.nodes:
        notes[0] += f"; {len(nodes)} of {cluster.nodes:,} nodes are drawn"
    notes += [f"{level}: {said}" for level, said in loads.items()]
    for number, note in enumerate(notes):
        words.append(Text(WIDTH / 2, height + NOTE * number, note, "middle", size=SMALL + 1))
    return Picture(title, WIDTH, height + NOTE * (len(notes) - 1) + 10, [*shapes, *words])


def _chips(row: _Row, nodes: Sequence[int], top: float, groups: Mapping[int, int]) -> list[Shape]:
    shapes: list[Shape] = []
    several = len(set(groups.values())) > 1
    for first, node in enumerate(nodes):
        own = slice(first * row.per_node, (first + 1) * row.per_node)
        xs, name = row.lefts[own].tolist(), f"node {node}"
        left, wide = xs[0] - 4, xs[-1] - xs[0] + row.pitch + 4
        high = row.side + 8 + NOTE
        shapes.append(Rect(left, top - 4, wide, high, fill="#8882", words=name))
        said = name if text_width(name) < wide else str(node)
        shapes.append(Text(left + wide / 2, top + row.side + NOTE - 2, said, "middle"))
        for device, x in zip(row.devices[own].tolist(), xs, strict=True):
            group = groups.get(device)
            colour = GREY if group is None else COLOURS[group % len(COLOURS)]
            letter = "" if group is None else letters(group)
            where = f", in group {letter}" if letter else ""
            label = letter if several else ""
            size, said = (row.side, row.side), f"device {device}{where}"
            shapes += box((x, top), size, colour, label, words=said)
    return shapes


def letters(number: int) -> str:
    """Return the name of a group: A to Z, then AA, AB, ...; a number looks like that of a chip."""
    above, last = divmod(number, 26)
    return (letters(above - 1) if above else "") + chr(ord("A") + last)


def _bars(level: NetworkLevel, row: _Row) -> Iterator[tuple[float, float]]:
    """Ends of a bar over neighbouring units, or over each pair of chips with links of its own."""
    if level.pair_links:
        links, middles = np.array(level.pair_links), (row.lefts + row.side / 2).tolist()
        for node in range(0, len(middles), len(links)):
            for first, second in np.argwhere(np.triu(links)).tolist():
                yield middles[node + first], middles[node + second]
        return
    parents = level.labels.parent
    for unit in _runs(parents[row.devices]):
        last = int(row.devices[unit[-1]])
        goes_on = last + 1 < len(parents) and parents[last + 1] == parents[last]
        right = float(row.lefts[unit[-1]]) + row.side + row.pitch / 2 * goes_on
        yield float(row.lefts[unit[0]]), min(right, WIDTH)


def _words(cluster: Cluster, level: NetworkLevel) -> str:
    """`NVLink of a chip, 450 GB/s, joins 8`."""
    shape = "" if level.grid is None else f", torus {shape_text(level.grid.shape)}"
    joined = cluster.devices // len(_runs(level.labels.parent))
    joins = "" if level.pair_links or not level.own_hops else f", joins {joined:,} chips"
    return f"{level.name}{shape}, {format_rate(level.bandwidth)}{joins}"


def _runs(labels: np.ndarray) -> Sequence[np.ndarray]:
    """Indices of neighbours with the same label."""
    return np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)
