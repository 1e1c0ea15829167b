"""Matrix products by tiles: waves, splits, loads, and what no product passes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.grades import half_range
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Evidence, MatmulFit
from scaling.profiles.shipped import shipped, shipped_names
from scaling.program.ir import Kernel
from scaling.simulate.kernels import kernel_time
from scaling.simulate.products import SHORTEST, SPLIT, busy_time

HERE = Evidence("a test", "2026-11", "measured")
H100 = catalog.accelerator("h100-sxm")
PEAK = H100.peak("bf16")
FIT = MatmulFit("bf16", 1.0, HERE, load=1e6)  # loads take no time
CORES = H100.cores or 0
SIDES = st.integers(1, 50_000)
CHIPS = ("a100-sxm-80g", "b200-sxm", "gb300", "h200-sxm", "l40s", "mi300x", "rtx3090", "tpu-v5p")


def product(m, n, k, batch=1.0):
    moved = 2.0 * batch * (m * k + k * n + m * n)
    dims = (batch, m, n, k)
    flops = 2.0 * batch * m * n * k
    return Kernel("dot", kind="matmul", flops=flops, bytes=moved, dtype="bf16", dims=dims)


def share(fit, m, n, k):
    """The share of the peak while the cores are busy."""
    flops = 2.0 * m * n * k
    return flops / PEAK / busy_time(fit, flops, (1, m, n, k), "bf16", PEAK, H100)


def test_a_whole_wave_of_tiles_keeps_all_cores_busy():
    assert share(FIT, 128 * 12, 256 * 11, 65536) == pytest.approx(1.0)


def test_a_row_more_than_a_wave_costs_a_wave_of_lower_tiles():
    """11 x 12 tiles of 128 x 256 fill all cores; a row more takes two waves, or smaller tiles."""
    fit = replace(FIT, load=100.0)  # lower ones would wait for their loads
    full, more = share(fit, 128 * 11, 256 * 12, 4096), share(fit, 128 * 11 + 1, 256 * 12, 4096)
    assert full == pytest.approx(1) and 0.6 < more < 0.9


def test_filling_is_paid_for_each_wave():
    fit = replace(FIT, fill=1e-6)
    tiles = 128 * 12, 256 * 11
    busy = 2 * tiles[0] * tiles[1] * 4096 / PEAK
    assert share(fit, *tiles, 4096) == pytest.approx(busy / (busy + 1e-6))


def test_small_tiles_are_bound_by_their_loads():
    """A row of one tile: 64 columns of 132 cores each, a row and a column of bf16 a step."""
    clock, load = H100.clock, 32.0
    fit = replace(FIT, load=load)
    time = 2 * 16 * 64 * CORES * 4096 / (PEAK * share(fit, 16, 64 * CORES, 4096))
    assert time == pytest.approx(4096 * (16 + 64) * 2 / (load * clock))


def test_cores_share_the_products_of_a_few_tiles():
    """As in the gradient of a small matrix: 18 tiles of 128 x 256 for 132 cores, a long k."""
    assert 18 / 132 < 0.6 < share(FIT, 768, 768, 65536) <= 1
    alone = 2 * 128 * 256 * SHORTEST / PEAK * CORES  # too short to be shared
    assert share(FIT, 128, 256, SHORTEST) <= 2 * 128 * 256 * SHORTEST / PEAK / (alone / CORES)


def test_the_sum_of_parts_takes_its_time():
    one = 2 * 128 * 256 * 65536 / (PEAK * share(FIT, 128, 256, 65536))
    assert one > SPLIT


def test_without_loads_half_sizes_halve():
    fit = MatmulFit("fp32", 0.9, HERE, half_sizes=(8.0, 0.0, 32.0))
    assert busy_time(fit, 1.0, (1, 8, 100, 32), "fp32", 1.0, H100) == pytest.approx(4 / 0.9)
    assert busy_time(fit, 1.0, (), "fp32", 1.0, H100) == 1 / 0.9


@given(SIDES, SIDES, SIDES, st.integers(0, 2), st.integers(1, 1000), st.sampled_from(CHIPS))
def test_a_larger_product_never_takes_less_time(m, n, k, which, more, name):
    chip, larger = catalog.accelerator(name), [m, n, k]
    larger[which] += more
    times = [kernel_time(product(*d), chip, profile_of(chip)).time for d in ((m, n, k), larger)]
    assert times[1] >= times[0] * (1 - 1e-9)


@given(SIDES, SIDES, SIDES, st.sampled_from(CHIPS))
def test_no_product_passes_its_peak_or_the_memory(m, n, k, name):
    chip = catalog.accelerator(name)
    profile, kernel = profile_of(chip), product(float(m), float(n), float(k))
    time = kernel_time(kernel, chip, profile).time
    fit = profile.matmul[0]
    assert np.isfinite(time)
    assert kernel.flops / time <= min(fit.sustained, fit.best) * chip.peak("bf16") * (1 + 1e-9)
    assert kernel.bytes / time <= chip.memory_bandwidth


@given(SIDES, SIDES, SIDES, st.sampled_from(CHIPS))
def test_sides_may_be_exchanged(m, n, k, name):
    chip = catalog.accelerator(name)
    one, other = (kernel_time(product(*d, k), chip, profile_of(chip)) for d in ((m, n), (n, m)))
    assert one.time == pytest.approx(other.time)


@given(st.lists(st.tuples(SIDES, SIDES, SIDES), min_size=1, max_size=5), st.sampled_from(CHIPS))
def test_arrays_are_priced_like_single_products(shapes, name):
    chip = catalog.accelerator(name)
    profile = profile_of(chip)
    together = kernel_time(product(*np.array(shapes, float).T), chip, profile)
    alone = [float(kernel_time(product(*map(float, s)), chip, profile).time) for s in shapes]
    assert together.time == pytest.approx(alone)


def test_a_burst_is_faster_than_a_long_product_where_power_limits():
    kernel = product(16384.0, 16384.0, 16384.0)
    for name in shipped_names():
        chip, long = catalog.accelerator(name), shipped(name)
        burst = replace(long, matmul=(replace(long.matmul[0], sustained=1.0),))
        times = [kernel_time(kernel, chip, profile).time for profile in (burst, long)]
        assert times[0] <= times[1] < 1.6 * times[0]


def test_a_chip_of_more_watts_for_its_peak_sustains_more_of_it():
    b200, gb300 = (profile_of(catalog.accelerator(n)).matmul[0] for n in ("b200-sxm", "gb300"))
    assert b200.sustained < gb300.sustained <= gb300.efficiency == b200.efficiency


def test_chips_without_a_table_say_so():
    for name in ("gb200", "rtx-pro-6000", "v100-sxm-16g", "mi250x-gcd", "tpu-v5p"):
        evidence = profile_of(catalog.accelerator(name)).matmul[0].evidence
        assert evidence.grade == "datasheet" and half_range(evidence, "datasheet") >= 0.3
    h200 = profile_of(catalog.accelerator("h200-sxm")).matmul[0]
    assert h200.sustained == shipped("h100-sxm").matmul[0].sustained  # of equal silicon
