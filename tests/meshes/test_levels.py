"""The table of network levels: bandwidth, latency and units of clusters of the catalogue."""

from dataclasses import replace

import numpy as np
import pytest

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.levels import LinkLabels, levels
from scaling.meshes.link_figures import path_latency
from scaling.meshes.provenance import overridden


def test_the_levels_of_a_superpod_from_the_chip_outwards():
    found = {level.name: level.bandwidth for level in levels(catalog.load("dgx-h100", 512))}
    assert found == {
        "NVLink of a chip": 450e9,
        "NICs of a node": 400e9,
        "uplinks of a leaf group": pytest.approx(12.8e12),
        "uplinks of a spine layer": pytest.approx(51.2e12),
        "NIC of a chip": 50e9,
    }


def test_a_network_step_has_the_latency_of_its_links():
    """NCCL 2.30.7: 0.6 us over NVLink, 2.7 over the network; a switch adds 0.13 each way."""
    found = [level.hop_latency for level in levels(catalog.load("dgx-h100", 512)) if level.own_hops]
    assert found == pytest.approx([0.6e-6, 2.7e-6, 2.96e-6, 3.22e-6])


def test_oversubscription_narrows_every_level_above_it():
    cluster = catalog.load("dgx-h100", 512)
    half = replace(cluster.fabric.leaf_oversubscription, value=2.0)
    fabric = replace(cluster.fabric, leaf_oversubscription=half, spine_oversubscription=half)
    found = {level.name: level.bandwidth for level in levels(replace(cluster, fabric=fabric))}
    assert found["NICs of a node"] == 400e9
    assert found["uplinks of a leaf group"] == pytest.approx(12.8e12 / 2)
    assert found["uplinks of a spine layer"] == pytest.approx(51.2e12 / 4)


def test_links_from_each_chip_to_each_other_add_up():
    cluster = catalog.load("dgx-h100")
    link = replace(cluster.links[0], parts=("chip", "chip"), wiring="all", count=2)
    found = levels(replace(cluster, links=(link, *cluster.links[1:])))
    assert (found[0].bandwidth, found[0].hop_latency) == (7 * 50e9, 0.3e-6)


def test_a_cluster_without_figures_or_paths_says_what_is_missing():
    with pytest.raises(InputError, match="host: no pcie link from a chip"):
        levels(catalog.load("host"))
    cluster = catalog.load("dgx-h100", 2)
    with pytest.raises(InputError, match="no link leads from a chip to a tower"):
        path_latency(cluster, "chip", "tower")
    unknown = replace(cluster.links[0], bandwidth=None)
    with pytest.raises(InputError, match="links chip - nvswitch have no figures yet"):
        levels(replace(cluster, links=(unknown, *cluster.links[1:])))
    timeless = replace(cluster.links[0], latency=None)
    with pytest.raises(InputError, match="links chip - nvswitch have no figures yet"):
        levels(replace(cluster, links=(timeless, *cluster.links[1:])))


def changed(cluster, parts, **figures):
    """The cluster with other figures of the link between two kinds of part."""
    new = {key: overridden(value) for key, value in figures.items()}
    specs = [replace(j, **new) if j.parts == parts else j for j in cluster.links]
    return replace(cluster, links=tuple(specs))


def test_a_nic_is_no_faster_than_its_own_pcie_link_or_those_of_the_chips():
    cluster = changed(catalog.load("dgx-h100", 2), ("nic", "leaf"), bandwidth=400e9)
    found = {level.name: level.bandwidth for level in levels(cluster)}
    assert found["NICs of a node"] == 8 * 63e9
    assert found["NIC of a chip"] == 63e9
    cluster = changed(cluster, ("chip", "pcie_switch"), bandwidth=10e9)
    found = {level.name: level.bandwidth for level in levels(cluster)}
    assert (found["NICs of a node"], found["NIC of a chip"]) == (80e9, 10e9)


def test_a_domain_that_fills_a_leaf_group_is_oversubscribed_like_it():
    cluster = replace(catalog.load("dgx-h100", 4), domain_nodes=2)
    half = replace(cluster.fabric.leaf_oversubscription, value=2.0)
    two = replace(cluster.fabric.leaf_nodes, value=2)
    fabric = replace(cluster.fabric, leaf_nodes=two, leaf_oversubscription=half)
    found = {level.name: level for level in levels(replace(cluster, fabric=fabric))}
    nics = found["NICs of an NVLink domain"]
    assert nics.bandwidth == 2 * 400e9 / 2
    assert nics.hop_latency == pytest.approx(2.7e-6 + 2 * 0.13e-6)  # by way of a spine


def test_a_latency_of_zero_leaves_the_table_as_it_is():
    """Which levels have hops of their own is a field, not a latency above zero."""
    cluster = catalog.load("dgx-h100", 4)
    specs = [replace(j, latency=replace(j.latency, value=0.0)) for j in cluster.links]
    without = levels(replace(cluster, links=tuple(specs)))
    assert [level.own_hops for level in without] == [True, True, False]
    assert [level.hop_latency for level in without] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", [n for n in catalog.names() if n != "host"])
def test_labels_never_fall_from_device_to_device(name):
    """What counting without sorting needs; `LinkLabels` refuses other labels."""
    for level in levels(catalog.load(name, 4)):
        assert 1 <= level.pools and 1 <= level.units and level.bandwidth > 0
    with pytest.raises(AssertionError):
        LinkLabels(np.array([1, 0]), *[np.zeros(2, int)] * 3)
