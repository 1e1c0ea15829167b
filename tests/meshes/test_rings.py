"""Rings on links between pairs of chips, against what was measured and counted by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.rings import direct_links, ring_count

V100 = direct_links(catalog.load("dgx-v100"), ("nvlink",))


@pytest.mark.parametrize(
    ("chips", "rings"),
    # VIA-Research/vTrain, trace/v100: bus bandwidth of an all-reduce of 1 GiB over 22.5 GB/s a link
    [(2, 1), (3, 2), (4, 4), (5, 2), (6, 2), (7, 4), (8, 6)],
)
def test_a_dgx_1_has_the_rings_that_its_bandwidths_show(chips, rings):
    assert ring_count(V100, tuple(range(chips))) == rings


def test_a_double_link_holds_two_rings_of_two():
    assert V100[0][3] == 2 and ring_count(V100, (0, 3)) == 2
    assert ring_count(V100, (0, 7)) == 0


def test_bridged_pairs_hold_no_ring_of_more_than_two():
    links = direct_links(catalog.load("rtx3090-10-nvlink"), ("nvlink",))
    bridged = [(i, j) for i in range(10) for j in range(i) if links[i][j]]
    assert len(bridged) == 4 and (1, 0) in bridged  # so that --mesh data=2 takes a bridged pair
    assert all(ring_count(links, pair) == links[pair[0]][pair[1]] for pair in bridged)
    assert ring_count(links, tuple(range(4))) == 0 == ring_count(links, tuple(range(10)))


@pytest.mark.parametrize("count", [1, 2, 18])
def test_as_many_rings_as_a_chip_has_links_where_all_are_joined(count):
    """Found at once: eight chips with 18 links each way have 2,520 walks, 63 of them at a time."""
    links = tuple(tuple(count * (i != j) for j in range(8)) for i in range(8))
    assert ring_count(links, tuple(range(8))) == 2 * (7 * count // 2)


@given(st.permutations(range(8)), st.integers(2, 6))
def test_other_numbers_for_the_chips_change_nothing(order, count):
    renamed = tuple(tuple(V100[order[i]][order[j]] for j in range(8)) for i in range(8))
    members = tuple(range(count))
    assert ring_count(renamed, members) == ring_count(V100, tuple(order[i] for i in members))


@given(st.sets(st.integers(0, 7), min_size=3, max_size=6), st.integers(1, 3))
def test_rings_never_need_more_links_than_a_chip_has(members, more):
    chosen = tuple(sorted(members))
    wider = tuple(tuple(more * n for n in row) for row in V100)
    least = min(sum(wider[i][j] for j in chosen) for i in chosen)
    assert ring_count(V100, chosen) <= ring_count(wider, chosen) <= max(least, 2)
