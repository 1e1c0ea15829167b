"""Fourier transforms take as many passes over memory as their lengths ask for."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.op_cost import work_of
from scaling.hlo.passes import MOST, STATIC
from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ir import Kernel, Program
from scaling.simulate.step import price
from scaling.simulate.uncertainty import grade, step_range
from tests.scaling.hlo.texts import module

H100 = catalog.load("dgx-h100")


def kernel(result: str, operand: str, lengths: list[int], kind: str = "FFT") -> Kernel:
    """The kernel of one transform."""
    text = f"x = {operand} parameter(0); y = {result} fft(%x), fft_type={kind}, "
    main = module(text + f"fft_length={{{','.join(map(str, lengths))}}}").entry
    found = work_of(main.root)
    assert found is not None
    return found


def of(*dims: int, batch: int = 1) -> tuple[float, float]:
    """The least passes of a complex transform, and those that it may take besides."""
    shape = f"c64[{','.join(map(str, (batch, *dims)))}]"
    once = 2 * 8 * batch * math.prod(dims)
    found = kernel(shape, shape, list(dims))
    return found.bytes / once, found.again / once


def test_an_axis_that_a_core_holds_is_one_pass_and_each_axis_is_one():
    assert of(512, batch=8) == of(4096) == of(7, 11) == (1, 0)
    assert of(512, 512, 512) == (3, 0) and of(1, 512, 512) == (2, 0)
    assert of(64, 64) == (1, 0)  # both at once
    assert of(1) == (1, 0)


def test_a_long_axis_is_cut_into_parts_that_a_core_holds():
    assert of(2**20, batch=64) == (2, 0)
    assert of(2**27) == (2, 1)
    assert of(8192) == (1, 1)  # most chips hold it only if asked
    assert of(STATIC // 8, MOST // 8 // 9 * 9)[0] >= 2


def test_a_length_with_a_large_prime_factor_is_a_convolution():
    assert of(8191) == (1, pytest.approx(2 * 2 * 16384 / 8191 - 1))
    assert of(127 * 8) == (1, 0)
    least, more = of(1_000_003)
    padded = 2**21
    assert least == pytest.approx(2 * 2 * padded / 1_000_003) and more == 0
    assert kernel("c64[8191]", "c64[8191]", [8191]).vector_flops == pytest.approx(
        5 * 2 * 16384 * 14
    )


def test_real_numbers_are_transformed_two_as_one():
    forward = kernel("c64[3,4097]", "f32[3,8192]", [8192], "RFFT")
    back = kernel("f32[3,8192]", "c64[3,4097]", [8192], "IRFFT")
    moved = 3 * (8192 * 4 + 4097 * 8)
    assert forward.bytes == back.bytes == moved and forward.again == back.again == 0
    assert forward.vector_flops == 0.5 * 5 * 3 * 8192 * 13


LENGTHS = st.lists(st.integers(1, 2**40), min_size=1, max_size=3)


@given(LENGTHS)
def test_no_transform_is_priced_below_one_pass_over_memory(lengths):
    array = f"c64[{','.join(map(str, lengths))}]"
    found = kernel(array, array, lengths)
    assert found.bytes >= 2 * 8 * math.prod(lengths) and found.again >= 0
    assert math.isfinite(found.vector_flops)


def test_the_range_admits_that_no_transform_was_timed():
    shape = "c64[4096,8191]"
    found = kernel(shape, shape, [8191])
    priced = price(
        Program("p", "compiled", {"data": 1}, (found,)), H100, profile_of(H100.accelerator)
    )
    low, high = step_range(priced)
    once = 2 * 8 * 4096 * 8191 / 3.35e12
    assert grade(priced) == "datasheet"
    assert low < 2 * once and high > 8 * once
    assert low < priced.timeline.total < high


def test_a_product_of_a_kind_that_nobody_timed_may_be_as_short_as_its_bytes():
    timed = Kernel("c", kind="matmul", flops=1e11, bytes=1e9, dtype="bf16", dims=(512, 1e5, 1, 49))
    ends = {}
    for kernel in timed, replace(timed, is_timed=False):
        made = Program("p", "compiled", {"data": 1}, (kernel,))
        ends[kernel.is_timed] = step_range(price(made, H100, profile_of(H100.accelerator)))
    assert ends[False][0] < 1e9 / 3.35e12 < ends[True][0] and ends[False][1] >= ends[True][1]


def test_no_transform_is_faster_than_its_passes_at_the_peak_bandwidth():
    shape = "c64[512,512,512]"
    found = kernel(shape, shape, [512, 512, 512])
    priced = price(
        Program("p", "compiled", {"data": 1}, (found,)), H100, profile_of(H100.accelerator)
    )
    low, high = step_range(priced)
    three = 3 * 2 * 8 * 512**3 / 3.35e12
    assert three * 0.9999 <= low < priced.timeline.total < high


def test_a_depthwise_convolution_is_no_batch_of_products_and_its_range_says_so():
    """64 x 56 x 56 x 512 by 7 x 7: 1.0e10 FLOPs and 0.41 GB."""
    text = (
        "x = bf16[64,56,56,512] parameter(0); k = bf16[512,7,7,1] parameter(1); "
        "y = (bf16[64,56,56,512], u8[0]) custom-call(%x, %k), window={size=7x7 pad=3_3x3_3}, "
        "dim_labels=b01f_o01i->b01f, feature_group_count=512, "
        'custom_call_target="__cudnn$convForward"'
    )
    found = work_of(module(text).entry.root)
    assert found is not None and found.flops == pytest.approx(2 * 64 * 56**2 * 512 * 49)
    priced = price(
        Program("p", "compiled", {"data": 1}, (found,)), H100, profile_of(H100.accelerator)
    )
    low, high = step_range(priced)
    moved = 2 * 64 * 56**2 * 512 * 2 / 3.35e12
    assert moved < low < priced.timeline.total < high
    assert high > 10 * low and grade(priced) == "datasheet"
