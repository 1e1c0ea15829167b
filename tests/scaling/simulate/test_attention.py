"""Fused attention: waves of tiles, each walking its keys; decoding reads its keys once."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.profiles.profile import AttentionFit, Evidence
from scaling.program import ops
from scaling.program.ir import Origin
from scaling.simulate.attention import DECODE_QUERIES, SPLIT_KEYS, attention_time, fit_of
from scaling.simulate.kernels import kernel_time, least_time, peak_rate

CHIPS = ("a100-sxm-80g", "l40s", "h100-sxm", "h200-sxm", "b200-sxm", "gb200", "gb300")
H100 = catalog.accelerator("h100-sxm")
HERE = Evidence("a test", "2026-11", "measured")
PHASES = st.sampled_from(("forward", "backward"))
SIZES = st.tuples(
    st.integers(1, 64), st.sampled_from((1, 2, 8, 32, 128)), st.integers(1, 2**15),
    st.integers(1, 2**15), st.sampled_from((64, 72, 96, 128, 192, 256)),
)  # fmt: skip


def attention(dims, phase="forward", visible=1.0, dtype="bf16", kv_heads=0, value_dim=0, **more):
    batch, heads, queries, keys, head = dims
    value_dim = value_dim or head
    moved = 2 * batch * (head + value_dim) * (heads * queries + (kv_heads or heads) * keys)
    return ops.attention(
        "a", dims, value_dim, moved, dtype, visible=visible, kv_heads=kv_heads,
        origin=Origin(phase), **more,
    )  # fmt: skip


def seconds(kernel, name="h100-sxm"):
    chip = catalog.accelerator(name)
    return kernel_time(kernel, chip, profile_of(chip)).time


@given(SIZES, PHASES, st.sampled_from(CHIPS), st.sampled_from((0.02, 0.5, 1.0)))
def test_a_price_is_finite_and_never_below_what_was_measured(dims, phase, name, visible):
    kernel, chip = attention(dims, phase, visible), catalog.accelerator(name)
    time = seconds(kernel, name)
    assert np.isfinite(time)
    assert time >= least_time(kernel, kernel.bytes, chip, profile_of(chip))
    assert time >= kernel.bytes / chip.required("memory_bandwidth")
    assert time >= kernel.flops * visible / peak_rate(chip, "bf16")


@given(SIZES, PHASES, st.sampled_from(CHIPS), st.integers(0, 4))
def test_more_of_anything_is_never_faster(dims, phase, name, which):
    larger = tuple(2 * size if i == which else size for i, size in enumerate(dims))
    if (larger[2] <= DECODE_QUERIES) != (dims[2] <= DECODE_QUERIES):
        return  # another kernel
    assert seconds(attention(larger, phase), name) >= 0.999 * seconds(attention(dims, phase), name)


@given(st.lists(SIZES, min_size=2, max_size=5), PHASES, st.sampled_from((0.5, 1.0)))
def test_arrays_are_priced_as_their_elements(rows, phase, visible):
    rows = [(b, n, t + DECODE_QUERIES, s, h) for b, n, t, s, h in rows]
    together = seconds(attention(tuple(np.array(rows, float).T), phase, visible))
    alone = [seconds(attention(tuple(map(float, dims)), phase, visible)) for dims in rows]
    assert together == pytest.approx(alone)


@given(SIZES, PHASES, st.sampled_from(CHIPS))
def test_a_mask_never_costs_time(dims, phase, name):
    batch, heads, rows, _, head = dims
    dims = batch, heads, rows, rows, head
    masked = seconds(attention(dims, phase, 0.5), name)
    assert masked <= 1.001 * seconds(attention(dims, phase), name)


def test_a_long_causal_mask_halves_the_time_and_a_window_takes_its_share():
    dims = (4, 32, 32768, 32768, 128)
    whole, causal = seconds(attention(dims)), seconds(attention(dims, visible=0.5))
    window = seconds(attention(dims, visible=ops.visible_share(32768, 4096)))
    assert causal / whole == pytest.approx(0.5, rel=0.04)
    assert 4096 / 32768 < window / whole < 1.2 * 4096 / 32768


def test_a_tile_more_than_cores_is_a_second_wave():
    fit = AttentionFit("forward", 1.0, HERE, tile=128)
    price = lambda heads: attention_time(
        attention((1, heads, 128, 4096, 128)), fit, H100, profile_of(H100), 1e15
    )
    assert price(H100.cores).compute == pytest.approx(price(1).compute)
    assert price(H100.cores + 1).compute == pytest.approx(2 * price(1).compute)


def test_the_softmax_costs_the_same_however_long_heads_are():
    short, long = (seconds(attention((4, 64, 8192, 8192, head))) for head in (64, 128))
    assert 1.4 < long / short < 1.9  # twice the products
    assert seconds(attention((4, 64, 8192, 8192, 72))) == pytest.approx(
        seconds(attention((4, 64, 8192, 8192, 96))), rel=0.03
    )


def test_values_may_have_shorter_heads():
    dims = (1, 128, 8192, 8192, 192)
    price = lambda value: seconds(attention(dims, "backward", 0.5, value_dim=value))
    assert price(128) < price(192)
    assert price(128) > seconds(attention((1, 128, 8192, 8192, 128), "backward", 0.5))


@pytest.mark.parametrize("name", CHIPS)
def test_decoding_costs_a_call_and_then_the_bytes_of_its_keys(name):
    chip = catalog.accelerator(name)
    short, long = (attention((b, 32, 1, s, 128), kv_heads=8) for b, s in ((1, 64), (64, 2**17)))
    assert fit_of(short, profile_of(chip)).direction == "decode"
    assert 8e-6 < seconds(short, name) < 25e-6
    rate = long.bytes / seconds(long, name) / chip.required("memory_bandwidth")
    assert 0.65 < rate < 0.95


def test_heads_that_share_keys_are_decoded_together():
    one, eight = (seconds(attention((64, 32, 1, 16384, 128), kv_heads=k)) for k in (4, 32))
    assert eight / one > 6


@pytest.mark.parametrize("name", CHIPS)
def test_a_query_more_than_are_decoded_together_costs_little_more(name):
    price = lambda queries: seconds(attention((64, 32, queries, 4096, 128), kv_heads=8), name)
    more = price(np.arange(DECODE_QUERIES + 1, 64))  # than decode, and fewer than fill a tile
    prices = np.append(price(DECODE_QUERIES), more)
    assert np.all(prices[1:] >= 0.999 * prices[:-1])
    assert np.all(prices[1:] <= 1.1 * prices[:-1])


def test_calls_of_which_some_decode_are_not_above_a_peak():
    prices = seconds(attention((64, 32, np.arange(1, 64), 2**17, 128), kv_heads=8), "b200-sxm")
    assert np.all(np.isfinite(prices))


def test_split_keys_are_added_up_in_a_pass_of_its_own():
    fit = fit_of(attention((1, 8, 1, 64, 128)), profile_of(H100))
    price = lambda keys: (
        attention_time(attention((1, 8, 1, keys, 128)), fit, H100, profile_of(H100), 1e15).overhead
    )
    assert price(SPLIT_KEYS) - price(SPLIT_KEYS - 1) == pytest.approx(fit.combine)


def test_fp8_is_not_twice_as_fast_backward():
    dims = (1, 64, 32768, 32768, 128)
    price = lambda dtype: seconds(attention(dims, "backward", 0.5, dtype), "gb200")
    assert 1.1 < price("bf16") / price("fp8") < 1.5


def test_fp8_backward_walks_what_a_window_hides():
    dims = (1, 64, 32768, 32768, 64)
    price = lambda dtype, visible: seconds(attention(dims, "backward", visible, dtype), "gb200")
    assert price("fp8", 0.01) == price("fp8", 0.5)
    assert price("bf16", 0.01) < 0.1 * price("bf16", 0.5)


def test_cudnn_has_figures_of_its_own():
    dims = (1, 64, 16384, 16384, 128)
    named = seconds(attention(dims, visible=0.5, library="cudnn"), "b200-sxm")
    assert named < 0.8 * seconds(attention(dims, visible=0.5), "b200-sxm")


@pytest.mark.parametrize(
    ("name", "dims", "kv_heads", "milliseconds"),
    [  # published, causal: aiconfigurator @ 095f58a5
        ("a100-sxm-80g", (1, 12, 10240, 10240, 128), 1, 1.951),  # vLLM
        ("gb200", (1, 128, 16384, 16384, 128), 128, 5.2),  # cuDNN
    ],
)
def test_prices_are_near_what_was_measured(name, dims, kv_heads, milliseconds):
    time = seconds(attention(dims, visible=0.5, kv_heads=kv_heads), name)
    assert time == pytest.approx(milliseconds * 1e-3, rel=0.15)


def test_a_kernel_that_does_not_run_takes_no_time():
    dims = (1.0, 8.0, 4096.0, 4096.0, 128.0)
    kernel = attention(dims, times=np.array([0.0, 1.0]))
    kernel = replace(kernel, bytes=kernel.bytes * np.array([0.0, 1.0]))
    off, on = seconds(kernel)
    assert off == 0 and on > 0
