"""A cluster from the chips up: a layer for each network level, with the links that lead to it.

    ==========================    NICs of a node, 400 GB/s     a bar joins the units of a level
         |             |                                       that are neighbours, lines are links
    ===========    ===========    NVLink of a chip, 450 GB/s
    [] [] [] []    [] [] [] []    chips of a node

A level that only bounds the bytes of another one stands in the words beside that one's bar.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.levels import NetworkLevel, levels
from scaling.meshes.torus import shape_text
from scaling.meshes.units import format_rate, format_size
from scaling.pictures.palette import BLACK, BLUE, GREEN, GREY, ORANGE
from scaling.pictures.plots.style import SMALL, picture

MOST_CHIPS = 32  # that are drawn; of one node all
LINKS = {"nvlink": GREEN, "xgmi": GREEN, "ici": GREEN, "pcie": ORANGE, "network": BLUE}
RISE = 1.0  # height of a layer, in widths of a chip's place
LABEL = 8.0  # width of the labels, in the same
INCH = 0.22  # width of a chip's place


def plot_cluster(cluster: Cluster, title: str, path: Path) -> None:
    """Draw the chips of a cluster and the levels of its network.

    Args:
        cluster: of more than MOST_CHIPS chips the first nodes are drawn.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: links without figures; and see `plot_bandwidth`.
    """
    per_node = cluster.devices_per_node
    nodes = min(cluster.nodes, max(1, MOST_CHIPS // per_node))
    places = np.arange(nodes * per_node) + np.arange(nodes * per_node) // per_node
    width, layers = float(places[-1] + 1), _layers(cluster)
    size = INCH * (width + LABEL) + 1.0, 2.4 * INCH * (RISE * len(layers) + 2.5)
    with picture(path, size=size) as axes:
        _draw_chips(axes, cluster, places, nodes)
        for number, (level, words) in enumerate(layers):
            _draw_level(axes, level, places, RISE * (number + 1))
            axes.text(width + 0.6, RISE * (number + 1), words, va="center", fontsize=SMALL)
        axes.set(xlim=(-1.2, width + LABEL), ylim=(-1.2, RISE * len(layers) + 0.7), title=title)
        axes.set_axis_off()


def _layers(cluster: Cluster) -> list[tuple[NetworkLevel, str]]:
    """The levels to draw, each with its words and those of the levels that only bound it."""
    found: list[tuple[NetworkLevel, str]] = []
    for level in levels(cluster):
        if level.own_hops or not found:
            found.append((level, _words(level)))
        else:
            found[-1] = found[-1][0], f"{found[-1][1]}\n{_words(level)}"
    return found


def _draw_chips(axes: Any, cluster: Cluster, places: np.ndarray, nodes: int) -> None:
    from matplotlib.patches import Rectangle

    per_node, chip = cluster.devices_per_node, cluster.accelerator
    for node in range(nodes):
        left, right = places[node * per_node], places[(node + 1) * per_node - 1] + 1
        box = Rectangle((left - 0.3, -0.55), right - left + 0.5, 0.75, fc="none", ec=GREY, lw=0.8)
        axes.add_patch(box)
        axes.text((left + right) / 2, -0.7, f"node {node}", ha="center", va="top", fontsize=SMALL)
    for place in places.tolist():
        axes.add_patch(Rectangle((place + 0.05, -0.4), 0.8, 0.45, fc=BLACK, lw=0))
    memory = "" if chip.memory is None else f", {format_size(chip.memory)}"
    words = f"{cluster.devices:,} {chip.name}{memory}"
    if nodes < cluster.nodes:
        words += f"\n{nodes} of {cluster.nodes:,} nodes drawn"
    axes.text(places[-1] + 1.6, -0.2, words, va="center", fontsize=SMALL)


def _draw_level(axes: Any, level: NetworkLevel, places: np.ndarray, y: float) -> None:
    """Draw a bar over neighbouring units, and a line from each pool of their links."""
    count, colour = len(places), LINKS.get(level.link, GREY)
    for pool in _runs(level.labels.pool[:count]):
        x = float(places[pool].mean()) + 0.45
        axes.plot([x, x], [y - RISE + 0.05, y], color=colour, lw=1.2)
    if level.pair_links:
        return _draw_pairs(axes, level, places, y)
    for parent in _runs(level.labels.parent[:count]):
        left, right = float(places[parent[0]]), float(places[parent[-1]]) + 0.9
        goes_on = parent[-1] == count - 1 and _goes_on(level.labels.parent, count)
        axes.plot([left, right + 0.5 * goes_on], [y, y], color=colour, lw=4, solid_capstyle="butt")


def _draw_pairs(axes: Any, level: NetworkLevel, places: np.ndarray, y: float) -> None:
    """Draw a bar for each pair of chips of a node that has links of its own."""
    links = np.array(level.pair_links)
    for node in range(len(places) // len(links)):
        for first, second in np.argwhere(np.triu(links)).tolist():
            ends = places[[node * len(links) + first, node * len(links) + second]] + 0.45
            axes.plot(ends, [y, y], color=LINKS.get(level.link, GREY), lw=4)


def _words(level: NetworkLevel) -> str:
    """`NVLink of a chip, 450 GB/s`."""
    shape = "" if level.grid is None else f", torus {shape_text(level.grid.shape)}"
    return f"{level.name}{shape}, {format_rate(level.bandwidth)}"


def _runs(labels: np.ndarray) -> Sequence[np.ndarray]:
    """Indices of neighbours with the same label."""
    return np.split(np.arange(len(labels)), np.flatnonzero(np.diff(labels)) + 1)


def _goes_on(labels: np.ndarray, count: int) -> bool:
    """True if the unit of the last device that is drawn has more devices."""
    return count < len(labels) and bool(labels[count] == labels[count - 1])
