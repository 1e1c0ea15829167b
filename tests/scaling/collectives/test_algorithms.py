"""Bytes and hops of algorithms, counted by hand; and what can run where."""

from math import isclose

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import (
    ALGORITHMS,
    KINDS,
    NVLS_LEAST,
    hops,
    is_chosen,
    refusal,
    rounds,
    shares,
    transfers,
)

NODES, CHIPS = 4, 8
RANKS = NODES * CHIPS


def out_of_unit(algorithm, kind, inside, within=RANKS, members=RANKS, innermost=False):
    """Bytes out of a unit that holds `inside` members of the group, per byte of the call."""
    one = shares(algorithm, kind, np.array(inside), np.array(within), members, innermost=innermost)
    return inside * float(one)


def test_a_ring_crosses_the_edge_of_a_node_once():
    assert out_of_unit("ring", "all-reduce", CHIPS) == pytest.approx(2 * 31 / 32)
    assert out_of_unit("ring", "all-gather", CHIPS) == pytest.approx(31 / 32)
    alone = out_of_unit("ring", "all-gather", 1, CHIPS, CHIPS, innermost=True)
    assert alone == pytest.approx(7 / 8)


def test_the_channels_of_a_ring_take_turns_at_leaving_a_node():
    inside = out_of_unit("ring", "all-gather", 1, CHIPS, RANKS, innermost=True)
    assert inside == pytest.approx(31 / 32 * 7 / 8)


def test_a_hierarchy_sends_only_what_the_others_lack():
    assert out_of_unit("hierarchical", "all-reduce", CHIPS) == pytest.approx(2 * 3 / 4)
    assert out_of_unit("hierarchical", "reduce-scatter", 1, CHIPS) == pytest.approx(7 / 8)


def test_a_tree_sends_once_between_two_nodes_and_twice_from_inner_ones():
    assert out_of_unit("tree", "all-reduce", CHIPS, 2 * CHIPS, 2 * CHIPS) == 1
    assert out_of_unit("tree", "all-reduce", CHIPS) == 2
    assert out_of_unit("nvls-tree", "all-reduce", CHIPS, 2 * CHIPS, 2 * CHIPS) == 1


def test_a_switch_that_adds_takes_each_byte_once_and_a_share_of_the_sum():
    nvls = out_of_unit("nvls", "all-reduce", 1, CHIPS, CHIPS, innermost=True)
    assert nvls == pytest.approx(1 + 1 / 8)
    ring = out_of_unit("ring", "all-reduce", 1, CHIPS, CHIPS, innermost=True)
    assert ring / nvls == pytest.approx(14 / 9)
    assert out_of_unit("sharp", "all-reduce", CHIPS) == 1


def test_everyone_sends_to_everyone_outside():
    assert out_of_unit("pairwise", "all-to-all", CHIPS) == pytest.approx(8 * 24 / 32)


@given(st.sampled_from(ALGORITHMS), st.sampled_from([2, 4, 8]), st.sampled_from([2, 4, 16]))
def test_no_all_reduce_leaves_a_node_with_less_than_its_own_bytes(algorithm, chips, nodes):
    if "all-reduce" in KINDS[algorithm] and algorithm != "nvls":
        found = out_of_unit(algorithm, "all-reduce", chips, chips * nodes, chips * nodes)
        assert found >= 1 - 1e-12


def test_a_ring_takes_as_many_hops_as_it_has_members_less_one_in_every_round():
    assert hops("ring", "all-gather", [CHIPS, NODES]) == [28, 3]
    assert hops("ring", "all-reduce", [CHIPS, NODES]) == [56, 6]
    assert sum(hops("ring", "reduce-scatter", [CHIPS, NODES])) == RANKS - 1


def test_trees_grow_with_the_logarithm_of_the_nodes():
    assert hops("tree", "all-reduce", [CHIPS, 16]) == [14, 8]
    assert hops("nvls-tree", "all-reduce", [CHIPS, 16]) == [1, 8]
    assert hops("sharp", "all-reduce", [CHIPS, 16]) == [1, 4]
    assert hops("nvls", "all-reduce", [CHIPS]) == [1]
    assert hops("pat", "all-gather", [1, 16]) == [0, 4]
    assert hops("hierarchical", "all-reduce", [CHIPS, NODES]) == [14, 6]
    assert hops("pairwise", "permute", [CHIPS, 1]) == [1, 0]


@given(
    st.sampled_from(ALGORITHMS),
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    st.integers(0, 2),
)
def test_more_units_never_take_fewer_hops(algorithm, units, level):
    level = min(level, len(units) - 1)
    more = [n * (2 if i == level else 1) for i, n in enumerate(units)]
    kind = KINDS[algorithm][0]
    assert sum(hops(algorithm, kind, more)) >= sum(hops(algorithm, kind, units))


@given(st.lists(st.integers(2, 9), min_size=1, max_size=3))
def test_a_tree_never_waits_longer_than_a_ring(units):
    tree, ring = (sum(hops(a, "all-reduce", units)) for a in ("tree", "ring"))
    assert tree <= ring or isclose(tree, ring)


def test_an_all_reduce_goes_around_twice():
    assert [rounds(kind) for kind in ("all-reduce", "all-gather", "broadcast")] == [2, 1, 1]
    assert transfers("ring", "all-reduce", 8) == 14
    assert transfers("tree", "all-reduce", 8) == 0


@pytest.mark.parametrize(
    ("algorithm", "kind", "units", "switch", "words"),
    [
        ("tree", "all-gather", [8], True, "tree does not do all-gather; what does: ring, nvls"),
        ("nvls", "all-reduce", [8], False, "needs NVSwitches that can add"),
        ("nvls", "all-reduce", [1, 4], True, "needs several GPUs of a group in a node"),
        ("nvls", "all-reduce", [8, 2], True, "nvls-tree or sharp go further"),
        ("nvls-tree", "all-reduce", [8], True, "inside one it is nvls"),
        ("pat", "all-gather", [8, 4], True, "here there are 8"),
    ],
)
def test_an_algorithm_that_cannot_run_says_why(algorithm, kind, units, switch, words):
    assert words in refusal(algorithm, kind, units, switch)


@pytest.mark.parametrize(
    ("algorithm", "kind", "units"),
    [
        ("ring", "all-reduce", [8, 4]),
        ("nvls", "all-reduce", [8]),
        ("nvls-tree", "all-reduce", [8, 2]),
        ("pat", "reduce-scatter", [1, 16]),
        ("pairwise", "all-to-all", [8, 4]),
    ],
)
def test_what_can_run_is_not_refused(algorithm, kind, units):
    assert refusal(algorithm, kind, units, switch=True) == ""


def test_sums_in_the_switch_are_not_chosen_for_few_chips():
    assert not is_chosen("nvls", [NVLS_LEAST - 1])
    assert is_chosen("nvls", [NVLS_LEAST]) and is_chosen("ring", [2])


def test_trees_are_for_several_nodes():
    assert is_chosen("tree", [8, 2]) and not is_chosen("tree", [8])
