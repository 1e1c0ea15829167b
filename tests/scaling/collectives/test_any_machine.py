"""Prices of collectives on random machines and meshes: never below a bound, never the wrong way.

10 machines for each kind of collective and property, always the same; 1,000 new ones in the long
tier.
"""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.collectives.algorithms import algorithms_of
from scaling.collectives.candidates import seconds_of
from scaling.collectives.cost import collective_figures, collective_time
from scaling.meshes.errors import InputError
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.simulate.collective import collective_prices
from scaling.simulate.what_if import COSTS, changed
from tests.scaling.collectives.machines import random_case
from tests.scaling.collectives.test_physics import Case, cut_time

THOROUGH = not settings().derandomize
EACH = settings(max_examples=1000 if THOROUGH else 10)
SEEDS = st.integers(0, 2**63 - 1)
KINDS = pytest.mark.parametrize("kind", COLLECTIVE_KINDS)
SIZES = np.array([0, 1, 8, 1e3, 6.5e4, 1e6, 3.3e7, 1e9, 7.7e10, 1e15])  # bytes
CLOSE = 1 - 1e-9
ROOM = 48  # devices of a graph whose max-flow is found in milliseconds


def times(kind, case, algorithm="auto", skew=1.0):
    """Prices and bounds at all sizes; None where nobody says how such groups communicate."""
    place = (case.groups, case.cluster, case.profile, algorithm, skew)
    with suppress(InputError):
        found = collective_time(kind, SIZES, *place)
        return np.broadcast_to(found.time, SIZES.shape), found.lower_bound
    return None


@KINDS
@EACH
@given(SEEDS)
def test_no_algorithm_is_faster_than_the_bound_that_is_printed(kind, seed):
    case = random_case(seed)
    skew = 1 + (case.groups.shape[1] - 1) * (seed % 3) / 2 if kind == "all-to-all" else 1.0
    for algorithm in ("auto", *algorithms_of(kind)):
        if found := times(kind, case, algorithm, skew):
            time, bound = found
            assert np.isfinite(time).all() and (time >= bound * CLOSE).all(), algorithm
            assert (np.diff(time) >= -1e-12 * time[1:]).all(), algorithm


@KINDS
@EACH
@given(SEEDS)
def test_the_range_holds_the_price_and_all_figures_are_finite(kind, seed):
    case = random_case(seed)
    with suppress(InputError):
        sizes = [1, 10**5, 10**9, 10**15]
        place = (case.groups, case.cluster, case.profile)
        for price in collective_prices(kind, sizes, *place):
            assert price.lower_bound * CLOSE <= price.time
            assert price.time_low <= price.time <= price.time_high
            rates = price.algorithm_bandwidth, price.bus_bandwidth
            assert np.isfinite([price.time_high, *rates]).all()
        figures = collective_figures(kind, *place)
        fast = [np.min(seconds_of(figures, size)) for size in SIZES]
        assert fast == pytest.approx(times(kind, case)[0], rel=1e-12)


@KINDS
@EACH
@given(SEEDS, st.sampled_from(["nvlink", "pcie", "network", "latency"]), st.data())
def test_a_better_figure_is_never_slower_and_a_worse_one_never_faster(kind, seed, name, data):
    best = "0" if name in COSTS else "inf"
    factor = data.draw(st.sampled_from([best, "1e-12", "1e-3", "0.5", "1.1", "10", "1e12"]))
    case = random_case(seed)
    before = times(kind, case)
    with suppress(InputError):  # a cluster without such links
        cluster, profile = changed(case.cluster, case.profile, [f"{name} x{factor}"])
        after = collective_time(kind, SIZES, case.groups, cluster, profile).time
        assert np.isfinite(after).all()
        if (float(factor) > 1) != (name in COSTS):
            assert (after <= before[0] / (1 - 1e-12)).all()
        else:
            assert (after >= before[0] * (1 - 1e-12)).all()


@KINDS
@EACH
@given(SEEDS)
def test_no_price_is_below_the_bytes_over_the_narrowest_cut_of_all_wires(kind, seed):
    """Sets of chips cut off: one, half a node, a node, a group of leaves, half of all.

    Where NICs are wired to one of several sockets, nobody prices the way to it from the others.
    """
    case = random_case(seed)
    cluster = case.cluster
    wires = [*cluster.links, *([cluster.torus] if cluster.torus else [])]
    is_finite = all(np.isfinite(wire.bandwidth.value) for wire in wires)
    one_sided = any(link.wiring == "pairs" and "nic" in link.parts for link in cluster.links)
    possible = is_finite and not one_sided and cluster.devices <= ROOM
    found = times(kind, case) if possible else None
    if found:
        at = np.flatnonzero(SIZES == 1e9)[0]
        whole = Case(cluster, kind, case.groups, SIZES[at])
        n, leaf = cluster.devices_per_node, cluster.fabric and cluster.fabric.leaf_nodes.value
        cuts = {1, n // 2, n, n * int(leaf or 1), cluster.devices // 2} - {0}
        bound = max(cut_time(whole, range(min(size, cluster.devices))) for size in cuts)
        assert found[0][at] >= bound * (1 - 1e-4)
