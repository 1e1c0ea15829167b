"""Seconds of kernels whose rows indices name: caches, and updates that meet."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.io import ideal
from scaling.profiles.shipped import shipped
from scaling.program.ir import Kernel, Program
from scaling.simulate.kernels import kernel_time, moved_bytes
from scaling.simulate.step import price
from scaling.simulate.uncertainty import row_range, step_range

CLUSTER = catalog.load("dgx-h100")
H100 = CLUSTER.accelerator
CACHE = float(H100.required("l2_cache"))
ROWS = Kernel("g", bytes=2e9, again=6e9, spread=2 * CACHE)


def test_a_cache_holds_its_size_of_the_rows() -> None:
    assert moved_bytes(ROWS, H100, ideal()) == 2e9 + 6e9 / 2
    assert moved_bytes(replace(ROWS, spread=CACHE / 2), H100, ideal()) == 2e9
    assert moved_bytes(replace(ROWS, again=0.0), H100, ideal()) == 2e9


def test_where_no_cache_is_known_all_rows_are_found_in_it() -> None:
    """The chip's is not known; a calibration may have found one."""
    chip, profile = replace(H100, l2_cache=None), ideal()
    assert moved_bytes(ROWS, chip, profile) == 2e9
    found = replace(profile, memory=replace(profile.memory, cache=CACHE))
    assert moved_bytes(ROWS, chip, found) == 2e9 + 6e9 / 2


@given(st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e12), st.floats(0, 1e9))
def test_the_price_lies_between_its_ends(moved, again, spread, clashes) -> None:
    kernel = Kernel("g", bytes=moved, again=again, spread=spread, clashes=clashes)
    low, high = row_range(kernel, H100, shipped("h100-sxm"))
    assert low <= kernel_time(kernel, H100, shipped("h100-sxm")).time <= high
    assert high >= clashes / H100.required("clock")


def test_updates_that_meet_widen_a_step_upwards_only() -> None:
    def ends(kernel: Kernel) -> tuple[float, float]:
        program = Program("p", "compiled", {"data": 1, "fsdp": 8}, (kernel,))
        return step_range(price(program, CLUSTER, shipped("h100-sxm")))

    apart = Kernel("s", bytes=1e6)
    low, high = ends(apart)
    clocks = 1e9
    same_low, later = ends(replace(apart, clashes=clocks))
    assert same_low == low
    assert later >= clocks / H100.required("clock") > high


def test_a_step_with_scattered_rows_has_a_range_that_holds_its_price() -> None:
    program = Program("p", "compiled", {"data": 1, "fsdp": 8}, (ROWS,))
    priced = price(program, CLUSTER, shipped("h100-sxm"))
    low, high = step_range(priced)
    assert low * 2 < priced.timeline.total < high
    assert priced.timeline.total == pytest.approx(kernel_time(ROWS, H100, priced.profile).time)
