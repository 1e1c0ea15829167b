"""What schedules are made of: rings, trees, and that everyone gets what the collective promises."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import KINDS
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from tests.oracle.messages import channel_orders, homes, mesh_rings, nic_heads
from tests.oracle.schedules import schedule
from tests.oracle.trees import mirrored, parents

FOUR = catalog.load("dgx-h100", 4)
SMALL = catalog.load("dgx-h100", 4, {"gpus_per_node": 2})
ALL = list(range(32))


def arcs(rings):
    """How often each member follows each other one."""
    return Counter(
        pair for r in rings for pair in zip(r, [*r[1:], r[0]], strict=True) if len(r) > 1
    )


@given(st.integers(3, 9))
def test_rings_of_a_mesh_use_every_link_equally_often(n):
    rings = mesh_rings(range(n))
    assert all(sorted(ring) == list(range(n)) for ring in rings)
    counts = arcs(rings)
    assert len(counts) == n * (n - 1) and len(set(counts.values())) == 1


def test_channels_over_nodes_keep_their_rail_and_take_turns():
    orders = channel_orders(FOUR, ALL)
    assert len(orders) == 8 and all(sorted(order) == ALL for order in orders)
    crossing = [(a, b) for a, b in arcs(orders).elements() if a // 8 != b // 8]
    assert all(a % 8 == b % 8 for a, b in crossing)
    assert set(Counter(a for a, _ in crossing).values()) == {1}


def test_channels_behind_pcie_take_one_turn_per_nic():
    cluster = catalog.load("h100-pcie-8", 2)
    assert nic_heads(cluster, range(8)) == [0, 2, 4, 6]
    orders = channel_orders(cluster, range(16))
    assert orders[1][:8] == [2, 3, 4, 5, 6, 7, 0, 1]
    assert orders[1][8:] == [9, 8, 15, 14, 13, 12, 11, 10]
    assert len(channel_orders(catalog.load("rtx3090-10", 2), range(20))) == 1


def test_members_are_sorted_by_node_or_domain():
    assert homes(FOUR, [9, 1, 0, 8]) == [[0, 1], [8, 9]]


@given(st.integers(1, 40))
def test_a_tree_reaches_all_homes_from_one_root(count):
    above = parents(count)
    assert above.count(None) == 1
    children = Counter(p for p in above if p is not None)
    assert max(children.values(), default=0) <= 2 and children[0] <= 1
    for home in range(count):
        steps, here = 0, home
        while above[here] is not None:
            steps, here = steps + 1, above[here]
        assert steps <= int(np.ceil(np.log2(count))) and here == 0


@given(st.integers(1, 20).map(lambda half: 2 * half))
def test_who_passes_on_in_one_tree_is_a_leaf_of_the_other(count):
    first, second = ({p for p in t if p is not None} for t in trees_of(count))
    inner = {home for home in range(count) if home in first and home in second}
    assert not inner


def trees_of(count):
    above = parents(count)
    return above, mirrored(above)


CASES = [(a, kind) for a, kinds in KINDS.items() for kind in kinds if a not in ("nvls", "pat")]


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
@pytest.mark.parametrize("slices", [1, 3])
def test_sends_wait_only_for_earlier_ones_and_go_to_somebody_else(algorithm, kind, slices):
    found = schedule(kind, 32.0, list(range(8)), SMALL, algorithm, slices)
    for place, send in enumerate(found):
        assert all(k < place for k in (*send.after, *send.behind))
        assert send.source != send.target and send.bytes > 0


@pytest.mark.parametrize(
    ("algorithm", "kind", "received"),
    [
        ("ring", "all-gather", 7 / 8),
        ("ring", "all-reduce", 14 / 8),
        ("hierarchical", "reduce-scatter", 1 / 2 + 3 / 8),
        ("hierarchical", "all-reduce", 2 * 7 / 8),
        ("pairwise", "all-to-all", 7 / 8),
    ],
)
def test_every_chip_receives_what_it_lacks(algorithm, kind, received):
    got = Counter()
    for send in schedule(kind, 8.0, list(range(8)), SMALL, algorithm):
        got[send.target] += send.bytes
    assert set(got) == {f"node{n}/chip{c}" for n in range(4) for c in range(2)}
    assert list(got.values()) == pytest.approx([8 * received] * 8)


@pytest.mark.parametrize("algorithm", ["ring", "hierarchical"])
def test_in_an_all_gather_every_part_reaches_everyone(algorithm):
    """Follows who could know of whom: by the end each send has carried news from all."""
    known = [set() for _ in ALL]
    carried = []
    for send in schedule("all-gather", 1.0, ALL, FOUR, algorithm):
        source, target = (_device(name) for name in (send.source, send.target))
        carried.append({source}.union(*(carried[k] for k in send.after)))
        known[target] |= carried[-1]
    assert all(found | {device} == set(ALL) for device, found in enumerate(known))


def _device(name):
    node, chip = name.removeprefix("node").split("/chip")
    return 8 * int(node) + int(chip)


def test_what_cannot_be_played_says_why():
    with pytest.raises(InputError, match="tree does not do all-gather; what does: ring, nvls"):
        schedule("all-gather", 1.0, ALL, FOUR, "tree")
    with pytest.raises(InputError, match="nvls stays inside one NVLink domain"):
        schedule("all-reduce", 1.0, ALL, FOUR, "nvls")
    wide = catalog.load("dgx-h100", 64)
    with pytest.raises(InputError, match="played under one leaf switch, these need 2"):
        schedule("all-reduce", 1.0, range(512), wide, "sharp")


def test_a_group_of_one_sends_nothing():
    assert schedule("all-reduce", 1.0, [3], FOUR, "ring") == []
