"""Schedules: rings, trees, and the bytes that every member receives."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from tests.oracle.channels import channel_orders
from tests.oracle.schedules import parents, schedule

FOUR = catalog.load("dgx-h100", 4)
SMALL = catalog.load("dgx-h100", 4, {"gpus_per_node": 2})
ALL = list(range(32))


def arcs(rings):
    """How often each member follows each other one."""
    return Counter(
        pair for r in rings for pair in zip(r, [*r[1:], r[0]], strict=True) if len(r) > 1
    )


def test_channels_over_nodes_keep_their_rail_and_take_turns():
    orders = channel_orders(FOUR, ALL)
    assert len(orders) == 8 and all(sorted(order) == ALL for order in orders)
    crossing = [(a, b) for a, b in arcs(orders).elements() if a // 8 != b // 8]
    assert all(a % 8 == b % 8 for a, b in crossing)
    assert set(Counter(a for a, _ in crossing).values()) == {1}


@given(st.integers(1, 40))
def test_a_tree_reaches_all_domains_from_one_root(count):
    above = parents(count)
    assert above.count(None) == 1
    children = Counter(p for p in above if p is not None)
    assert max(children.values(), default=0) <= 2 and children[0] <= 1
    for domain in range(count):
        steps, here = 0, domain
        while above[here] is not None:
            steps, here = steps + 1, above[here]
        assert steps <= int(np.ceil(np.log2(count))) and here == 0


CASES = [
    *[("ring", kind) for kind in ("all-reduce", "all-gather", "reduce-scatter")],
    *[("ring", "permute"), ("tree", "all-reduce"), ("pairwise", "all-to-all")],
]


@pytest.mark.parametrize(("algorithm", "kind"), CASES)
@pytest.mark.parametrize("slices", [1, 3])
def test_messages_wait_only_for_earlier_ones_and_go_to_another_member(algorithm, kind, slices):
    messages = schedule(kind, 32.0, list(range(8)), SMALL, algorithm, slices)
    for number, message in enumerate(messages):
        assert all(k < number for k in (*message.after, *message.behind))
        assert message.source != message.target and message.bytes > 0


def test_in_an_all_gather_every_part_reaches_everyone():
    """Follows the parts: by the end each member has received messages that contain all of them."""
    received = [{device} for device in ALL]
    contained = []
    for message in schedule("all-gather", 1.0, ALL, FOUR, "ring"):
        source, target = (_device(name) for name in (message.source, message.target))
        contained.append({source}.union(*(contained[k] for k in message.after)))
        received[target] |= contained[-1]
    assert all(parts == set(ALL) for parts in received)


def _device(name):
    node, chip = name.removeprefix("node").split("/chip")
    return 8 * int(node) + int(chip)
