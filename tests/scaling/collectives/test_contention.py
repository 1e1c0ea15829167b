"""Loads of links: the counts by classes against counts member by member and byte by byte."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import ALGORITHMS, SENDS, Boundary
from scaling.collectives.contention import (
    LinkLoad,
    group_classes,
    in_order,
    level_load,
    levels_for,
    pairs_of,
)
from scaling.collectives.pair_links import have_rings
from scaling.meshes import catalog
from scaling.meshes.levels import LinkLabels, NetworkLevel, levels
from scaling.meshes.rings import FAST, direct_links, ring_count
from scaling.meshes.shape import groups_along
from tests.scaling.collectives.test_physics import NAMES, clusters

USES = [(a.name, k) for a in ALGORITHMS.values() for k in a.kinds if k != "permute"]
DEVICES = 16
UNIT = 4  # devices per unit; two units per region of 8


def level(region=DEVICES):
    devices = np.arange(DEVICES)
    unit = devices // UNIT
    labels = LinkLabels(unit, unit, devices // region, devices // region)
    return NetworkLevel("links", "network", 1.0, 1.0, labels)


@st.composite
def group_arrays(draw):
    """Disjoint groups of equal size, in any order."""
    members = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 16]))
    order = draw(st.permutations(range(DEVICES)))
    count = draw(st.integers(1, DEVICES // members))
    return np.array(order[: members * count]).reshape(count, members)


@given(group_arrays(), st.sampled_from([8, DEVICES]))
def test_a_permute_loads_what_its_pairs_cross(groups, region):
    out, into = Counter(), Counter()
    source, target = pairs_of(groups)
    for a, b in zip(source.tolist(), target.tolist(), strict=True):
        if a // UNIT != b // UNIT and a // region == b // region:
            out[a // UNIT] += 1
            into[b // UNIT] += 1
    most = max([*out.values(), *into.values()], default=0)
    assert level_load("permute", groups, level(region)).share == most


# Levels of catalogue clusters


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
    """A cluster, groups on it, and the levels that they use."""
    cluster = draw(clusters(names))
    groups = draw(groups_on(cluster))
    return cluster, groups, levels_for(groups, cluster)


def alike(labels):
    """For every member, how many of its group have the same label."""
    return (labels[:, :, None] == labels[:, None, :]).sum(axis=2)


def units_of(units, regions):
    """For every member, the units of its group in its region."""
    counts = [
        [len({u for u, r in zip(*row, strict=True) if r == region}) for region in row[1]]
        for row in zip(units.tolist(), regions.tolist(), strict=True)
    ]
    return np.array(counts)


def rings_of(groups, level):
    """For every member, the rings through those of its group in its node."""
    chips, rings = groups % len(level.pair_links), np.ones(groups.shape)
    regions = level.labels.region[groups]
    for row in range(len(groups)):
        for column, region in enumerate(regions[row]):
            inside = tuple(sorted(set(chips[row][regions[row] == region].tolist())))
            if len(inside) > 1:
                rings[row, column] = max(1, ring_count(level.pair_links, inside))
    return rings


def member_by_member(kind, groups, level, algorithm):
    """Bytes over every pool, and its groups, without classes."""
    labels, ranks = level.labels, groups.shape[1]
    inside, within = alike(labels.unit[groups]), alike(labels.region[groups])
    units = units_of(labels.unit[groups], labels.region[groups])
    at = Boundary(inside, within, units, ranks, level.innermost)
    each = ALGORITHMS[algorithm].bytes_out(kind, at)
    if level.peers:
        each = each * level.peers / np.maximum(within - inside, 1)
    if level.pair_links:
        each = within**2 // 4 / ranks if kind == "all-to-all" else each
        each = each / rings_of(groups, level)
    pools, crosses = labels.pool[groups], inside < within
    totals = np.bincount(pools.ravel(), np.where(crosses, each, 0.0).ravel())
    users = [int((crosses & (pools == pool)).any(axis=1).sum()) for pool in range(len(totals))]
    joined = units_of(labels.unit[groups], labels.parent[groups]).max()
    return totals, np.array(users), joined


@given(cases(), st.sampled_from(USES))
def test_loads_by_classes_are_those_of_every_member(case, use):
    _, groups, every = case
    algorithm, kind = use
    for level in every:
        if level.point_to_point and kind not in SENDS:
            continue
        totals, users, joined = member_by_member(kind, groups, level, algorithm)
        found = level_load(kind, groups, level, algorithm)
        assert found.share == pytest.approx(totals.max(), rel=1e-12), level.name
        busiest = np.isclose(totals, totals.max(), rtol=1e-12, atol=0)
        assert found.groups in users[busiest]
        assert found.units == joined
        assert found.serial_steps == ALGORITHMS[algorithm].serial_steps(kind, groups.shape[1])


@given(cases(("dgx-v100", "mi250x-8", "rtx3090-10-nvlink")))
def test_rings_are_used_where_every_group_has_one_in_every_node(case):
    cluster, groups, _ = case
    n = cluster.devices_per_node
    links = tuple(row[:n] for row in direct_links(cluster, FAST)[:n])
    parts = [
        tuple(sorted({d % n for d in row if d // n == node}))
        for row in groups.tolist()
        for node in {d // n for d in row}
    ]
    needed = [part for part in parts if len(part) > 1]
    expected = bool(needed) and all(ring_count(links, part) for part in needed)
    assert have_rings(in_order(groups), links) == expected


@pytest.mark.parametrize("axis", ["data", "fsdp", "tensor"])
def test_groups_that_are_alike_are_one_class_in_one_pool(axis):
    cluster = catalog.load("dgx-h100", 128)
    groups = groups_along({"data": 16, "fsdp": 8, "tensor": 8}, [axis])
    for level in levels(cluster):
        assert group_classes(groups, level).counts.shape in ((1, 1), (1, 0)), level.name


def test_pools_that_differ_are_kept_apart():
    """Three of four in the first unit of 4: as many bytes in and out, by 3 members and by 1."""
    labels = np.arange(8) // 4
    zeros = np.zeros(8, int)
    of = NetworkLevel("links", "network", 1.0, 1.0, LinkLabels(labels, labels, zeros, zeros))
    found = group_classes(np.array([[0, 1, 2, 4]]), of)
    assert (found.at.in_unit.tolist(), found.at.in_region.tolist()) == ([1, 3], [4, 4])
    assert found.counts.tolist() == [[0, 3], [1, 0]]
    assert (found.users.tolist(), found.units) == ([1, 1], 2)


def test_groups_of_one_load_nothing():
    level = levels(catalog.load("dgx-h100", 2))[0]
    assert level_load("all-reduce", np.array([[0], [9]]), level, "ring") == LinkLoad(0.0, 0, 1)


def test_a_tree_over_two_uneven_nodes_sends_its_bytes_once():
    """Seven chips of one node and one of another are two units, as 4 and 4 are."""
    nodes = levels(catalog.load("dgx-h100", 2))[1]
    uneven = level_load("all-reduce", np.array([[0, 1, 2, 3, 4, 5, 6, 8]]), nodes, "tree")
    even = level_load("all-reduce", np.array([[0, 1, 2, 3, 8, 9, 10, 11]]), nodes, "tree")
    assert uneven.share == even.share == 1


# From chip to chip


def test_a_permute_between_two_chips_uses_only_the_link_that_joins_them():
    """Eight MI300X have 64 GB/s to each of seven others, not 448 GB/s to any one of them."""
    xgmi = levels(catalog.load("mi300x-8"))[0]
    one = level_load("permute", np.array([[0, 4]]), xgmi)
    assert one.share / xgmi.bandwidth == pytest.approx(1 / 64e9)
    apart = level_load("permute", np.array([[0, 4], [1, 5], [0, 5]]), xgmi)
    assert apart.share == one.share
    twice = level_load("permute", np.array([[0, 4], [0, 4]]), xgmi)
    assert twice.share == 2 * one.share


V100 = levels(catalog.load("dgx-v100"))[0]  # one or two links to each of four others; six in all


def test_pairs_of_chips_with_links_of_their_own_use_these():
    single, double = level_load("permute", np.array([[0, 1]]), V100), np.array(V100.pair_links)
    assert single.share == 1 / double[0, 1] and single.hops_per_message == 1
    two = level_load("permute", np.array([[0, 1], [1, 0]]), V100)
    assert two.share == single.share  # both ways at once


def test_a_permute_without_links_of_its_own_goes_round_the_rings():
    """Eight chips of six rings (three both ways round): 4 of 8 pass a link, 3 rings share them."""
    ring = level_load("permute", np.arange(8)[None], V100)
    assert not np.array(V100.pair_links)[7, 0]
    assert (ring.share, ring.hops_per_message) == (8 / 6, 4)
    assert ring.min_share == 1 / 6


def test_an_all_to_all_over_links_between_pairs_goes_round_the_rings():
    """To chips at 1, 2, 3, 4, 3, 2 and 1 hops: 16 in all, an eighth of the bytes each, 6 rings."""
    found = level_load("all-to-all", np.arange(8)[None], V100, "pairwise")
    assert found.share == pytest.approx(16 / 8 / 6)
    assert found.min_share == pytest.approx(7 / 8 / 6)
    pair = level_load("all-to-all", np.array([[0, 1]]), V100, "pairwise")
    assert pair.share == pytest.approx(1 / 2 / V100.pair_links[0][1])
