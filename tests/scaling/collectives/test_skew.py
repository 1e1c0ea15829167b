"""All-to-alls with a busiest receiver: by hand and by trying every placement."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.contention import in_order, parts_of
from scaling.collectives.cost import collective_time
from scaling.collectives.skew import check_skew, fractions, skewed_share
from scaling.collectives.traffic import load
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.levels import LinkLabels, NetworkLevel, levels
from scaling.meshes.shape import parse_mesh
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import CollectiveFit, Evidence

IDEAL = ideal()
GB = 1e9
DEVICES = 12


def place(name, nodes, mesh="", axis=""):
    """A cluster and groups on it: along an axis of a mesh, or one of all devices."""
    cluster = catalog.load(name, nodes)
    groups = parse_mesh(mesh).groups([axis]) if mesh else np.arange(cluster.devices)[None]
    return cluster, groups


def closed(where, skew, size=GB, profile=IDEAL):
    return collective_time("all-to-all", size, where[1], where[0], profile, skew=skew)


NODE = place("dgx-h100", 1)
BOTH_NODES = place("dgx-h100", 2)
RAILS = place("dgx-h100", 4, "data=4,tensor=8", "data")
MESH = place("mi300x-8", 1)

# By hand. 8 or 16 members send 1 GB each; with skew 2 the favourite gets 2/N of it from each.


@pytest.mark.parametrize(
    ("where", "skew", "seconds", "binds"),
    [
        (NODE, 2.0, 7 * 2 / 8 / 450, "NVLink of a chip: 1.75 GB"),
        (NODE, 8.0, 7 / 450, "NVLink of a chip: 7 GB"),
        # every favourite is the first of its rail: three quarters of 2 GB into each NIC of node 0
        (RAILS, 2.0, 3 * 2 / 4 / 50, "NICs of a node: 8 groups x 1.5 GB"),
        (RAILS, 4.0, 3 / 50, "NICs of a node: 8 groups x 3 GB"),
        # 8 chips of the other node send 2/16 of a GB each to the NIC of the favourite
        (BOTH_NODES, 2.0, 8 * 2 / 16 / 50, "NIC of a chip: 1 GB"),
        # one link of 64 GB/s leads to the favourite; dense, an eighth goes over it
        (MESH, 2.0, 2 / 8 / 64, "xGMI of a chip: 1.75 GB"),
    ],
)
def test_bytes_to_the_favourite_bind(where, skew, seconds, binds):
    cost = closed(where, skew)
    assert cost.time == pytest.approx(seconds)
    assert cost.bottleneck.startswith(binds)
    assert cost.lower_bound == pytest.approx(seconds)


def test_a_card_behind_a_shared_switch_is_one_of_five_that_receive():
    """Ten cards in two fives, 2 favourites' worth: one card takes 9 x 2/10, four 9 x 8/90."""
    cluster, groups = place("rtx3090-10", 1)
    switch = levels(cluster)[1]
    found = load("all-to-all", groups, switch, "pairwise", 2.0)
    assert switch.name == "PCIe of a switch"
    assert found.share == pytest.approx(9 * 2 / 10 + 4 * 9 * 8 / 90)


def test_the_favourites_of_all_groups_are_behind_one_leaf_even_if_their_first_members_are_not():
    """Two groups of nodes 0 0 1 and 0 1 1: each favourite in node 1, where it takes longest."""
    devices = np.arange(DEVICES)
    node = devices // 6
    uplink = NetworkLevel("NICs", "network", 1.0, 1.0, LinkLabels(node, node, 0 * node, 0 * node))
    groups = np.array([[0, 1, 6], [2, 7, 8]])
    busiest, others = fractions(2.0, 3)
    found = load("all-to-all", groups, uplink, "pairwise", 2.0)
    into_1 = 2 * busiest + (busiest + others)
    assert found.share == pytest.approx(into_1)
    assert found.groups == 2


# Every placement of the favourites, byte by byte


