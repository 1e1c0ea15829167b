"""Ranges of one call: by what its time consists of, and wider far from what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.cost import GROWTH, collective_time, doublings
from scaling.meshes import catalog
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import Evidence, LinkFit, MeasuredSpan

SPAN = MeasuredSpan(ranks=(2, 16), nodes=(1, 2), bytes=(1e6, 1e9))
KNOWN = Evidence(
    "a test", "2026-11", "calibrated", 9, error_p90=0.2, latency_p90=0.8, measured=SPAN
)
H100 = profile_of(catalog.accelerator("h100-sxm"))


def cost(nodes, size, *fits, kind="all-gather"):
    cluster = catalog.load("dgx-h100", nodes)
    profile = replace(ideal(), links=fits) if fits else H100
    return collective_time(kind, size, np.arange(cluster.devices)[None], cluster, profile)


def test_latency_and_bytes_have_ranges_of_their_own():
    fit = LinkFit("any", "nvlink", 1.0, KNOWN, alpha=1e-4 - 7 * 0.6e-6)
    small, large = cost(1, 1e6, fit), cost(1, 1e9, fit)
    wire = 1e9 * 7 / 8 / 450e9
    share = 1e-4 / (1e-4 + wire)
    assert large.evidence.error_p90 == pytest.approx(share * 0.8 + (1 - share) * 0.2)
    assert 0.7 < small.evidence.error_p90 < 0.8
    assert not small.extrapolated and not large.extrapolated


def test_a_call_between_nodes_is_no_surer_than_the_network():
    sure = LinkFit("any", "nvlink", 0.1, replace(KNOWN, error_p90=0.1, latency_p90=0.1))
    unsure = LinkFit("any", "network", 1.0, KNOWN)
    across = cost(2, 1e9, sure, unsure)
    assert across.bottleneck.startswith("NVLink") and across.evidence.error_p90 >= 0.2


@given(st.lists(st.floats(0, 1e-3), min_size=4, max_size=4), st.sampled_from([8.0, 1e12]))
def test_the_source_is_that_of_the_level_whose_time_decides(latencies, size):
    """The one without whose latency, or bytes, the call would be shortest."""
    fits = [
        LinkFit("any", link, 0.3, replace(KNOWN, source=link), alpha=alpha, hop_overhead=hop)
        for link, alpha, hop in zip(
            ("nvlink", "network"), latencies[:2], latencies[2:], strict=True
        )
    ]
    still = {"alpha": 0.0, "hop_overhead": 0.0, "latency_factor": 0.0, "efficiency": 1e9}
    without = [
        cost(2, size, *(replace(fit, **still) if fit is gone else fit for fit in fits)).time
        for gone in fits
    ]
    if without[0] != pytest.approx(without[1], rel=1e-9):
        shorter = fits[int(np.argmin(without))]
        assert cost(2, size, *fits).evidence.source == shorter.link


@given(st.integers(1, 4096), st.integers(1, 512), st.floats(1, 1e12))
def test_ranges_grow_with_the_distance_and_never_shrink(ranks, nodes, size):
    here = doublings(SPAN, size, ranks, nodes)
    assert here >= 0 and doublings(None, size, ranks, nodes) == 0
    assert doublings(SPAN, size, ranks, 2 * max(nodes, 2)) >= here
    assert doublings(SPAN, 2 * max(size, 1e9), ranks, nodes) >= min(here, 1)
    inside = 2 <= ranks <= 16 and 1 <= nodes <= 2 and 1e6 <= size <= 1e9
    assert (here == 0) == inside


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "all-to-all"])
def test_more_nodes_than_were_measured_are_less_sure(kind):
    halves = [cost(nodes, 2**30, kind=kind).evidence.error_p90 for nodes in (2, 256, 1024)]
    assert halves[1] <= halves[2] * (1 + 1e-9) and halves[0] < halves[2]
    far = cost(1024, 2**30, kind=kind)
    assert far.extrapolated and GROWTH > 1


def test_the_same_network_takes_as_long_from_b200_as_from_h100():
    """All-gathers leave both through eight NICs of 400 Gb/s."""
    times = []
    for name in ("dgx-h100", "dgx-b200"):
        cluster = catalog.load(name, 16)
        groups = np.arange(128).reshape(16, 8).T  # one rank of each node
        profile = profile_of(cluster.accelerator)
        times.append(collective_time("all-gather", 2**30, groups, cluster, profile).time)
    assert times[0] == pytest.approx(times[1], rel=0.02)


def test_sums_in_the_network_are_told_by_the_one_machine_that_ran_them():
    cluster = catalog.load("dgx-h100", 12)
    price = collective_time(
        "all-reduce", 2**30, np.arange(96)[None], cluster, H100, algorithm="sharp"
    )
    assert price.time == pytest.approx(5.81e-3, rel=0.2)  # CoreWeave (collectives.csv)
    assert price.evidence.samples == 5 and "SHARP" in price.evidence.source


def test_cards_on_their_own_root_ports_read_each_other_in_pairs_only():
    """NCCL copies through host memory from three cards on (paths.cc); 2 and 4 L40S show it."""
    cluster = catalog.load("l40s-8")
    profile = profile_of(cluster.accelerator)
    two, four = (
        collective_time("all-gather", 1e9, np.arange(n)[None], cluster, profile) for n in (2, 4)
    )
    bus = [1e9 * (n - 1) / n / cost.time for n, cost in ((2, two), (4, four))]
    assert bus[0] > 3 * bus[1]
    assert four.bottleneck.endswith("through host memory")
    assert not two.bottleneck.endswith("through host memory")
