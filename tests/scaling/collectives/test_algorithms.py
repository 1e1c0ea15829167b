"""Bytes and hops of algorithms, counted by hand; and what can run where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.algorithms.base import Boundary, rounds
from scaling.collectives.algorithms.trees import MIN_GPUS
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal

NAMES = st.sampled_from(list(ALGORITHMS))
NODES, CHIPS = 4, 8
RANKS = NODES * CHIPS


def out_of_unit(algorithm, kind, inside, within=RANKS, ranks=RANKS, innermost=False):
    """Bytes out of a unit that holds `inside` members of the group, per byte of the call."""
    inside, within = np.array(inside), np.array(within)
    at = Boundary(inside, within, within // inside, ranks, innermost)
    return int(inside) * float(ALGORITHMS[algorithm].bytes_out(kind, at))


def hops(algorithm, kind, units):
    return ALGORITHMS[algorithm].hops(kind, units)


def test_a_ring_crosses_the_edge_of_a_node_once():
    assert out_of_unit("ring", "all-reduce", CHIPS) == pytest.approx(2 * 31 / 32)
    assert out_of_unit("ring", "all-gather", CHIPS) == pytest.approx(31 / 32)
    alone = out_of_unit("ring", "all-gather", 1, CHIPS, CHIPS, innermost=True)
    assert alone == pytest.approx(7 / 8)


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


@given(NAMES, st.sampled_from([2, 4, 8]), st.sampled_from([2, 4, 16]))
def test_no_all_reduce_leaves_a_node_with_less_than_its_own_bytes(algorithm, chips, nodes):
    if "all-reduce" in ALGORITHMS[algorithm].kinds and algorithm != "nvls":
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
        ("tpu-v5e", "all-reduce", "tree", "tree does not run on a torus; what does: ring"),
        ("dgx-h100", "all-reduce", "thing", "thing"),
    ],
)
def test_a_cluster_that_cannot_run_an_algorithm_says_why(cluster, kind, algorithm, words):
    place = catalog.load(cluster)
    with pytest.raises(InputError, match=words):
        collective_time(kind, 1.0, np.arange(place.devices)[None], place, ideal(), algorithm)


def test_sums_in_the_switch_are_not_considered_for_few_chips():
    nvls = ALGORITHMS["nvls"]
    assert not nvls.is_considered([MIN_GPUS - 1]) and nvls.is_considered([MIN_GPUS])
    assert ALGORITHMS["ring"].is_considered([2])


def test_trees_are_for_several_nodes():
    tree = ALGORITHMS["tree"]
    assert tree.is_considered([8, 2]) and not tree.is_considered([8])