@st.composite
def arrangements(draw):
    """An uplink of nested units, pools and regions, and a few groups of up to four."""
    sizes = draw(
        st.sampled_from([(1, 1, 4), (2, 2, 6), (1, 2, 4), (2, 1, 12), (1, 3, 3), (4, 4, 12)])
    )
    unit, pool, region = (np.arange(DEVICES) // size for size in sizes)
    places = LinkLabels(unit, pool, region, region)
    members = draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    groups = [rng.permutation(DEVICES)[:members] for _ in range(draw(st.integers(1, 3)))]
    return places, np.array(groups)


SKEWS = st.floats(0, 1)  # from dense to everything to one


def skew_of(part, members):
    return 1 + part * (members - 1)


def counted(places, groups, skew):
    """The busiest direction of the busiest pool, over all placements of one favourite a group."""
    members, worst = groups.shape[1], 0.0
    busiest, others = fractions(skew, members)
    unit, pool, region = places.unit.tolist(), places.pool.tolist(), places.region.tolist()
    for favourites in product(range(members), repeat=len(groups)):
        out, into = np.zeros(DEVICES), np.zeros(DEVICES)
        for row, favourite in zip(groups.tolist(), favourites, strict=True):
            for a, (k, b) in product(row, enumerate(row)):
                if unit[a] != unit[b] and region[a] == region[b]:
                    sent = busiest if k == favourite else others
                    out[pool[a]] += sent
                    into[pool[b]] += sent
        worst = max(worst, out.max(), into.max())
    return worst


@given(arrangements(), SKEWS)
def test_the_price_is_that_of_the_placement_that_takes_longest(arrangement, part):
    places, groups = arrangement
    skew = skew_of(part, groups.shape[1])
    found, users = skewed_share(parts_of(in_order(groups), places), groups.shape[1], skew)
    assert found == pytest.approx(counted(places, groups, skew), rel=1e-12)
    assert (users > 0) == (found > 0)


@given(arrangements())
def test_without_skew_it_is_the_dense_all_to_all(arrangement):
    places, groups = arrangement
    uplink = NetworkLevel("NICs", "network", 1.0, 1.0, places)
    found, users = skewed_share(parts_of(in_order(groups), places), groups.shape[1], 1.0)
    dense = load("all-to-all", groups, uplink, "pairwise")
    assert found == pytest.approx(dense.share, rel=1e-12)


@given(st.integers(2, 1000), SKEWS)
def test_a_member_sends_what_it_has_and_the_favourite_receives_its_skew(members, part):
    skew = skew_of(part, members)
    busiest, others = fractions(skew, members)
    assert busiest + (members - 1) * others == pytest.approx(1)
    assert members * busiest == pytest.approx(skew)
    assert busiest >= others * (1 - 1e-12) and others >= 0


# Physics


CLUSTERS = st.sampled_from(["dgx-h100", "mi300x-8", "dgx-v100", "h100-pcie-8", "tpu-v5e", "tpu-v4"])


@st.composite
def cases(draw):
    """Groups of random devices, or along a mesh axis, and the profile to price them with."""
    cluster = catalog.load(draw(CLUSTERS), draw(st.sampled_from([1, 2, 4])))
    inner = draw(st.sampled_from([n for n in (1, 2, 4, 8) if cluster.devices % n == 0]))
    groups = np.arange(cluster.devices).reshape(-1, inner)
    groups = draw(st.sampled_from([groups, groups.T]))
    if draw(st.booleans()):
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        groups = rng.permutation(cluster.devices).reshape(groups.shape)
    return (cluster, groups), draw(st.sampled_from([IDEAL, profile_of(cluster.accelerator)]))


@given(cases(), SKEWS, SKEWS)
def test_more_skew_never_takes_less_time(case, part, more):
    where, profile = case
    low, high = sorted(skew_of(p, where[1].shape[1]) for p in (part, more))
    assert closed(where, high, GB, profile).time >= closed(where, low, GB, profile).time * (
        1 - 1e-12
    )
    assert closed(where, high).lower_bound >= closed(where, low).lower_bound * (1 - 1e-12)


@given(cases())
def test_a_skew_of_one_is_dense(case):
    (cluster, groups), profile = case
    dense = collective_time("all-to-all", GB, groups, cluster, profile)
    almost = 1 + 1e-12 if groups.shape[1] > 1 else 1.0
    assert closed((cluster, groups), 1.0, GB, profile) == dense
    assert closed((cluster, groups), almost, GB, profile).time == pytest.approx(
        dense.time, rel=1e-9
    )


@given(cases(), SKEWS, st.randoms(use_true_random=False))
def test_the_order_of_groups_and_members_changes_nothing(case, part, random):
    (cluster, groups), profile = case
    skew, rows = skew_of(part, groups.shape[1]), groups.tolist()
    random.shuffle(rows)
    for row in rows:
        random.shuffle(row)
    again = closed((cluster, np.array(rows)), skew, GB, profile)
    assert again.time == pytest.approx(closed((cluster, groups), skew, GB, profile).time, rel=1e-12)


@given(cases(), SKEWS)
def test_no_time_is_below_its_bound_nor_that_below_the_dense_one(case, part):
    where, profile = case
    found = closed(where, skew_of(part, where[1].shape[1]), GB, profile)
    assert found.time >= found.lower_bound * (1 - 1e-12)
    assert found.lower_bound >= closed(where, 1.0).lower_bound * (1 - 1e-12)


# Where it is measured, and what is refused


def test_a_measured_line_takes_as_long_as_if_all_received_what_the_busiest_does():
    host = catalog.load("host", overrides={"gpus_per_node": 4})
    evidence = Evidence("a test", "2026-11", "measured")
    line = CollectiveFit("all-to-all", 4, 1, 1e-4, GB, evidence)
    where, profile = (host, np.arange(4)[None]), replace(IDEAL, collectives=(line,))
    assert closed(where, 1.5, 1e6, profile).time == pytest.approx(1e-4 + 1.5e-3)


@pytest.mark.parametrize(
    ("kind", "skew", "words"),
    [
        ("all-reduce", 1.5, "skew 1.5 is for all-to-all.* all-reduce gives every member the same"),
        ("all-to-all", 9.0, "skew 9: the busiest of 8 members receives from 1 .* to 8 times"),
        ("all-to-all", 0.5, "skew 0.5: the busiest of 8"),
        ("all-to-all", float("nan"), "skew nan: the busiest of 8"),
    ],
)
def test_a_skew_that_cannot_be_is_refused_with_the_numbers(kind, skew, words):
    with pytest.raises(InputError, match=words):
        check_skew(kind, skew, 8)
    with pytest.raises(InputError, match=words):
        collective_time(kind, GB, NODE[1], NODE[0], IDEAL, skew=skew)
