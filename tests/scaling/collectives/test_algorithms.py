"""Bytes and hops of algorithms, counted by hand; and what can run where."""

from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import (
    ALGORITHMS,
    REDUCTIONS,
    Boundary,
    memory_passes,
    rounds,
)
from scaling.collectives.candidates import loaded_levels
from scaling.collectives.contention import place_groups
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal

NAMES = st.sampled_from(list(ALGORITHMS))
NODES, CHIPS = 4, 8
RANKS = NODES * CHIPS
NODE = {"within": CHIPS, "ranks": CHIPS, "innermost": True}  # a group inside one node


def out_of_unit(algorithm, kind, inside, within=RANKS, ranks=RANKS, innermost=False):
    """Bytes out of a unit that holds `inside` members of the group, per byte of the call."""
    inside, within = np.array(inside), np.array(within)
    at = Boundary(inside, within, within // inside, ranks, innermost)
    return int(inside) * float(ALGORITHMS[algorithm].bytes_out(kind, at))


def hops(algorithm, kind, units, ranks=None):
    return ALGORITHMS[algorithm].hops(kind, units, prod(units) if ranks is None else ranks)


@pytest.mark.parametrize(
    ("algorithm", "kind", "inside", "where", "expected"),
    [
        # a ring crosses the edge of a node once; its channels take turns at leaving it
        ("ring", "all-reduce", CHIPS, {}, 2 * 31 / 32),
        ("ring", "all-gather", CHIPS, {}, 31 / 32),
        ("ring", "all-gather", 1, {"within": CHIPS, "innermost": True}, 31 / 32 * 7 / 8),
        ("ring", "all-gather", 1, NODE, 7 / 8),
        ("ring", "all-reduce", 1, NODE, 14 / 8),
        # only what the others lack
        ("hierarchical", "all-reduce", CHIPS, {}, 2 * 3 / 4),
        ("hierarchical", "reduce-scatter", 1, {"within": CHIPS}, 7 / 8),
        # once between two nodes, twice from inner ones
        ("tree", "all-reduce", CHIPS, {"within": 2 * CHIPS, "ranks": 2 * CHIPS}, 1),
        ("nvls-tree", "all-reduce", CHIPS, {"within": 2 * CHIPS, "ranks": 2 * CHIPS}, 1),
        ("tree", "all-reduce", CHIPS, {}, 2),
        # each byte once, and a share of the sum
        ("nvls", "all-reduce", 1, NODE, 1 + 1 / 8),
        ("sharp", "all-reduce", CHIPS, {}, 1),
        ("pairwise", "all-to-all", CHIPS, {}, 8 * 24 / 32),
    ],
)
def test_bytes_out_of_a_unit(algorithm, kind, inside, where, expected):
    assert out_of_unit(algorithm, kind, inside, **where) == pytest.approx(expected)


@given(NAMES, st.sampled_from([2, 4, 8]), st.sampled_from([2, 4, 16]))
def test_no_all_reduce_leaves_a_node_with_less_than_its_own_bytes(algorithm, chips, nodes):
    if "all-reduce" in ALGORITHMS[algorithm].kinds and algorithm != "nvls":
        found = out_of_unit(algorithm, "all-reduce", chips, chips * nodes, chips * nodes)
        assert found >= 1 - 1e-12


def test_a_ring_takes_as_many_hops_as_it_has_members_less_one_in_every_round():
    assert hops("ring", "all-gather", [CHIPS, NODES]) == [28, 3]
    assert hops("ring", "all-reduce", [CHIPS, NODES]) == [56, 6]
    assert sum(hops("ring", "reduce-scatter", [CHIPS, NODES])) == RANKS - 1


@given(st.sets(st.integers(0, 4 * CHIPS - 1), min_size=2), st.sampled_from(REDUCTIONS))
def test_a_ring_of_any_devices_takes_a_hop_to_each_other_member_in_every_round(devices, kind):
    """Seven of one node and one of the next make a ring of eight: 7 hops, not 13."""
    placed = place_groups(np.array([sorted(devices)]), catalog.load("dgx-h100", NODES))
    uses = loaded_levels(kind, "ring", placed.loads(kind)["ring"], placed.ranks)
    assert sum(use.hops for use in uses) == rounds(kind) * (len(devices) - 1)


def test_seven_chips_and_one_of_another_node_are_seven_hops_apart():
    assert hops("ring", "all-gather", [7, 2], ranks=8) == [6, 1]
    assert hops("ring", "all-gather", [7, 2, 2], ranks=16) == [12, 2, 1]
    assert hops("pairwise", "all-to-all", [7, 2], ranks=8) == [6, 1]


def test_trees_grow_with_the_logarithm_of_the_nodes():
    assert hops("tree", "all-reduce", [CHIPS, 16]) == [14, 8]
    assert hops("nvls-tree", "all-reduce", [CHIPS, 16]) == [1, 8]
    assert hops("sharp", "all-reduce", [CHIPS, 16]) == [1, 4]
    assert hops("nvls", "all-reduce", [CHIPS]) == [1]
    assert hops("pat", "all-gather", [1, 16]) == [0, 4]
    assert hops("hierarchical", "all-reduce", [CHIPS, NODES]) == [14, 6]
    assert hops("pairwise", "permute", [CHIPS, 1]) == [1, 0]


def test_an_all_reduce_goes_around_twice():
    assert [rounds(kind) for kind in ("all-reduce", "all-gather", "broadcast")] == [2, 1, 1]
    assert ALGORITHMS["ring"].serial_steps("all-reduce", 8) == 14
    assert ALGORITHMS["tree"].serial_steps("all-reduce", 8) == 0


@pytest.mark.parametrize(
    ("algorithm", "units", "words"),
    [
        ("nvls", [1, 4], "needs several GPUs of a group in a node"),
        ("nvls", [8, 2], "nvls-tree or sharp go further"),
        ("nvls-tree", [8], "inside one it is nvls"),
        ("sharp", [8, 1], "inside one it is nvls"),
        ("pat", [8, 4], "here there are 8"),
    ],
)
def test_groups_that_cannot_run_an_algorithm_are_told_why(algorithm, units, words):
    assert words in ALGORITHMS[algorithm].refusal(units)


@pytest.mark.parametrize(
    ("cluster", "kind", "algorithm", "words"),
    [
        ("dgx-h100", "all-gather", "tree", "tree does not do all-gather; what does: ring, nvls"),
        ("dgx-a100", "all-reduce", "nvls", "needs NVSwitches that can add"),
        ("p5", "all-reduce", "sharp", "needs switches between the nodes that can add"),
        ("tpu-v5e", "all-reduce", "tree", "tree does not run on a torus; what does: ring"),
        ("dgx-h100", "all-reduce", "thing", "thing"),
    ],
)
def test_a_cluster_that_cannot_run_an_algorithm_says_why(cluster, kind, algorithm, words):
    place = catalog.load(cluster)
    with pytest.raises(InputError, match=words):
        collective_time(kind, 1.0, np.arange(place.devices)[None], place, ideal(), algorithm)


def test_trees_are_for_several_nodes_and_sums_in_the_network_for_those_who_ask():
    tree, sharp = ALGORITHMS["tree"], ALGORITHMS["sharp"]
    assert tree.is_considered([8, 2]) and not tree.is_considered([8])
    assert not sharp.is_considered([8, 2])


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_passes_over_the_memory_of_a_rank_are_those_of_its_pieces(ranks):
    """Counted by hand, r reads and w writes: w r is what arrives in a buffer and is read there."""
    others = ranks - 1
    by_hand = {
        "all-gather": 2 + others * 3,  # r own, w own; then w r, w result
        "reduce-scatter": 1 + others * 3 + 1,  # r own; w r, r own to add; w the sum of all
        "all-reduce": 1 + others * 3 + 1 + others * 3,  # the one, then the other in place
        "all-to-all": 2 + others * (1 + 3),  # r own, w own; r to send, w r, w result
        "broadcast": ranks * 3,
        "permute": ranks * 4,
    }
    for kind, passes in by_hand.items():
        assert memory_passes(kind, ranks) == pytest.approx(passes / ranks), kind
