"""A cluster with its switches, and the links that a collective uses.

    core       spines of all pods         what joins all
    spines     leaf groups                uplinks of a leaf group
    leaves     nodes                      NICs of a node
    node       chips, by NVSwitch or PCIe

A few nodes stand for all: the first ones, and where there are several leaf groups some of the
second. Chips with one number talk with one another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from scaling.meshes.cluster import Cluster, level_nodes
from scaling.pictures.drawing.svg import LINE, WIDTH, box, svg, text
from scaling.pictures.palette import COLOURS

Tier = Literal["node", "leaf", "spine", "core"]  # whose links lead up to it
LINKS: Mapping[str, Tier] = {  # names of network levels (`meshes.levels`); others: those of NICs
    "uplinks of a leaf group": "spine",
    "uplinks of a spine layer": "core",
}
SHOWN = 4  # nodes of a drawing
IN_A_ROW = 4  # chips of a node that stand in one row; more stand above and below their switch
TOP, TIER, SWITCH = 6, 92, 28  # pixels: above all, from one layer of switches to the next, a switch
NAME, BUS, WIRE = 28, 20, 12  # pixels: a node's name, what joins its chips, from there to a chip
MOST, WIDEST = 44.0, 300.0  # pixels: the side of a chip, and a node, at most
FONT, SMALL, NOTE = 16, 13, 19  # pixels: words, numbers of chips, from a line of notes to the next
LIT, DARK = COLOURS[2], "#8888"  # of links that carry something, and of others
DIGIT = 7.8  # pixels of a digit: a number is written only where it fits
INK = {COLOURS[0]: "white"}  # of numbers on chips; else black


@dataclass(frozen=True)
class Load:
    """What a call puts on the busiest links of a level."""

    level: str  # name of a network level
    network: bool  # True: between nodes
    words: str  # "117 MB over 400 GB/s: 0.29 ms"


@dataclass(frozen=True)
class Layer:
    """Switches that join the units below: number of leaf groups, spines, ..."""

    tier: Tier
    name: str
    units: Sequence[Sequence[int]]  # of each switch that is drawn: indices of drawn nodes


def tier_of(load: Load) -> Tier:
    """Return where the links of a level lead."""
    return LINKS.get(load.level, "leaf") if load.network else "node"


def cluster_drawing(cluster: Cluster, groups: Mapping[int, int], loads: Sequence[Load]) -> str:
    """Return the drawing of a cluster in which the links of `loads` are lit.

    Args:
        cluster: its nodes, chips and switches.
        groups: number of the group that a device talks in, by device; {}: nobody talks.
        loads: of one collective, from the chips outwards.
    """
    nodes = shown_nodes(cluster)
    layers = _layers(cluster, nodes)
    lit: dict[Tier, list[str]] = {}
    for load in loads:
        lit.setdefault(tier_of(load), []).append(f"{load.level}: {load.words}")
    width = (WIDTH - 20) / len(nodes)
    inner = min(width - 14, WIDEST)
    centres = [10 + (i + 0.5) * width for i in range(len(nodes))]
    below, top = centres, TOP + TIER * len(layers)
    shapes: list[str] = []
    for layer in layers:
        top -= TIER
        below = _switches(shapes, layer, (centres, below), top, lit.get(layer.tier, []))
    base = TOP + TIER * len(layers)
    for node, centre in zip(nodes, centres, strict=True):
        shapes += _node(cluster, node, (centre, base, inner), groups, "node" in lit)
    height = base + _node_height(cluster, inner)
    if cluster.nodes > len(nodes):
        rest = f"{len(nodes)} of {cluster.nodes} nodes are drawn"
        shapes.append(text(WIDTH - 10, height + NOTE, rest, "end"))
    inside = [] if _is_domain(cluster) else lit.get("node", [])
    for note in inside:
        shapes.append(text(10, height + NOTE, note))
        height += NOTE
    return svg([f'<g font-size="{FONT}">', *shapes, "</g>"], round(height + 2 * NOTE))


def shown_nodes(cluster: Cluster) -> list[int]:
    """Return the nodes that are drawn: some of the first two leaf groups, where there are two."""
    leaf = level_nodes(cluster).get("leaf", cluster.nodes)
    if leaf >= cluster.nodes:
        return list(range(min(SHOWN, cluster.nodes)))
    some = min(SHOWN // 2, leaf)
    return [*range(some), *range(leaf, min(leaf + some, cluster.nodes))]


def _layers(cluster: Cluster, nodes: Sequence[int]) -> list[Layer]:
    """Layers of switches above the nodes, from below."""
    sizes = level_nodes(cluster)
    found: list[Layer] = []
    if cluster.nodes == 1:
        return found
    every = range(len(nodes))
    if _is_domain(cluster):
        found.append(Layer("node", "NVSwitches of the domain", [every]))
        if cluster.nodes <= cluster.domain_nodes:
            return found
    leaf = sizes.get("leaf", cluster.nodes)
    units = [[i for i in every if nodes[i] // leaf == u] for u in {n // leaf: 0 for n in nodes}]
    found.append(Layer("leaf", f"leaf switches of {min(leaf, cluster.nodes)} nodes", units))
    if leaf < cluster.nodes:
        found.append(Layer("spine", "spine switches", [every]))
        if sizes.get("spine", cluster.nodes) < cluster.nodes:
            found.append(Layer("core", "core switches", [every]))
    return found


def _switches(
    shapes: list[str],
    layer: Layer,
    centres: tuple[Sequence[float], Sequence[float]],
    top: float,
    notes: Sequence[str],
) -> list[float]:
    """Add the switches of a layer with their links down; their centres.

    `centres` are those of the nodes, and of what is right below.
    """
    nodes, below = centres
    colour, thick = (LIT, 4) if notes else (DARK, 2)
    found = []
    for unit in layer.units:
        own = [nodes[i] for i in unit]
        left, right = min(own), max(own)
        ends = [x for x in below if left - 1 <= x <= right + 1]
        middle, half = (left + right) / 2, (right - left) / 2 + 70
        for x in ends:
            shapes.append(_wire(x, (top + SWITCH, top + TIER), colour, thick))
        shapes.append(_outline(middle - half, top, 2 * half, SWITCH, layer.name))
        shapes.append(text(middle, top + SWITCH - 9, layer.name, "middle"))
        found.append(middle)
    for number, note in enumerate(notes):
        y = top + SWITCH + NOTE * (number + 1)
        shapes.append(_label(WIDTH / 2, y, note))
    return found


def _node(
    cluster: Cluster,
    node: int,
    place: tuple[float, float, float],
    groups: Mapping[int, int],
    lit: bool,
) -> list[str]:
    """A node: its chips above and below what joins them; `place` is its centre, top and width."""
    centre, top, width = place
    rows, side = _chips(cluster, width)
    switch = "NVSwitch" if cluster.parts.get("nvswitch") else _direct(cluster)
    shapes = [
        _outline(centre - width / 2, top, width, _node_height(cluster, width), f"node {node}"),
        text(centre, top + 19, f"node {node}", "middle"),
    ]
    if _is_domain(cluster):  # the switches stand above
        for chip in rows[0]:
            x = centre + (chip - len(rows[0]) / 2) * side
            device = node * cluster.devices_per_node + chip
            shapes += _chip(device, (x + 2, top + NAME, side - 4), groups)
        return shapes
    bus = top + NAME + side + WIRE
    for number, row in enumerate(rows):
        y = top + NAME + number * (side + 2 * WIRE + BUS)
        wire = (y + side, bus) if number == 0 else (bus + BUS, y)
        for column, chip in enumerate(row):
            device = node * cluster.devices_per_node + chip
            x = centre + (column - len(row) / 2) * side
            colour, thick = (LIT, 4) if lit and device in groups else (DARK, 2)
            shapes.append(_wire(x + side / 2, wire, colour, thick))
            shapes += _chip(device, (x + 2, y, side - 4), groups)
    shapes.append(_outline(centre - width / 2 + 6, bus, width - 12, BUS, switch))
    shapes.append(_small(centre, bus + BUS - 5, switch))
    return shapes


def _chips(cluster: Cluster, width: float) -> tuple[list[range], float]:
    """Numbers of the chips of a node in one or two rows, and the side of one."""
    chips = cluster.devices_per_node
    first = chips if chips <= IN_A_ROW or _is_domain(cluster) else -(-chips // 2)
    rows = [range(first), range(first, chips)] if first < chips else [range(first)]
    return rows, min((width - 12) / first, MOST)


def _wire(x: float, ends: tuple[float, float], colour: str, thick: float) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]:.1f}" y2="{ends[1]:.1f}" '
        f'stroke="{colour}" stroke-width="{thick}"/>'
    )


def _direct(cluster: Cluster) -> str:
    """Name of what joins the chips of a node without a switch."""
    kinds = {link.kind for link in cluster.links if link.parts == ("chip", "chip")}
    return next((name for name in ("xgmi", "nvlink") if name in kinds), "PCIe")


def _node_height(cluster: Cluster, width: float) -> float:
    rows, side = _chips(cluster, width)
    return NAME + side + 8 if _is_domain(cluster) else NAME + len(rows) * (side + WIRE) + BUS + 8


def _is_domain(cluster: Cluster) -> bool:
    """True where NVSwitches join the chips of several nodes."""
    return cluster.domain_nodes > 1 and cluster.nodes > 1


def _chip(device: int, place: tuple[float, float, float], groups: Mapping[int, int]) -> list[str]:
    x, y, side = place
    group = groups.get(device)
    if group is None:
        return [_outline(x, y, side, side, f"device {device}")]
    colour = COLOURS[group % len(COLOURS)]
    shapes = [box(x, y, side, side, colour, f"device {device}, in group {group}")]
    if side > DIGIT * len(str(group)):
        ink = INK.get(colour, "black")
        shapes.append(_small(x + side / 2, y + side / 2 + 4, str(group), ink))
    return shapes


def _outline(x: float, y: float, width: float, height: float, words: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" '
        f'fill="#8882" stroke="{LINE}" stroke-width="1"><title>{escape(words)}</title></rect>'
    )


def _small(x: float, y: float, words: str, colour: str = LINE) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{SMALL}" '
        f'fill="{colour}">{escape(words)}</text>'
    )


def _label(x: float, y: float, words: str) -> str:
    """Words that are read across links: the page's colour shines around them."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{LINE}" '
        f'stroke="Canvas" stroke-width="5" paint-order="stroke">{escape(words)}</text>'
    )
