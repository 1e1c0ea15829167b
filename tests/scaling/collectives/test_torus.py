"""Collectives on a torus: the shares against counts link by link, and what rings and lines cost."""

from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.cost import collective_time
from scaling.collectives.torus import split_permute_share, torus_load, torus_permute_load
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.torus import TorusGrid
from scaling.profiles.io import ideal, profile_of
from tests.tori import grid_of, groups_along

IDEAL = ideal()
LINK = 45e9  # bytes/s of a TPU v4 or v5e, one link, one direction
RINGS = ("all-gather", "reduce-scatter", "all-reduce")
KINDS = (*RINGS, "all-to-all", "broadcast", "permute")


def grid(shape, closed=True, slices=1):
    """Slices numbered in row-major order."""
    places = np.array(list(product(*map(range, shape))) * slices)
    numbers = np.repeat(np.arange(slices), np.prod(shape))
    closed = (closed,) * len(shape) if isinstance(closed, bool) else closed
    return TorusGrid(places, numbers, shape, closed)


@st.composite
def spans(draw):
    """A slice, and some of its dimensions."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    closed = tuple(draw(st.booleans()) and size > 2 for size in shape)
    dims = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    return grid(shape, closed, draw(st.integers(1, 2))), sorted(dims)


def counted(pairs, g, bytes_to=None):
    """The busiest link, each pair's piece going the shorter way, half each way where both are."""
    links = Counter()
    for source, target in pairs:
        piece = bytes_to[target] if bytes_to is not None else 1.0
        at, goal = g.positions[source].tolist(), g.positions[target].tolist()
        for dim, size in enumerate(g.shape):
            steps = [(goal[dim] - at[dim], 1.0)]
            if g.closed[dim]:
                there = (goal[dim] - at[dim]) % size
                steps = [(there, 1.0)] if 2 * there < size else [(there - size, 1.0)]
                steps = [(there, 0.5), (-there, 0.5)] if 2 * there == size else steps
            for step, weight in steps:
                way = 1 if step > 0 else -1
                for t in range(abs(step)):
                    here = [*at[:dim], (at[dim] + way * t) % size, *at[dim + 1 :]]
                    links[(g.slices[source], *here, dim, way)] += weight * piece
            at[dim] = goal[dim]
    return max(links.values(), default=0.0)


# Shares against the formulas, and against counts


@pytest.mark.parametrize(
    ("shape", "closed", "gather", "all_to_all"),
    [
        ((16,), True, 1 / 2, 16 / 8),  # V/W; what one chip sends: V/16, so V/(4 W)
        ((4, 4, 4), True, 1 / 6, 4 / 8),
        ((4, 8), True, 1 / 4, 8 / 8),
        ((4,), False, 3 / 4, 4 / 4),
        ((4, 4), False, 15 / 16 / 2, 4 / 4),
        ((8, 16), (False, True), 1 / 3, 8 / 4),
    ],
)
def test_shares_of_a_whole_slice(shape, closed, gather, all_to_all):
    g = grid(shape, closed)
    everyone = np.arange(np.prod(shape))[None]
    assert torus_load("all-gather", everyone, g).share == pytest.approx(gather)
    assert torus_load("all-reduce", everyone, g).share == pytest.approx(2 * gather)
    assert torus_load("all-to-all", everyone, g).share == pytest.approx(all_to_all)


@given(spans())
def test_an_all_to_all_loads_the_links_as_counted_pair_by_pair(span):
    g, dims = span
    groups = groups_along(g, dims)
    pairs = [(a, b) for group in groups.tolist() for a in group for b in group if a != b]
    expected = counted(pairs, g) / groups.shape[1]
    assert torus_load("all-to-all", groups, g).share == pytest.approx(expected)


@given(st.data())
def test_a_permute_loads_the_links_as_counted_pair_by_pair(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 3, 5]), min_size=1, max_size=3)))
    g = grid(shape, tuple(data.draw(st.booleans()) and size > 2 for size in shape))
    target = data.draw(st.permutations(range(len(g.positions))))
    found = torus_permute_load(np.arange(len(target)), np.array(target), g)
    assert found.share == counted(enumerate(target), g)


@given(st.data())
def test_a_single_message_is_split_over_as_many_ways_as_dimensions_differ(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3)))
    g = grid(shape, (False,) * len(shape))
    ends = [data.draw(st.integers(0, len(g.positions) - 1)) for _ in range(2)]
    differ = int((g.positions[ends[0]] != g.positions[ends[1]]).sum())
    source, target = (np.array([end]) for end in ends)
    assert split_permute_share(source, target, g) == pytest.approx(1 / differ if differ else 0)


@given(st.sampled_from(RINGS), spans())
def test_every_chip_takes_in_what_it_lacks_over_the_links_of_its_dimensions(kind, span):
    g, dims = span
    groups = groups_along(g, dims)
    found, members = torus_load(kind, groups, g), groups.shape[1]
    ends = sum(2 if g.closed[dim] else 1 for dim in dims if g.shape[dim] > 1)  # of a corner
    rounds = 2 if kind == "all-reduce" else 1
    assert found.min_share * ends == pytest.approx(rounds * (1 - 1 / members) if ends else 0)
    assert found.share >= found.min_share
    assert found.share <= found.min_share * members / max(1, members - 1) + 1e-12


