"""Bytes over uplinks: the fast count against one that follows every byte of every group."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.traffic import load, pairs_of
from scaling.meshes import catalog
from scaling.meshes.levels import LinkLabels, NetworkLevel, levels

DEVICES = 16
UNIT = 4  # devices per unit; two units per region of 8


def uplink(region=DEVICES):
    devices = np.arange(DEVICES)
    unit = devices // UNIT
    places = LinkLabels(unit, unit, devices // region, devices // region)
    return NetworkLevel("uplink", "network", 1.0, 1.0, places)


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


# Levels of catalogue clusters


def test_a_permute_between_two_chips_uses_only_the_link_that_joins_them():
    """Eight MI300X have 64 GB/s to each of seven others, not 448 GB/s to any one of them."""
    xgmi = levels(catalog.load("mi300x-8"))[0]
    one = load("permute", np.array([[0, 4]]), xgmi)
    assert one.share / xgmi.bandwidth == pytest.approx(1 / 64e9)
    apart = load("permute", np.array([[0, 4], [1, 5], [0, 5]]), xgmi)
    assert apart.share == one.share
    twice = load("permute", np.array([[0, 4], [0, 4]]), xgmi)
    assert twice.share == 2 * one.share


def test_cards_behind_two_sockets_share_the_links_between_them():
    cluster = catalog.load("h100-pcie-8", 2)
    sockets = levels(cluster)[2]
    assert (sockets.name, sockets.bandwidth) == ("links between sockets", 128e9)
    assert np.bincount(sockets.labels.unit).tolist() == [4, 4, 4, 4]
    assert load("permute", np.array([[0, 4], [1, 5], [4, 0]]), sockets).share == 2
    assert load("permute", np.array([[0, 8], [0, 1]]), sockets).share == 0
