"""Bytes over uplinks: the fast count against one that follows every byte of every group."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.contention import Places
from scaling.collectives.traffic import Uplink, load, pairs_of
from scaling.collectives.uplinks import uplinks
from scaling.collectives.wiring import path_latency
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import overridden

DEVICES = 16
UNIT = 4  # devices per unit; two units per region of 8


def uplink(region=DEVICES):
    devices = np.arange(DEVICES)
    unit = devices // UNIT
    places = Places(unit, unit, devices // region, devices // region)
    return Uplink("uplink", "network", 1.0, 1.0, places)


@st.composite
def group_arrays(draw):
    """Disjoint groups of equal size, in any order."""
    members = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16]))
    order = draw(st.permutations(range(DEVICES)))
    count = draw(st.integers(1, DEVICES // members))
    return np.array(order[: members * count]).reshape(count, members)


def counted(kind, groups, region):
    """Bytes into the busiest unit per byte of the call, with sets and loops."""
    totals = Counter()
    for group in groups.tolist():
        for unit in range(DEVICES // UNIT):
            near = [d for d in group if d // region == unit * UNIT // region]
            inside = [d for d in near if d // UNIT == unit]
            outside = len(near) - len(inside)
            if not inside or not outside:
                continue
            totals[unit] += {
                "all-gather": outside / len(near),
                "reduce-scatter": outside / len(near),
                "all-reduce": 2 * outside / len(near),
                "all-to-all": len(inside) * outside / len(group),
                "broadcast": 1.0,
            }[kind]
    return max(totals.values(), default=0.0)


@given(
    st.sampled_from(["all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast"]),
    group_arrays(),
    st.sampled_from([8, DEVICES]),
)
def test_the_load_is_that_of_following_every_group(kind, groups, region):
    found = load(kind, groups, uplink(region))
    assert found.share == pytest.approx(counted(kind, groups, region))
    assert bool(found.groups) == bool(found.share)


@given(group_arrays(), st.sampled_from([8, DEVICES]))
def test_a_permute_loads_what_its_pairs_cross(groups, region):
    out, into = Counter(), Counter()
    source, target = pairs_of(groups)
    for a, b in zip(source.tolist(), target.tolist(), strict=True):
        if a // UNIT != b // UNIT and a // region == b // region:
            out[a // UNIT] += 1
            into[b // UNIT] += 1
    assert load("permute", groups, uplink(region)).share == max(
        [*out.values(), *into.values()], default=0
    )


def test_rows_of_two_are_pairs_and_longer_rows_are_rings():
    assert np.transpose(pairs_of(np.array([[0, 1], [2, 3]]))).tolist() == [[0, 1], [2, 3]]
    assert np.transpose(pairs_of(np.array([[0, 1, 2]]))).tolist() == [[0, 1], [1, 2], [2, 0]]


@given(group_arrays())
def test_neighbours_are_the_units_that_one_group_joins(groups):
    expected = max(len({d // UNIT for d in group}) for group in groups.tolist())
    assert load("all-gather", groups, uplink()).neighbours == expected


# The uplinks of catalogue clusters


def test_the_uplinks_of_a_superpod_inside_out():
    found = {u.words: u.bandwidth for u in uplinks(catalog.load("dgx-h100", 512))}
    assert found == {
        "NVLink of a chip": 450e9,
        "NICs of a node": 400e9,
        "uplinks of a leaf group": pytest.approx(12.8e12),
        "uplinks of a spine layer": pytest.approx(51.2e12),
        "NIC of a chip": 50e9,
    }


def test_a_network_step_has_the_latency_of_its_links():
    """NCCL 2.30.7: 0.6 us over NVLink, 2.7 over the network; a switch adds 0.13 each way."""
    found = [u.latency for u in uplinks(catalog.load("dgx-h100", 512)) if u.latency]
    assert found == pytest.approx([0.6e-6, 2.7e-6, 2.96e-6, 3.22e-6])


def test_oversubscription_narrows_every_level_above_it():
    cluster = catalog.load("dgx-h100", 512)
    half = replace(cluster.fabric.leaf_oversubscription, value=2.0)
    fabric = replace(cluster.fabric, leaf_oversubscription=half, spine_oversubscription=half)
    found = {u.words: u.bandwidth for u in uplinks(replace(cluster, fabric=fabric))}
    assert found["NICs of a node"] == 400e9
    assert found["uplinks of a leaf group"] == pytest.approx(12.8e12 / 2)
    assert found["uplinks of a spine layer"] == pytest.approx(51.2e12 / 4)


def test_a_single_node_has_no_network():
    assert [u.link for u in uplinks(catalog.load("dgx-h100"))] == ["nvlink"]
    assert [u.link for u in uplinks(catalog.load("rtx3090-10"))] == ["pcie"] * 3


def test_units_are_nested():
    """Two devices of one unit are in one unit of every higher level too."""
    levels = [u.places.unit for u in uplinks(catalog.load("dgx-h100", 512))][:-1]
    for low, high in pairwise(levels):
        assert len(set(zip(low.tolist(), high.tolist(), strict=True))) == len(set(low.tolist()))


def test_five_cards_share_a_pcie_switch():
    switch = uplinks(catalog.load("rtx3090-10", 2))[1].places.pool
    assert np.bincount(switch).tolist() == [5, 5, 5, 5]


def test_links_from_each_chip_to_each_other_add_up():
    cluster = catalog.load("dgx-h100")
    link = replace(cluster.links[0], parts=("chip", "chip"), wiring="all", count=2)
    found = uplinks(replace(cluster, links=(link, *cluster.links[1:])))
    assert (found[0].bandwidth, found[0].latency) == (7 * 50e9, 0.3e-6)


def test_bridges_between_pairs_do_not_replace_pcie():
    cluster = catalog.load("dgx-h100")
    bridge = replace(cluster.links[0], parts=("chip", "chip"), wiring="pairs", pairs=((0, 1),))
    found = uplinks(replace(cluster, links=(bridge, *cluster.links[1:])))
    assert [u.words for u in found][:2] == ["PCIe of a chip", "PCIe of a switch"]


def test_a_cluster_without_figures_or_paths_says_what_is_missing():
    with pytest.raises(InputError, match="host: no pcie link from a chip"):
        uplinks(catalog.load("host"))
    cluster = catalog.load("dgx-h100", 2)
    with pytest.raises(InputError, match="no link leads from a chip to a tower"):
        path_latency(cluster, "chip", "tower")
    unknown = replace(cluster.links[0], bandwidth=None)
    with pytest.raises(InputError, match="links chip - nvswitch have no figures yet"):
        uplinks(replace(cluster, links=(unknown, *cluster.links[1:])))
    timeless = replace(cluster.links[0], latency=None)
    with pytest.raises(InputError, match="links chip - nvswitch have no figures yet"):
        uplinks(replace(cluster, links=(timeless, *cluster.links[1:])))


def test_a_permute_between_two_chips_uses_only_the_link_that_joins_them():
    """Eight MI300X have 64 GB/s to each of seven others, not 448 GB/s to any one of them."""
    xgmi = uplinks(catalog.load("mi300x-8"))[0]
    one = load("permute", np.array([[0, 4]]), xgmi)
    assert one.share / xgmi.bandwidth == pytest.approx(1 / 64e9)
    apart = load("permute", np.array([[0, 4], [1, 5], [0, 5]]), xgmi)
    assert apart.share == one.share
    twice = load("permute", np.array([[0, 4], [0, 4]]), xgmi)
    assert twice.share == 2 * one.share


def changed(cluster, parts, **figures):
    """The cluster with other figures of the link between two kinds of part."""
    new = {key: overridden(value) for key, value in figures.items()}
    links = [replace(j, **new) if j.parts == parts else j for j in cluster.links]
    return replace(cluster, links=tuple(links))


def test_a_nic_is_no_faster_than_its_own_pcie_link_or_those_of_the_chips():
    cluster = changed(catalog.load("dgx-h100", 2), ("nic", "leaf"), bandwidth=400e9)
    found = {u.words: u.bandwidth for u in uplinks(cluster)}
    assert found["NICs of a node"] == 8 * 63e9
    assert found["NIC of a chip"] == 63e9
    cluster = changed(cluster, ("chip", "pcie_switch"), bandwidth=10e9)
    found = {u.words: u.bandwidth for u in uplinks(cluster)}
    assert (found["NICs of a node"], found["NIC of a chip"]) == (80e9, 10e9)


def test_a_domain_that_fills_a_leaf_group_is_oversubscribed_like_it():
    cluster = replace(catalog.load("dgx-h100", 4), domain_nodes=2)
    half = replace(cluster.fabric.leaf_oversubscription, value=2.0)
    two = replace(cluster.fabric.leaf_nodes, value=2)
    fabric = replace(cluster.fabric, leaf_nodes=two, leaf_oversubscription=half)
    found = {u.words: u for u in uplinks(replace(cluster, fabric=fabric))}
    nics = found["NICs of an NVLink domain"]
    assert nics.bandwidth == 2 * 400e9 / 2
    assert nics.latency == pytest.approx(2.7e-6 + 2 * 0.13e-6)  # by way of a spine


def test_cards_behind_two_sockets_share_the_links_between_them():
    cluster = catalog.load("h100-pcie-8", 2)
    sockets = uplinks(cluster)[2]
    assert (sockets.words, sockets.bandwidth) == ("links between sockets", 128e9)
    assert np.bincount(sockets.places.unit).tolist() == [4, 4, 4, 4]
    assert load("permute", np.array([[0, 4], [1, 5], [4, 0]]), sockets).share == 2
    assert load("permute", np.array([[0, 8], [0, 1]]), sockets).share == 0
