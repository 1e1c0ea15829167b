"""Prices of products of experts: bounds, growth with every size, arrays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.program.ops import matmul
from scaling.simulate.kernels import kernel_time

CHIPS = st.sampled_from(["h100-sxm", "b200-sxm", "gb200", "a100-sxm-80g", "l40s"])
FORMATS = st.sampled_from(["bf16", "fp8"])
DIMS = st.tuples(*[st.integers(1, n) for n in (512, 16_384, 16_384, 16_384)])


def seconds(name, dims, dtype="bf16", grouped=True):
    chip = catalog.accelerator(name)
    kernel = matmul("experts", dims, dtype, (2, 2, 2), grouped=grouped)
    return kernel_time(kernel, chip, profile_of(chip)).time, kernel, chip


@given(CHIPS, FORMATS, DIMS)
def test_none_beats_the_peak_the_memory_or_one_product_of_all_rows(name, dtype, dims):
    if dtype not in catalog.accelerator(name).peaks:
        dtype = "bf16"
    time, kernel, chip = seconds(name, dims, dtype)
    assert time >= kernel.flops / chip.peak(dtype)
    assert time >= kernel.bytes / chip.memory_bandwidth
    groups, m, n, k = dims
    of_all, _, _ = seconds(name, (1, groups * m, n, k), dtype, grouped=False)
    assert time >= of_all * 0.9 or kernel.bytes / chip.memory_bandwidth > 0.5 * time


@given(CHIPS, DIMS, st.integers(0, 3), st.integers(1, 1000))
def test_more_experts_rows_or_columns_never_take_less_time(name, dims, which, more):
    larger = [size + more * (i == which) for i, size in enumerate(dims)]
    assert seconds(name, larger)[0] >= seconds(name, dims)[0] * (1 - 1e-9)


@given(CHIPS, st.lists(DIMS, min_size=1, max_size=5))
def test_arrays_are_priced_like_each(name, shapes):
    together = seconds(name, tuple(np.array(shapes, float).T))[0]
    assert together == pytest.approx([seconds(name, dims)[0] for dims in shapes])


def test_many_experts_with_few_rows_are_bound_by_their_matrices():
    """128 experts with two rows each: what a decoding step reads."""
    chip = catalog.accelerator("h100-sxm")
    dims = (128, 2, 4096, 6144)
    time, kernel, _ = seconds("h100-sxm", dims)
    assert 0.8 < kernel.bytes / time / chip.memory_bandwidth < 0.95
