"""Tori played link by link against their closed form: the same, or a reason why not."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.cost import collective_time
from scaling.collectives.torus import grid_of, groups_along
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal
from tests.oracle.replay import Call, replay
from tests.oracle.schedules import schedule
from tests.oracle.torus_messages import Hop, backwards, box_of, parts_of

IDEAL = ideal()
GB = 1e9
REDUCTIONS = ("all-gather", "reduce-scatter", "all-reduce")
STRAIGHT = ("all-to-all", "permute")


def place(nodes, dims, name="tpu-v4"):
    """All rings or planes along some dimensions of a slice: v4 has 4 chips per node."""
    cluster = catalog.load(name, nodes)
    return cluster, groups_along(grid_of(cluster), dims)


def closed(kind, where):
    return collective_time(kind, GB, where[1], where[0], IDEAL).time


def played(kind, where, slices=1, size=GB):
    algorithm = "pairwise" if kind == "all-to-all" else "ring"
    return replay([Call(kind, size, where[1], algorithm, slices)], where[0], latency=False).time


def one_more(kind, where, slices):
    """Seconds of `slices` more slices, when as many are under way."""
    return played(kind, where, 2 * slices, 2 * GB) - played(kind, where, slices)


SHAPES = {2: (2, 2, 2), 4: (2, 2, 4), 8: (2, 4, 4), 16: (4, 4, 4)}  # nodes: lines, then rings


def test_shapes_are_those_of_the_slices():
    for nodes, shape in SHAPES.items():
        grid = grid_of(catalog.load("tpu-v4", nodes))
        assert grid.shape == shape
        assert grid.closed == (nodes == 16,) * 3


@pytest.mark.parametrize("kind", [*REDUCTIONS, *STRAIGHT])
@pytest.mark.parametrize(("nodes", "dims"), [(2, [0]), (4, [2]), (8, [1]), (16, [0]), (16, [2])])
def test_along_one_dimension_it_takes_as_long(nodes, dims, kind):
    where = place(nodes, dims)
    assert played(kind, where) == pytest.approx(closed(kind, where))


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dims", [[0, 1], [0, 1, 2]])
def test_lines_of_equal_length_work_at_once(dims, kind):
    where = place(2, dims)
    assert played(kind, where) == pytest.approx(closed(kind, where))


@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("dims", [[0, 1], [0, 1, 2]])
def test_rings_of_equal_length_work_at_once_and_move_what_a_member_lacks(dims, kind):
    """The book's V/(W M), the closed form, counts a member's own shard as well."""
    where = place(16, dims)
    members = where[1].shape[1]
    assert played(kind, where) == pytest.approx(closed(kind, where) * (1 - 1 / members))


@pytest.mark.parametrize("kind", STRAIGHT)
@pytest.mark.parametrize(("nodes", "dims"), [(2, [0, 1]), (8, [0, 1, 2]), (16, [0, 1, 2])])
def test_what_goes_straight_takes_as_long_over_several_dimensions(nodes, dims, kind):
    where = place(nodes, dims)
    assert played(kind, where) == pytest.approx(closed(kind, where))


@pytest.mark.parametrize(("nodes", "dims"), [(8, [0, 1]), (4, [0, 1, 2])])
def test_dimensions_of_unequal_length_are_busy_alike_in_slices(nodes, dims):
    """Two lines of 2 and one of 4: parts take turns in other orders, and none has to wait."""
    where = place(nodes, dims)
    found = one_more("reduce-scatter", where, 12)
    assert found == pytest.approx(closed("reduce-scatter", where), rel=0.02)


def test_gathers_that_meet_on_a_dimension_wait_for_each_other():
    """First come, first served is not the best order: backwards, a reduce-scatter needs none."""
    where = place(8, [0, 1])
    ratio = one_more("all-gather", where, 12) / closed("all-gather", where)
    assert 1 < ratio < 1.15


def test_sums_go_to_one_end_of_a_line_while_others_come_from_it():
    """In slices the second half of an all-reduce fills the links that the first leaves idle."""
    where = place(4, [2])  # 3 shards and 3 over the last link, or 4 together
    found = one_more("all-reduce", where, 8)
    assert found == pytest.approx(closed("all-reduce", where) * 4 / 6, rel=0.02)


@pytest.mark.parametrize(("nodes", "dim"), [(4, 2), (16, 1)])
def test_a_broadcast_goes_both_ways(nodes, dim):
    where = place(nodes, [dim])
    assert one_more("broadcast", where, 4) == pytest.approx(closed("broadcast", where))


def test_every_second_chip_of_a_ring_is_a_ring_of_longer_hops():
    cluster, rows = place(32, [2])  # 4x4x8
    where = cluster, np.concatenate([rows[:, ::2], rows[:, 1::2]])
    assert rows.shape[1] == 8
    for kind in (*REDUCTIONS, *STRAIGHT):
        assert played(kind, where) == pytest.approx(closed(kind, where)), kind


def test_a_hop_waits_for_the_one_before_it():
    """An all-gather around a ring of 4: two hops; on a line of 4: three."""
    for nodes, hops in ((16, 2), (4, 3)):
        cluster, groups = place(nodes, [2])
        found = replay([Call("all-gather", 0.0, groups)], cluster).time
        assert found == pytest.approx(hops * cluster.torus.hop_latency.value)


def test_a_skewed_all_to_all_is_no_slower_than_its_price():
    """The closed form puts the busiest receivers where it takes longest: here the first of each."""
    where = place(16, [0])
    call = Call("all-to-all", GB, where[1], "pairwise", skew=2.0)
    found = replay([call], where[0], latency=False).time
    price = collective_time("all-to-all", GB, where[1], where[0], IDEAL, skew=2.0).time
    assert closed("all-to-all", where) < found <= price * (1 + 1e-9)


# The schedule itself


@given(st.sampled_from(sorted(SHAPES)), st.sets(st.integers(0, 2), min_size=1))
def test_every_member_receives_all_shards_but_its_own(nodes, dims):
    cluster, groups = place(nodes, sorted(dims))
    group = groups[0].tolist()
    received = Counter()
    for send in schedule("all-gather", GB, group, cluster, "ring"):
        received[send.target] += send.bytes
    assert list(received.values()) == pytest.approx([GB * (1 - 1 / len(group))] * len(group))


@given(st.sampled_from(sorted(SHAPES)), st.sets(st.integers(0, 2), min_size=1))
def test_fractions_of_the_orders_are_those_of_one_array(nodes, dims):
    cluster, groups = place(nodes, sorted(dims))
    found = parts_of(box_of(cluster, groups[0].tolist()))
    assert sum(weight for _, weight in found) == pytest.approx(1)
    assert all(weight >= 0 and sorted(order) == sorted(dims) for order, weight in found)


def test_backwards_twice_is_the_same_again():
    hops = [
        Hop(((0,), (1,)), 1.0, (), ("a",)),
        Hop(((1,), (2,)), 2.0, (0,), ("b",)),
        Hop(((1,), (3,)), 3.0, (0,), ("c",)),
    ]
    turned = backwards(hops)
    assert [hop.after for hop in turned] == [(), (), (1, 0)]
    again = backwards(turned)
    assert [replace(hop, after=tuple(sorted(hop.after))) for hop in again] == hops


def test_groups_over_slices_and_groups_without_a_grid_are_refused():
    cluster = catalog.load("tpu-v4", 16)
    with pytest.raises(InputError, match="these 3 lie in a box of 4"):
        schedule("all-gather", GB, [0, 1, 2], cluster, "ring")
    apart = replace(cluster, domain_nodes=2)
    with pytest.raises(InputError, match="over several slices"):
        schedule("all-gather", GB, [0, apart.devices - 1], apart, "ring")
    with pytest.raises(InputError, match="along one dimension"):
        schedule("broadcast", GB, [0, 1, 2, 3], cluster, "ring")