@given(spans(), st.sampled_from(("all-gather", "all-to-all", "broadcast")))
def test_wraparound_links_never_hurt(span, kind):
    g, dims = span
    opened = replace(g, closed=(False,) * len(g.shape))
    groups = groups_along(g, dims)
    ring, line = (torus_load(kind, groups, x) for x in (g, opened))
    # a ring passes shards on unsplit: 1 where a line of n has (n - 1)/n
    assert ring.min_share <= line.share and ring.torus_hops <= line.torus_hops


@given(spans(), st.sampled_from(KINDS[:-1]), st.randoms(use_true_random=False))
def test_neither_the_order_of_the_members_nor_of_the_groups_matters(span, kind, random):
    g, dims = span
    groups = groups_along(g, dims)
    mixed = groups.tolist()
    random.shuffle(mixed)
    for group in mixed:
        random.shuffle(group)
    assert torus_load(kind, np.array(mixed), g) == torus_load(kind, groups, g)


@pytest.mark.parametrize("kind", ["all-gather", "all-to-all", "broadcast"])
def test_every_second_chip_of_a_ring_shares_it_with_the_others(kind):
    g, apart = grid((8,)), np.array([[0, 2, 4, 6], [1, 3, 5, 7]])
    alone, both = torus_load(kind, apart[:1], g), torus_load(kind, apart, g)
    assert both.share == 2 * alone.share
    assert alone.share == torus_load(kind, np.arange(4)[None], grid((4,))).share
    assert (alone.groups, both.groups) == (1, 2)


def test_hops_go_half_around_a_ring_and_twice_in_an_all_reduce():
    g, apart = grid((8,)), np.array([[0, 2, 4, 6]])
    assert torus_load("all-gather", np.arange(8)[None], g).torus_hops == 4
    assert torus_load("all-gather", apart, g).torus_hops == 4
    assert torus_load("all-reduce", apart, g).torus_hops == 8


def test_only_what_stays_in_a_slice_goes_over_its_links():
    one, two = grid((4, 4)), grid((4, 4), slices=2)
    whole = torus_load("all-to-all", np.arange(16)[None], one)
    assert torus_load("all-to-all", np.arange(32)[None], two).share == whole.share / 2
    gather = torus_load("all-gather", np.arange(32)[None], two)
    assert gather == torus_load("all-gather", np.arange(16)[None], one)
    assert torus_permute_load(np.arange(16), 16 + np.roll(np.arange(16), 1), two).share == 0
    assert torus_permute_load(np.array([0, 0]), np.array([1, 16]), two).share == 1


# Seconds


def rate(name, nodes, dims, kind="all-gather", profile=IDEAL, size=1e9):
    cluster = catalog.load(name, nodes)
    groups = groups_along(grid_of(cluster), dims)
    return collective_time(kind, size, groups, cluster, profile)


def test_latency_of_the_links_hides_behind_bytes_and_that_of_the_steps_does_not():
    links = tuple(replace(fit, latency_factor=1.0) for fit in IDEAL.links)
    hops = replace(IDEAL, links=links)
    steps = replace(IDEAL, links=tuple(replace(fit, hop_overhead=1e-6) for fit in IDEAL.links))
    cube = ("tpu-v4", 16, [0, 1, 2])
    for size in (1.0, 1e9):
        bytes_alone = rate(*cube, size=size).time
        assert rate(*cube, profile=hops, size=size).time == pytest.approx(max(6e-6, bytes_alone))
        assert rate(*cube, profile=steps, size=size).time == pytest.approx(6e-6 + bytes_alone)


@given(st.sampled_from(KINDS), st.sampled_from([1, 2, 4, 8, 16]), st.floats(1, 1e11))
def test_no_time_is_below_its_bound_and_more_bytes_never_take_less(kind, nodes, size):
    cluster = catalog.load("tpu-v5p", nodes)
    everyone, sizes = np.arange(cluster.devices)[None], np.array([size, 2 * size])
    for profile in (IDEAL, profile_of(cluster.accelerator)):
        cost = collective_time(kind, sizes, everyone, cluster, profile)
        assert np.all(cost.time >= cost.lower_bound * (1 - 1e-12))
        assert cost.time[1] >= cost.time[0]


def test_slices_are_joined_by_their_hosts_networks():
    pods = catalog.load("tpu-v5p", 4480)
    across = np.arange(pods.devices).reshape(2, -1).T  # the same chip of both pods
    cost = collective_time("all-reduce", 1e6, across, pods, IDEAL)
    assert cost.time == pytest.approx(2 * 0.5e6 / 6.25e9)  # 25 GB/s for the four chips of a host
    assert cost.bottleneck.startswith("NICs of a slice: 8960 groups")
    inside = collective_time("all-gather", 1e9, np.arange(8960)[None], pods, IDEAL)
    assert inside.level == "domain"
    assert inside.time == pytest.approx(1e9 / (6 * 90e9))


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        ([[0, 1, 4]], "a group that is no box"),  # an L
        ([[0, 1, 4, 5], [2, 3, 8, 9]], "groups of different forms"),
        ([[0, 1, 3, 4]], "a group that is no box"),
        ([[0, 1, 2, 16]], "not as many chips of a group in every slice"),
    ],
)
def test_groups_that_are_no_boxes_are_refused(groups, what):
    with pytest.raises(InputError, match=f"{what}.*slice of 4x4 chips.*divide the dimensions"):
        torus_load("all-gather", np.array(groups), grid((4, 4), slices=2))
