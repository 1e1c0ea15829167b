"""How long gloo's collectives take, and how messages share links."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.gloo.messages import KINDS, groups_over, link_bytes, payload_bound
from experiments.gloo.sharing import Transfer, fair_rates, finish_time
from experiments.gloo.time import PAYLOAD_SHARE, predicted_time

RATE = 125e6  # bytes/s
MIB = 2**20
kinds = st.sampled_from(KINDS)
axes = st.sampled_from(["all", "hosts"])


def seconds(kind, hosts, devices=1, axis="all", size=16 * MIB, rate=RATE, latency=0.0):
    return predicted_time(kind, groups_over(axis, hosts, devices), devices, size, rate, latency)


def bound(kind, hosts, devices=1, axis="all", size=16 * MIB, rate=RATE):
    link = link_bytes(kind, groups_over(axis, hosts, devices), devices, size)
    return payload_bound(link, rate)


@given(kinds, st.integers(2, 4), st.integers(1, 2), axes)
def test_no_prediction_is_below_the_payload_over_the_rate(kind, hosts, devices, axis):
    least = bound(kind, hosts, devices, axis) / PAYLOAD_SHARE
    assert seconds(kind, hosts, devices, axis) >= least * (1 - 1e-9) > 0


@given(kinds, st.integers(2, 4), axes, st.floats(1.1, 4), st.floats(0, 1e-3))
def test_more_bytes_never_take_less_time_and_faster_links_never_more(
    kind, hosts, axis, factor, latency
):
    usual = seconds(kind, hosts, 2, axis, latency=latency)
    assert seconds(kind, hosts, 2, axis, size=16 * MIB * factor, latency=latency) >= usual
    assert seconds(kind, hosts, 2, axis, rate=RATE * factor, latency=latency) <= usual


@given(kinds, st.integers(2, 4), axes)
def test_latency_adds_and_never_takes(kind, hosts, axis):
    times = [seconds(kind, hosts, 2, axis, latency=s) for s in (0.0, 1e-3, 1.0)]
    assert times == sorted(times) and times[2] > 0.9


@pytest.mark.parametrize(
    ("kind", "times"), [("permute", 2), ("all-to-all", 2), ("all-gather", 1.5)]
)
def test_two_ranks_that_send_first_do_not_use_both_directions_at_once(kind, times):
    least = bound(kind, 2) / PAYLOAD_SHARE
    assert seconds(kind, 2) == pytest.approx(times * least)


def test_of_two_groups_the_mean_over_who_is_first_is_taken():
    """Both pairs the same way: 4 messages' time; opposite ways: 2; so 3, where 2 is the bound."""
    least = bound("permute", 2, 2, "hosts") / PAYLOAD_SHARE
    assert seconds("permute", 2, 2, "hosts") == pytest.approx(1.5 * least)


@pytest.mark.parametrize("kind", ["all-reduce", "reduce-scatter"])
def test_two_ranks_that_ask_first_use_both_directions_at_once(kind):
    assert seconds(kind, 2) == pytest.approx(bound(kind, 2) / PAYLOAD_SHARE)


@pytest.mark.parametrize("kind", ["all-gather", "permute", "all-reduce"])
def test_a_ring_of_three_goes_one_way_and_is_not_held_up(kind):
    assert seconds(kind, 3) == pytest.approx(bound(kind, 3) / PAYLOAD_SHARE)


def test_a_ring_hides_its_latency_behind_large_messages_only():
    large, small = 64 * MIB, 2**12
    assert seconds("all-gather", 4, size=large, latency=1e-3) == seconds(
        "all-gather", 4, size=large
    )
    assert seconds("all-gather", 4, size=small, latency=1e-3) == pytest.approx(3e-3, rel=0.01)


# Sharing


def test_one_message_has_the_whole_link():
    assert finish_time([Transfer(0, 1, 10.0)], 5.0) == 2.0


def test_two_out_of_one_host_share_and_the_second_speeds_up():
    assert finish_time([Transfer(0, 1, 5.0), Transfer(0, 2, 10.0)], 5.0) == pytest.approx(3.0)


def test_both_directions_of_a_link_are_apart():
    assert finish_time([Transfer(0, 1, 10.0), Transfer(1, 0, 10.0)], 5.0) == 2.0
    assert finish_time([Transfer(0, 1, 10.0), Transfer(1, 0, 10.0, (0,))], 5.0) == 4.0


def test_inside_a_host_no_time_passes():
    assert finish_time([Transfer(0, 0, 10.0), Transfer(1, 0, 10.0, (0,))], 5.0) == 2.0
    assert finish_time([], 5.0) == 0.0


transfers = st.lists(
    st.tuples(st.integers(0, 4), st.integers(1, 4), st.floats(1, 100)).map(
        lambda t: Transfer(t[0], (t[0] + t[1]) % 5, t[2])
    ),
    min_size=1,
    max_size=12,
)


def totals(given_transfers, values):
    found = {}
    for t, value in zip(given_transfers, values, strict=True):
        for link in (("out", t.source), ("in", t.target)):
            found[link] = found.get(link, 0.0) + value
    return found


@given(transfers)
def test_no_link_is_overfull_and_everybody_has_a_full_one(drawn):
    """Max-min fairness: nobody could have more without taking from one that has no more."""
    rates = fair_rates(drawn, 1.0)
    used = totals(drawn, rates)
    assert all(0 < rate <= 1 for rate in rates) and max(used.values()) <= 1 + 1e-9
    for t, rate in zip(drawn, rates, strict=True):
        held_up = False
        for link in (("out", t.source), ("in", t.target)):
            on = [
                r
                for o, r in zip(drawn, rates, strict=True)
                if link in (("out", o.source), ("in", o.target))
            ]
            held_up |= used[link] > 1 - 1e-9 and rate >= max(on) - 1e-9
        assert held_up
