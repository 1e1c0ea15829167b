"""The constructors of kernels against sums written out, and the textbook's counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.program.ir import CAUSAL, Origin
from scaling.program.ops import attention, attention_flops, matmul, visible_share

SIZES = st.integers(1, 64)
BACKWARD = Origin("backward", "layers/attention")


@given(SIZES, SIZES, SIZES, SIZES)
def test_a_product_multiplies_and_moves_what_its_loops_say(batch, m, n, k):
    kernel = matmul("p", (batch, m, n, k), "bf16", (2, 1, 4))
    multiplied = sum(1 for _ in np.ndindex(batch, m, n)) * k
    assert kernel.flops == 2 * multiplied
    assert kernel.bytes == batch * (2 * m * k + 1 * k * n + 4 * m * n)
    assert (kernel.kind, kernel.dims, kernel.dtype) == ("matmul", (batch, m, n, k), "bf16")


def test_operands_that_nobody_asks_about_move_nothing():
    kernel = matmul("p", (4, 8, 16, 32), "fp8", grouped=True)
    assert (kernel.kind, kernel.bytes) == ("grouped", 0)


def test_kernels_that_do_not_run_cost_nothing_in_those_configurations():
    runs = np.array([1, 0])
    product = matmul("p", (1, 8, 16, 32), "bf16", (2, 2, 2), times=runs)
    core = attention("a", (1, 2, 8, 8, 4), 4, 100, "bf16", times=runs)
    for kernel in (product, core):
        assert kernel.flops[0] > 0 and kernel.bytes[0] > 0
        assert kernel.flops[1] == kernel.bytes[1] == 0


@given(SIZES, SIZES, SIZES, SIZES, SIZES)
def test_attention_is_two_products_forward_and_five_backward(batch, heads, queries, keys, dim):
    sizes = (batch, heads, queries, keys, dim)
    forward = attention("a", sizes, dim, 100.0, "bf16")
    backward = attention("a", sizes, dim, 100.0, "bf16", origin=BACKWARD)
    product = matmul("scores", (batch * heads, queries, keys, dim), "bf16").flops
    assert (forward.flops, backward.flops) == (2 * product, 5 * product)
    assert (forward.bytes, backward.bytes) == (100, 200)
    assert forward.transcendentals == batch * heads * queries * keys
    assert forward.visible == CAUSAL


def test_values_may_have_another_head_dimension():
    assert attention_flops(10, 3, 2) == 2 * 10 * (3 + 2)
    assert attention_flops(10, 3, 2, backward=True) == 2 * 10 * (3 * 3 + 2 * 2)


@pytest.mark.parametrize("window", [None, 1, 7, 64, 100])
def test_a_mask_leaves_the_share_of_scores_that_rows_see(window):
    keys = 4096
    seen = sum(min(row + 0.5, window or keys) for row in range(keys)) / keys**2
    assert visible_share(keys, window) == pytest.approx(seen, rel=1e-3)
