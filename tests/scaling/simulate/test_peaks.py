"""No kernel of any chip is priced faster than the chip's peak, or than anybody has measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.shipped import said_of_untimed, shipped, shipped_names, table
from scaling.program.ir import Kernel, Origin
from scaling.simulate import kernels
from scaling.simulate.attention import fit_of
from scaling.simulate.kernels import kernel_time, peak_rate

CHIPS = [name for name in catalog.accelerator_names() if catalog.accelerator(name).peaks]
FORMATS = sorted({dtype for name in CHIPS for dtype in catalog.accelerator(name).peaks})
# TFLOP/s of the fastest product that anybody measured: aiconfigurator's table, and
# stas00/ml-engineering's search (experiments/published/fit_products.py).
FASTEST = {
    ("a100-sxm-80g", "bf16"): 283.7,
    ("a100-sxm-40g", "bf16"): 283.7,
    ("h100-sxm", "bf16"): 854.4,
    ("h200-sxm", "bf16"): 854.4,
    ("h100-sxm", "fp8"): 1650.6,
    ("b200-sxm", "bf16"): 1745.2,
    ("b200-sxm", "fp8"): 3448.8,
    ("b200-sxm", "fp4"): 4482.0,
    ("l40s", "bf16"): 270.9,
    ("l40s", "fp8"): 465.7,
    ("gb200", "bf16"): 1822.0,
    ("gb200", "fp8"): 3615.6,
    ("mi300x", "bf16"): 668.4,
}
# Attention on an H100, of the scores that it computes: vLLM's FlashAttention-3 (aiconfigurator),
# cuDNN (arXiv 2407.08608, figure 6).
FASTEST_ATTENTION = {"forward": 657.6, "backward": 518.1}
SIZES = st.integers(1, 2**17)
KINDS = ("matmul", "grouped", "attention", "fusion", "copy")
ROUNDING = 1 + 1e-9


@st.composite
def some_kernel(draw):
    """A kernel that moves at least what it must, of any kind, format and size."""
    kind, dtype = draw(st.sampled_from(KINDS)), draw(st.sampled_from(FORMATS))
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    if kind in ("fusion", "copy"):
        return Kernel("k", kind=kind, bytes=draw(st.floats(0, 1e12)))
    batch = draw(st.integers(1, 512))
    if kind != "attention":
        moved, flops = batch * (m * k + k * n + m * n), 2.0 * batch * m * n * k
        dims = (batch, m, n, k)
        return Kernel("k", kind=kind, flops=flops, bytes=moved, dtype=dtype, dims=dims)
    head = draw(st.sampled_from((32, 64, 96, 128, 192, 256, 512)))
    queries = draw(st.sampled_from((1, n)))  # decoding, or all rows
    phase = draw(st.sampled_from(("forward", "backward")))
    products = 5 if phase == "backward" else 2
    flops = products * 2.0 * batch * 8 * queries * n * head
    return Kernel(
        "k", Origin(phase), kind=kind, flops=flops, bytes=2.0 * batch * 8 * n * head, dtype=dtype,
        dims=(batch, 8, queries, n, head), visible=draw(st.sampled_from((0.02, 0.25, 0.5, 1.0))),
        share=draw(st.sampled_from((0.5, 1.0))),
    )  # fmt: skip


def computed(kernel):
    """FLOPs of the scores that the mask leaves, and of all products of other kernels."""
    return kernel.flops * (kernel.visible if kernel.kind == "attention" else 1.0)


@given(some_kernel(), st.sampled_from(CHIPS))
def test_no_kernel_beats_the_chip_or_what_was_measured(kernel, name):
    chip = catalog.accelerator(name)
    try:
        peak = peak_rate(chip, kernel.dtype) if kernel.flops else 0.0
    except InputError:
        return  # the chip has no rate for this format, and says so
    time = float(kernel_time(kernel, chip, profile_of(chip)).time) * ROUNDING
    if kernel.flops:
        assert computed(kernel) / time <= peak
        fastest = FASTEST.get((name, kernel.dtype), np.inf) * 1e12
        if kernel.kind == "attention" and name == "h100-sxm":
            fastest = FASTEST_ATTENTION[kernel.origin.phase] * peak / 989.4
        assert computed(kernel) / time <= fastest
    in_cache = kernel.kind == "fusion" and kernel.bytes <= kernels.KEPT * (chip.l2_cache or 0)
    assert in_cache or kernel.bytes / time <= chip.required("memory_bandwidth")


@pytest.mark.parametrize(("name", "dtype"), FASTEST)
def test_a_large_product_is_slower_than_the_best_that_was_found(name, dtype):
    """The best of a search among hundreds of shapes is not what a step gets."""
    chip, side = catalog.accelerator(name), 16384
    kernel = Kernel(
        "k", kind="matmul", flops=2.0 * side**3, bytes=6.0 * side**2, dtype=dtype,
        dims=(1, side, side, side),
    )  # fmt: skip
    rate = kernel.flops / float(kernel_time(kernel, chip, profile_of(chip)).time) / 1e12
    assert rate <= 0.93 * FASTEST[name, dtype]


@pytest.mark.parametrize("name", [*shipped_names(), "mi300x", "gb200", "rtx3090", "tpu-v5p"])
def test_every_figure_of_a_profile_carries_the_best_that_its_source_saw(name):
    profile = profile_of(catalog.accelerator(name))
    for fit in (*profile.matmul, *profile.grouped, *profile.attention, profile.memory):
        assert 0 < fit.best < 1, fit
    fastest = FASTEST.get((name, "bf16"))
    if fastest and name in shipped_names():
        peak = catalog.accelerator(name).peak("bf16")
        assert profile.matmul[0].best * peak <= fastest * 1e12


def test_a_kernel_faster_than_its_evidence_is_caught():
    """The assertion on every price, where a formula forgets the limit."""
    chip, profile = catalog.accelerator("a100-sxm-80g"), shipped("a100-sxm-80g")
    kernel = Kernel("k", kind="matmul", flops=1e15, dtype="bf16")
    cost = kernel_time(kernel, chip, profile)
    assert kernels.is_possible(kernel, cost, chip, profile)
    faster = replace(cost, time=kernel.flops / 285e12)  # below the peak, above the best product
    assert not kernels.is_possible(kernel, faster, chip, profile)
    stream = Kernel("s", bytes=1e9)
    slow = kernel_time(stream, chip, profile)
    at_peak = replace(slow, time=1e9 / chip.required("memory_bandwidth"))
    assert not kernels.is_possible(stream, at_peak, chip, profile)


@pytest.mark.parametrize("name", CHIPS)
def test_attention_of_long_heads_stays_at_what_was_seen(name):
    """Heads of 1,024 were not measured: the fit alone would say 80 % of the peak."""
    chip = catalog.accelerator(name)
    for products, phase in ((2, "forward"), (5, "backward")):
        tokens, head = 2**20, 1024
        kernel = Kernel(
            "k", Origin(phase), kind="attention", flops=products * 2.0 * tokens**2 * head,
            dtype="bf16", dims=(1, 1, tokens, tokens, head),
        )  # fmt: skip
        seconds = float(kernel_time(kernel, chip, profile_of(chip)).time)
        best = fit_of(kernel, profile_of(chip)).best
        assert 0.5 * kernel.flops / seconds <= ROUNDING * best * peak_rate(chip, "bf16")
        assert best < 0.75


def predicted(cluster, **options):
    """Llama 3 8B on one node of eight, 128 sequences of 8,192."""
    sizes = {"batch.global_batch": 128, "batch.seq_len": 8192, "batch.microbatches": 8}
    mesh = {"fsdp": 8}
    return sc.predict(
        "llama3-8b", cluster=cluster, mesh=mesh, set=sizes, source="analytic", **options
    )


def test_a_step_on_a100_is_believable_and_pages_say_whose_products_nobody_timed():
    """Practice has an MFU of 50 to 58 %, every score counted, with what its software loses."""
    found = predicted("dgx-a100")
    slowest = found.mfu * found.step_time / found.step_time_high
    assert slowest < 0.58 < found.mfu < 0.8
    words = "no table of products"
    assert words not in str(found) and words in str(predicted("gb300-nvl72", nodes=2))


def test_only_chips_whose_products_nobody_timed_are_said_to_be_so():
    timed = set(table("products")) - {"mi300x"}  # of which only the best product is known
    for name in CHIPS:
        profile = profile_of(catalog.accelerator(name))
        assert bool(said_of_untimed(profile)) == (name not in timed), name
    assert not said_of_untimed(ideal())
