import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.collectives.algorithms import bus_factor
from scaling.collectives.cost import collective_time, with_timed_calls
from scaling.meshes import catalog
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.errors import InputError
from scaling.profiles.io import profile_of

P5 = catalog.load("p5", 16)
FITS = profile_of(P5.accelerator)
GIB = 2.0**30
SIZES = 2.0 ** np.arange(3, 34)


def group(nodes: int, per_node: int = 8) -> np.ndarray:
    """One group over the first devices of the first nodes."""
    return (np.arange(nodes)[:, None] * 8 + np.arange(per_node)).reshape(1, -1)


def seconds(kind, bytes_, groups, profile=FITS):
    return collective_time(kind, bytes_, groups, P5, profile).time


def bus(kind: str, nodes: int, rate: float) -> MeasuredCall:
    """A call of 1 GiB at a bus bandwidth, among all ranks of some nodes."""
    return MeasuredCall(kind, 8 * nodes, GIB, nodes=nodes, bus_bandwidth=rate)


QUARTER = with_timed_calls(FITS, P5, [bus("all-reduce", 16, 50e9), bus("all-gather", 16, 27e9)])


@pytest.mark.parametrize(("kind", "rate"), [("all-reduce", 50e9), ("all-gather", 27e9)])
def test_what_was_timed_is_what_is_priced(kind, rate):
    cost = collective_time(kind, GIB, group(16), P5, QUARTER)
    assert GIB / cost.time * bus_factor(kind, 128) == pytest.approx(rate)
    assert cost.evidence and cost.evidence.grade == "measured" and not cost.extrapolated
    assert "timed on 16 nodes" in cost.bottleneck


def test_a_level_that_was_not_timed_stays():
    assert seconds("all-reduce", GIB, group(1), QUARTER) == seconds("all-reduce", GIB, group(1))


def test_one_large_call_says_nothing_of_latency():
    small = seconds("all-reduce", 1.0, group(16), QUARTER)
    assert small == pytest.approx(seconds("all-reduce", 1.0, group(16)), rel=0.01)


def test_a_kind_that_was_not_timed_takes_the_mean_and_a_wider_range():
    own = collective_time("all-gather", GIB, group(16), P5, QUARTER)
    lent = collective_time("reduce-scatter", GIB, group(16), P5, QUARTER)
    assert lent.extrapolated and lent.evidence.error_p90 > own.evidence.error_p90
    factors = [
        seconds(kind, 32 * GIB, group(16), QUARTER) / seconds(kind, 32 * GIB, group(16))
        for kind in ("all-reduce", "all-gather", "reduce-scatter")
    ]
    assert factors[2] == pytest.approx((factors[0] * factors[1]) ** 0.5, rel=0.01)


def test_falling_bandwidth_goes_on_falling_at_most_in_proportion():
    calls = [bus("all-reduce", 2, 40e9), bus("all-reduce", 4, 10e9)]
    timed = with_timed_calls(FITS, P5, calls)
    ratio = lambda n: (
        seconds("all-reduce", GIB, group(n), timed) / seconds("all-reduce", GIB, group(n))
    )
    assert ratio(2) < ratio(3) < ratio(4)
    assert ratio(8) == pytest.approx(2 * ratio(4), rel=0.05)
    cost = collective_time("all-reduce", GIB, group(8), P5, timed)
    assert cost.extrapolated and "fewer than these 8" in cost.bottleneck


def test_groups_at_once_share_links_as_before():
    side = np.arange(128).reshape(16, 8).T  # eight groups, one rank of each node
    alone = seconds("all-gather", GIB, side, QUARTER) / seconds("all-gather", GIB, side)
    assert alone == pytest.approx(
        seconds("all-gather", 8 * GIB, group(16), QUARTER)
        / seconds("all-gather", 8 * GIB, group(16)),
        rel=0.02,
    )


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 4, 16]), st.sampled_from([2**10, 2**20, 2**30])).map(
            lambda pair: (*pair, "all-reduce")
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.floats(1.0, 50.0), min_size=6, max_size=6),
    st.sampled_from(["all-reduce", "all-gather", "all-to-all", "permute"]),
    st.sampled_from([(1, 4), (2, 8), (3, 8), (16, 1), (16, 8)]),
)
def test_more_bytes_never_take_less_and_no_call_beats_its_links(points, slower, kind, where):
    calls = []
    for (nodes, size, timed), factor in zip(points, slower, strict=False):
        time = float(seconds(timed, float(size), group(nodes))) * factor
        calls.append(MeasuredCall(timed, 8 * nodes, size, nodes=nodes, seconds=time))
    cost = collective_time(kind, SIZES, group(*where), P5, with_timed_calls(FITS, P5, calls))
    assert (np.diff(cost.time) >= -1e-12 * cost.time[1:]).all()
    assert (cost.time >= cost.lower_bound).all()


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (bus("all-reduce", 1, 900e9), "faster than the links of p5"),
        (bus("all-reduce", 2, 500.0), "bus_bandwidth in bytes/s"),
        (bus("allreduce", 2, 5e9), "did you mean 'all-reduce'"),
        (MeasuredCall("all-reduce", 16, GIB, nodes=1, seconds=1), "a node of p5 has 8"),
        (MeasuredCall("all-reduce", 12, GIB, seconds=1), "do not fill nodes of 8"),
    ],
)
def test_what_the_cluster_cannot_have_measured_is_refused(call, says):
    with pytest.raises(InputError, match=says):
        with_timed_calls(FITS, P5, [call])


def test_reductions_in_switches_may_exceed_the_wire():
    """458 GB/s of an all-reduce in a node of H100 with links of 450: published, and right."""
    timed = with_timed_calls(FITS, P5, [bus("all-reduce", 1, 480e9)])
    assert seconds("all-reduce", GIB, group(1), timed) < seconds("all-reduce", GIB, group(1))


def test_over_fewer_nodes_than_were_timed_a_fabric_that_saturates_is_sound():
    calls = [bus("all-reduce", 8, 40e9), bus("all-reduce", 16, 20e9)]
    timed = with_timed_calls(FITS, P5, calls)
    ratio = lambda n: (
        seconds("all-reduce", GIB, group(n), timed) / seconds("all-reduce", GIB, group(n))
    )
    assert ratio(4) == pytest.approx(ratio(8) / 2, rel=0.1) and ratio(2) < ratio(4)
    alone = with_timed_calls(FITS, P5, calls[1:])  # nothing says that fewer nodes have more
    assert seconds("all-reduce", GIB, group(2), alone) > 10 * seconds("all-reduce", GIB, group(2))
    assert "more than these 4" in collective_time("all-reduce", GIB, group(4), P5, timed).bottleneck


def test_hosts_of_one_nvlink_domain_are_one_node():
    racks = catalog.load("gb200-nvl72", 32)
    fits = profile_of(racks.accelerator)
    whole = np.arange(64)[None]
    time = 3 * collective_time("all-reduce", GIB, whole, racks, fits).time
    call = MeasuredCall("all-reduce", 64, GIB, nodes=16, seconds=time)
    cost = collective_time("all-reduce", GIB, whole, racks, with_timed_calls(fits, racks, [call]))
    assert cost.time == pytest.approx(time) and "64 ranks of a node" in cost.bottleneck
