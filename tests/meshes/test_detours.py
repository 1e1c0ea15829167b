"""Ways from chip to chip over links between pairs: counted by hand on a DGX-1, and their bounds."""

from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.detours import busiest_link, narrowest_links, shortest_ways, straight_links
from scaling.meshes.rings import direct_links

V100 = direct_links(catalog.load("dgx-v100"), ("nvlink",))
ALL = tuple(range(8))


def test_two_chips_without_a_link_are_two_links_apart_on_a_dgx_1():
    assert shortest_ways(V100, ALL, 0, 3) == ((0, 3),)
    assert shortest_ways(V100, ALL, 0, 7) == ((0, 3, 7), (0, 4, 7))


def test_only_members_pass_on():
    assert shortest_ways(V100, (0, 1, 4, 7), 0, 7) == ((0, 4, 7),)
    assert shortest_ways(V100, (0, 7), 0, 7) == ()
    assert straight_links(V100, (0, 7)) == 0


@pytest.mark.parametrize(
    ("members", "cut", "routed"),
    [
        ((0, 3), 2, 2),  # a double link
        ((0, 1), 1, 1),
        # Five links join 0 and 3 to 1 and 2, for four pairs; that from 0 to 1 carries its own.
        ((0, 1, 2, 3), 5 * 3 / 4, 3),
        # Six links join the halves, for 16 pairs: 2 to 6, a single one, carries four of them.
        (ALL, 6 * 7 / 16, 7 / 4),
    ],
)
def test_links_for_an_all_to_all_of_a_hybrid_cube_mesh(members, cut, routed):
    assert narrowest_links(V100, members) == pytest.approx(cut)
    assert straight_links(V100, members) == pytest.approx(routed)


def test_a_ring_of_permutes_shares_the_link_that_two_of_them_need():
    hops = [(i, (i + 1) % 8) for i in range(8)]
    assert V100[3][4] == V100[7][0] == 0
    assert busiest_link(V100, ALL, hops) == 1  # single links; those beside carry halves of 3 to 4


LINKS = st.lists(st.integers(0, 3), min_size=15, max_size=15)


def symmetric(n, counts):
    links = [[0] * n for _ in range(n)]
    for (i, j), count in zip(combinations(range(n), 2), counts, strict=False):
        links[i][j] = links[j][i] = count
    return tuple(map(tuple, links))


@given(st.integers(2, 6), LINKS)
def test_no_routing_beats_the_narrowest_cut_and_no_cut_a_chips_own_links(n, counts):
    links, members = symmetric(n, counts), tuple(range(n))
    routed, cut = straight_links(links, members), narrowest_links(links, members)
    assert 0 <= routed <= cut * (1 + 1e-9)
    assert cut <= min(map(sum, links))


@given(st.integers(2, 6), LINKS)
def test_ways_go_over_links_and_are_equally_long(n, counts):
    links = symmetric(n, counts)
    for i, j in permutations(range(n), 2):
        ways = shortest_ways(links, tuple(range(n)), i, j)
        assert len({len(way) for way in ways}) <= 1
        assert len(set(ways)) == len(ways)
        for way in ways:
            assert (way[0], way[-1]) == (i, j)
            assert all(links[a][b] for a, b in pairwise(way))
