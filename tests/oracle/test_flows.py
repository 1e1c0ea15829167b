"""Max-min fair rates by their definition, and arrival times counted by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle.flows import Flow, Network, arrival_times, fair_rates


def network(capacity, paths, latency=0.0):
    return Network(
        np.array(capacity, float), tuple(map(tuple, paths)), np.full(len(paths), latency)
    )


@st.composite
def networks(draw):
    """Links, paths over some of them, and how many flows take each path."""
    links = draw(st.integers(1, 5))
    capacity = draw(st.lists(st.floats(0.1, 100), min_size=links, max_size=links))
    path = st.sets(st.integers(0, links - 1), min_size=1)
    paths = draw(st.lists(path.map(sorted), min_size=1, max_size=6))
    users = draw(st.lists(st.integers(0, 3), min_size=len(paths), max_size=len(paths)))
    return network(capacity, paths), np.array(users)


def used(net, rates, users):
    """bytes/s on every link."""
    totals = np.zeros(len(net.capacity))
    for path, rate in zip(net.paths, rates * users, strict=True):
        totals[list(path)] += rate
    return totals


@given(networks())
def test_no_link_carries_more_than_it_can(case):
    net, users = case
    assert np.all(used(net, fair_rates(net, users), users) <= net.capacity * (1 + 1e-6))


@given(networks())
def test_every_flow_has_a_full_link_on_which_nobody_is_faster(case):
    """The definition of max-min fairness: no flow can rise but at the cost of a slower one."""
    net, users = case
    rates = fair_rates(net, users)
    full = used(net, rates, users) >= net.capacity * (1 - 1e-6)
    for p in np.flatnonzero(users):
        others = lambda k: [rates[q] for q in np.flatnonzero(users) if k in net.paths[q]]  # noqa: B023
        assert any(full[k] and rates[p] >= max(others(k)) * (1 - 1e-6) for k in net.paths[p])
    assert np.all(rates[users == 0] == 0)


def test_the_last_byte_arrives_one_latency_later():
    net = network([2], [[0]], latency=3)
    assert arrival_times(net, [Flow(0, 4), Flow(0, 4, after=(0,))]) == pytest.approx([5, 10])


def test_a_flow_behind_another_starts_when_that_has_left():
    net = network([2], [[0]], latency=3)
    assert arrival_times(net, [Flow(0, 4), Flow(0, 4, behind=(0,))]) == pytest.approx([5, 7])


def test_flows_that_wait_for_each_other_are_an_error():
    with pytest.raises(ValueError, match="2 flows wait for each other"):
        arrival_times(network([1], [[0]]), [Flow(0, 1, after=(1,)), Flow(0, 1, after=(0,))])


@given(networks(), st.lists(st.floats(0, 100), min_size=18, max_size=18))
def test_the_last_flow_ends_between_the_busiest_link_alone_and_all_links_in_turn(case, sizes):
    net, users = case
    paths = np.repeat(np.arange(len(users)), users)
    flows = [Flow(int(p), size) for p, size in zip(paths, sizes, strict=False)]
    ends = arrival_times(net, flows)
    totals = np.zeros(len(net.capacity))
    for flow in flows:
        totals[list(net.paths[flow.path])] += flow.bytes
    last = ends.max(initial=0.0)
    assert last >= (totals / net.capacity).max() * (1 - 1e-6)
    assert last <= (totals / net.capacity).sum() * (1 + 1e-6) + 1e-12
