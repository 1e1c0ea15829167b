"""Folded counts of what crosses: equal to counts of every member of every group, however uneven."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import KINDS, shares, transfers
from scaling.collectives.contention import chip_sets, crossing, in_order, parts_of
from scaling.collectives.loads import have_rings, levels_for
from scaling.collectives.traffic import STRAIGHT, Load, load
from scaling.meshes import catalog
from scaling.meshes.detours import straight_links
from scaling.meshes.levels import LinkLabels, levels
from scaling.meshes.rings import FAST, direct_links, ring_count
from scaling.meshes.shape import groups_along
from scaling.profiles.profile import ALGORITHMS

# A switch in the node and in a domain, links to each other, in a cube, bridges; PCIe, two ways
NAMES = ("dgx-h100", "gb200-nvl72", "mi300x-8", "dgx-v100", "rtx3090-10-nvlink", "h100-pcie-8")
PAIRED = ("dgx-v100", "rtx3090-10-nvlink")
USES = [(a, kind) for a in ALGORITHMS for kind in KINDS[a] if kind != "permute"]


def cluster_of(name, nodes, leaf):
    """Of the catalogue, with so many nodes under one group of leaf switches."""
    cluster = catalog.load(name, nodes)
    size = replace(cluster.fabric.leaf_nodes, value=leaf)
    return replace(cluster, fabric=replace(cluster.fabric, leaf_nodes=size))


def clusters(names):
    nodes, leaf = st.sampled_from([1, 2, 3, 5, 20]), st.sampled_from([2, 32])
    return st.builds(cluster_of, st.sampled_from(names), nodes, leaf)


@st.composite
def groups_on(draw, cluster):
    """Groups of any devices in any order, which may overlap; or along axes of a mesh."""
    devices = min(cluster.devices, draw(st.sampled_from([8, 24, 400])))
    if draw(st.booleans()):
        inner = draw(st.sampled_from([n for n in range(1, devices + 1) if devices % n == 0]))
        sizes = {"a": devices // inner, "b": inner}
        return groups_along(sizes, [draw(st.sampled_from(["a", "b"]))])
    members = draw(st.integers(1, min(devices, 12)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = [rng.permutation(devices)[:members] for _ in range(draw(st.integers(1, 6)))]
    return np.array(rows)


@st.composite
def cases(draw, names=(*NAMES, "rtx3090-10")):
    """A cluster with its uplinks, and groups."""
    cluster = draw(clusters(names))
    groups = draw(groups_on(cluster))
    return cluster, groups, levels_for(groups, cluster)


def alike(labels):
    """Of every member, how many of its group have the same label."""
    return (labels[:, :, None] == labels[:, None, :]).sum(axis=2)


def rings_of(kind, groups, uplink):
    """Of every member, the rings through those of its group in its node; straight, its links."""
    count = straight_links if kind == "all-to-all" else ring_count
    chips, found = groups % len(uplink.pair_links), np.ones(groups.shape)
    homes = uplink.labels.region[groups]
    for row in range(len(groups)):
        for column, home in enumerate(homes[row]):
            inside = tuple(sorted(set(chips[row][homes[row] == home].tolist())))
            if len(inside) > 1:
                found[row, column] = max(1, count(uplink.pair_links, inside))
    return found


def unfolded(kind, groups, uplink, algorithm):
    """Bytes over every pool, and its groups, member by member; neighbours group by group."""
    places, members = uplink.labels, groups.shape[1]
    inside, within = alike(places.unit[groups]), alike(places.region[groups])
    each = shares(algorithm, kind, inside, within, members, uplink.innermost)
    if uplink.peers:
        each = each * uplink.peers / np.maximum(within - inside, 1)
    if uplink.pair_links:
        each = each / rings_of(kind, groups, uplink)
    pools, crosses = places.pool[groups], inside < within
    totals = np.bincount(pools.ravel(), np.where(crosses, each, 0.0).ravel())
    users = [int((crosses & (pools == pool)).any(axis=1).sum()) for pool in range(len(totals))]
    joined = max(
        len({u for u, p in zip(units, parents, strict=True) if p == parent})
        for units, parents in zip(
            places.unit[groups].tolist(), places.parent[groups].tolist(), strict=True
        )
        for parent in parents
    )
    return totals, np.array(users), joined


@given(cases(), st.sampled_from(USES))
def test_folded_loads_are_those_of_every_member(case, use):
    _, groups, links = case
    algorithm, kind = use
    for uplink in links:
        if uplink.point_to_point and kind not in STRAIGHT:
            continue
        totals, users, joined = unfolded(kind, groups, uplink, algorithm)
        found = load(kind, groups, uplink, algorithm)
        assert found.share == pytest.approx(totals.max(), rel=1e-12), uplink.name
        busiest = np.isclose(totals, totals.max(), rtol=1e-12, atol=0)
        assert found.groups in users[busiest]
        assert (found.neighbours, found.transfers) == (
            joined,
            transfers(algorithm, kind, groups.shape[1]),
        )


@given(cases(names=PAIRED))
def test_a_node_has_rings_for_its_groups_where_each_of_them_has_one(case):
    cluster, groups, _ = case
    links, n = direct_links(cluster, FAST), cluster.devices_per_node
    parts = [
        tuple(sorted({d % n for d in row if d // n == node}))
        for row in groups.tolist()
        for node in {d // n for d in row}
    ]
    needed = [part for part in parts if len(part) > 1]
    expected = bool(needed) and all(ring_count(links, part) for part in needed)
    assert have_rings(groups, tuple(row[:n] for row in links[:n])) == expected


@given(cases())
def test_every_member_is_in_one_part(case):
    _, groups, links = case
    for uplink in links:
        parts = parts_of(in_order(groups), uplink.labels, uplink.pair_links)
        assert parts.count.sum() == groups.size
        assert np.bincount(parts.group, parts.count).tolist() == [groups.shape[1]] * len(groups)
        assert np.all(parts.count <= groups.shape[1])
        assert np.all((parts.inside <= parts.within) & (parts.within <= groups.shape[1]))


@pytest.mark.parametrize("axis", ["data", "fsdp", "tensor"])
def test_groups_that_are_alike_are_one_class_in_one_pool(axis):
    cluster = catalog.load("dgx-h100", 128)
    groups = groups_along({"data": 16, "fsdp": 8, "tensor": 8}, [axis])
    for uplink in levels(cluster):
        found = crossing(groups, uplink.labels)
        assert found.counts.shape in ((1, 1), (1, 0)), uplink.name


def test_pools_that_differ_are_kept_apart():
    """Three of four in the first unit of 4: as many bytes in and out, by 3 members and by 1."""
    labels = np.arange(8) // 4
    places = LinkLabels(labels, labels, np.zeros(8, int), np.zeros(8, int))
    found = crossing(np.array([[0, 1, 2, 4]]), places)
    assert (found.inside.tolist(), found.within.tolist()) == ([1, 3], [4, 4])
    assert found.counts.tolist() == [[0, 3], [1, 0]]
    assert (found.users.tolist(), found.neighbours) == ([1, 1], 2)


def test_what_crosses_nothing_has_no_classes():
    everyone = np.arange(8)
    places = LinkLabels(everyone, everyone, everyone, everyone)
    assert crossing(np.array([[0, 1], [2, 3]]), places).counts.size == 0


@given(st.lists(st.sets(st.integers(0, 61), min_size=1), min_size=1, max_size=8))
def test_sets_of_chips_are_found_once_each(sets):
    runs = [sorted(chips) for chips in sets]
    starts = np.cumsum([0, *map(len, runs[:-1])])
    found, number = chip_sets(np.concatenate(runs), starts)
    assert [found[k] for k in number] == [tuple(run) for run in runs]
    assert len(found) == len(set(found))


def test_a_load_of_nothing_is_nothing():
    uplink = levels(catalog.load("dgx-h100", 2))[0]
    assert load("all-reduce", np.array([[0], [9]]), uplink, "ring") == Load(0.0, 0, 1)
