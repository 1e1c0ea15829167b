"""Clusters as graphs: everything is joined, levels agree with the wiring, widths with the ports."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.cluster import unreached_parts
from scaling.meshes.errors import InputError
from scaling.meshes.placement import crossed_level
from tests.oracle.graph import chip_name, expand

MEASURED = [name for name in catalog.names() if name != "host"]


def crossed(cluster, *devices):
    return crossed_level(np.array([devices]), cluster)


def outgoing(cluster):
    """node -> {neighbour: bandwidth}, of the cluster written out."""
    graph = expand(cluster)
    table = {node.name: {} for node in graph.nodes}
    for link in graph.links:
        assert link.target not in table[link.source], "one link each way between two nodes"
        table[link.source][link.target] = link.bandwidth
    return table


def shortest_path(table, start, end):
    """Breadth first; for small graphs."""
    paths = {start: [start]}
    frontier = [start]
    while end not in paths and frontier:
        reached = [(a, b) for a in frontier for b in table[a] if b not in paths]
        paths.update({b: [*paths[a], b] for a, b in reached})
        frontier = list({b for _, b in reached})
    return paths.get(end)


@pytest.mark.parametrize("name", MEASURED)
@pytest.mark.parametrize("nodes", [1, 2, 20])
def test_every_gpu_reaches_every_other(name, nodes):
    cluster = catalog.load(name, nodes)
    assert unreached_parts(cluster) == []
    table = outgoing(cluster)
    assert {chip_name(cluster, d) for d in range(cluster.devices)} <= set(table)
    first, last = chip_name(cluster, 0), chip_name(cluster, cluster.devices - 1)
    assert shortest_path(table, first, last) and shortest_path(table, last, first)
    assert all(table[b][a] == bandwidth for a in table for b, bandwidth in table[a].items())


def test_a_cluster_that_is_not_measured_says_so_when_written_out():
    with pytest.raises(InputError, match="scaling calibrate"):
        expand(catalog.load("host"))


def test_a_rail_joins_the_same_nic_of_each_node():
    table = outgoing(catalog.load("dgx-h100", 33))
    assert set(table["leaf0.5"]) == {"spine0", *(f"node{n}/nic5" for n in range(32))}
    assert set(table["leaf1.5"]) == {"spine0", "node32/nic5"}


def test_only_used_gpus_and_their_nics_are_written_out():
    graph = expand(catalog.load("dgx-h100", 2, {"gpus_per_node": 2}))
    kinds = [node.kind for node in graph.nodes]
    assert (kinds.count("chip"), kinds.count("nic"), kinds.count("nvswitch")) == (4, 4, 2)


@pytest.mark.parametrize(
    ("a", "b", "level"),
    [(5, 5, "chip"), (0, 7, "node"), (0, 8, "leaf"), (0, 255, "leaf"), (255, 256, "spine")]
    + [(0, 1023, "spine"), (1023, 1024, "core"), (0, 16383, "core")],
)
def test_level_of_two_devices_among_16384(a, b, level):
    cluster = catalog.load("dgx-h100", 2048)
    assert crossed(cluster, a, b) == crossed(cluster, b, a) == level


@settings(max_examples=10, deadline=None)  # each writes a cluster out
@given(st.integers(2, 90), st.data())
def test_levels_agree_with_the_highest_switch_on_the_way(nodes, data):
    """The shortest path between equal chips of two nodes turns at the level crossed."""
    cluster = catalog.load("dgx-a100", nodes)
    device = st.integers(0, nodes - 1)
    a, b = 8 * data.draw(device), 8 * data.draw(device)
    path = shortest_path(outgoing(cluster), chip_name(cluster, a), chip_name(cluster, b))
    kinds = {name.split("/")[-1].rstrip("0123456789.") for name in path}
    expected = next((k for k in ("core", "spine", "leaf") if k in kinds), "chip")
    assert crossed(cluster, a, b) == expected
