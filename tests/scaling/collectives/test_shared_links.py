"""Groups that share a link, counted by hand: in closed form and in the message-level replay."""

from dataclasses import replace

import numpy as np
import pytest

from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import network_link
from scaling.meshes.link_figures import node_bandwidth
from scaling.meshes.provenance import overridden
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal
from tests.oracle.replay import replay

GB = 1e9
BOTH = pytest.mark.parametrize("price", ["closed", "replay"])


def seconds(price, kind, size, groups, cluster, algorithm="ring", slices=1):
    """Without latencies; of what is pipelined, one more part."""
    if price == "closed":
        return collective_time(kind, size, groups, cluster, ideal(), algorithm).time
    first, second = (
        replay(kind, size * n, groups, cluster, algorithm, slices * n).time for n in (1, 2)
    )
    return second - first


def link_of(cluster, parts, bandwidth):
    """The cluster with another bandwidth of one link, as a single link."""
    links = [
        replace(j, bandwidth=overridden(bandwidth), count=1) if j.parts == parts else j
        for j in cluster.links
    ]
    return replace(cluster, links=tuple(links))


@BOTH
def test_data_groups_behind_one_nic_share_it(price):
    """Each sends 2 x 1/2 GB out of a node, over 2.5 GB/s: alone 0.4 s, ten at once 4 s."""
    cluster = catalog.load("rtx3090-10", 2)
    groups = parse_mesh("data=2,tensor=10").groups(["data"])
    one, ten = (
        seconds(price, "all-reduce", GB, some, cluster, slices=4) for some in (groups[:1], groups)
    )
    assert (one, ten) == (pytest.approx(0.4, rel=0.02), pytest.approx(4.0, rel=0.02))


@BOTH
def test_eight_data_groups_on_eight_rails_do_not(price):
    """Each has a NIC of 50 GB/s to itself: 20 ms, alone or not."""
    cluster = catalog.load("dgx-h100", 2)
    groups = parse_mesh("data=2,tensor=8").groups(["data"])
    for some in (groups[:1], groups):
        assert seconds(price, "all-reduce", GB, some, cluster) == pytest.approx(0.02)


@BOTH
def test_each_of_two_groups_uses_the_nics_of_its_own_chips(price):
    """Chips 0 .. 3 of both nodes, and 4 .. 7: four NICs each, alone or not."""
    cluster = catalog.load("dgx-h100", 2)
    groups = parse_mesh("data=2,fsdp=2,tensor=4").groups(["data", "tensor"])
    one, two = (seconds(price, "all-gather", GB, some, cluster) for some in (groups[:1], groups))
    assert one == two == pytest.approx(7 / 8 / (4 * 50))


@BOTH
@pytest.mark.parametrize(
    "pairs, shared", [([[0, 8], [1, 9]], 2), ([[0, 8], [2, 10]], 1), ([[0, 10], [2, 8]], 1)]
)
def test_chips_below_one_nic_share_it_for_what_they_send_by_themselves(price, pairs, shared):
    """Eight chips, four NICs of 50 GB/s: 1 GB each from chips 0 and 1 leave by the first."""
    whole = catalog.load("dgx-h100", 2)
    cluster = replace(whole, parts={**whole.parts, "nic": 4, "pcie_switch": 4})
    found = seconds(price, "permute", GB, np.array(pairs), cluster)
    assert found == pytest.approx(0.02 * shared)


@BOTH
@pytest.mark.parametrize("nodes", [2, 3])
def test_chips_with_nvlink_reach_nics_of_the_cpu_through_their_pcie_switch(price, nodes):
    """Of eight chips two below each switch: 20 GB/s for both, where the NICs have 50 each."""
    whole = catalog.load("dgx-h100", nodes)
    links = [replace(j, parts=("nic", "socket")) if j.parts[0] == "nic" and j.kind == "pcie" else j
             for j in whole.links]  # fmt: skip
    cluster = replace(whole, links=tuple(links), parts={**whole.parts, "pcie_switch": 4})
    cluster = link_of(cluster, ("pcie_switch", "socket"), 20 * GB)
    groups = np.array([[0, 8], [1, 9]])
    assert seconds(price, "permute", GB, groups, cluster) == pytest.approx(2 / 20)


def test_chips_without_a_link_to_each_other_go_through_their_cpu_not_their_nic():
    """Dies 0 and 3 of a node of MI250X: 36 GB/s to the CPU, 31.5 GB/s to the NIC."""
    cluster, pair = catalog.load("mi250x-8"), np.array([[0, 3]])
    cost = collective_time("all-gather", 36 * GB, pair, cluster, ideal())
    assert cost.time == pytest.approx(0.5) and cost.bottleneck.startswith("PCIe of a chip")


def test_nics_have_the_wires_of_the_chips_that_are_used():
    """Four of six chips, three for each of two NICs: one of them has one wire."""
    whole = catalog.load("mi250x-8", 2)
    links = [replace(j, kind="pcie") if j.parts == ("chip", "socket") else j for j in whole.links]
    parts = {**whole.parts, "chip": 6, "nic": 2}
    cluster = replace(whole, links=tuple(links), parts=parts, devices_per_node=4)
    slow = link_of(cluster, ("chip", "nic"), 1 * GB)
    assert node_bandwidth(slow, slow.fabric, network_link(slow), 1) == 4 * GB


@BOTH
def test_a_ring_that_crosses_the_socket_link_twice_pays_twice(price):
    """Cards 0-3 on one socket, 4-7 on the other, 10 GB/s each way between the sockets."""
    cluster = link_of(catalog.load("h100-pcie-8"), ("socket", "socket"), 10e9)
    once, twice = (
        seconds(price, "permute", GB, np.array([ring]), cluster)
        for ring in ([0, 1, 4, 5], [0, 4, 1, 5])
    )
    assert (once, twice) == (pytest.approx(0.1), pytest.approx(0.2))


def test_what_a_node_sends_for_a_sharded_array_is_the_array_once():
    """Eight groups with an eighth each, or one group of all: 2 x 3/4 or 2 x 31/32 of 8 GB."""
    cluster = catalog.load("dgx-h100", 4)
    mesh = parse_mesh("data=4,tensor=8")
    shards, whole = (
        replay("all-reduce", size, mesh.groups(axes), cluster).carried("node0/nic", "leaf")
        for size, axes in ((GB, ["data"]), (8 * GB, ["data", "tensor"]))
    )
    assert sum(shards.values()) == pytest.approx(2 * 3 / 4 * 8 * GB)
    assert sum(whole.values()) == pytest.approx(2 * 31 / 32 * 8 * GB)


@BOTH
def test_groups_under_an_oversubscribed_leaf_share_what_leads_up(price):
    """Two nodes a leaf, half of the bandwidth upwards: 16 groups over 8 x 50 GB/s."""
    cluster = catalog.load("dgx-h100", 4)
    fabric = replace(
        cluster.fabric,
        leaf_nodes=replace(cluster.fabric.leaf_nodes, value=2),
        leaf_oversubscription=replace(cluster.fabric.leaf_oversubscription, value=2.0),
    )
    cluster = replace(cluster, fabric=fabric)
    groups = parse_mesh("data=2,fsdp=2,tensor=8").groups(["data"])  # nodes 0 and 2, 1 and 3
    assert seconds(price, "all-reduce", GB, groups, cluster) == pytest.approx(16 / 400)
    assert seconds(price, "all-reduce", GB, groups[:8], cluster) == pytest.approx(8 / 400)
