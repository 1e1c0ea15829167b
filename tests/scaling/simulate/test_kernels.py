"""Prices of kernels: never below the roofline, right about what binds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.io import ideal, profile_of
from scaling.profiles.profile import (
    AttentionFit,
    Evidence,
    MatmulFit,
    MemoryFit,
    Profile,
    StepFit,
    VectorFit,
)
from scaling.profiles.shipped import shipped
from scaling.program.ir import Kernel, Origin
from scaling.simulate.kernels import (
    KEPT,
    kernel_time,
    memory_time,
    peak_rate,
)

H100 = catalog.accelerator("h100-sxm")
HERE = Evidence("a test", "2026-11", "measured")
AMOUNTS = st.floats(0, 1e18)
DIMS = st.tuples(*[st.integers(1, 20_000)] * 4)


def matmul(batch, m, n, k, dtype="bf16"):
    moved = 2 * batch * (m * k + k * n + m * n)
    dims = (batch, m, n, k)
    return Kernel(
        "dot", kind="matmul", flops=2.0 * batch * m * n * k, bytes=moved, dtype=dtype, dims=dims
    )


def attention(phase="forward", batch=4, heads=16, tokens=4096, head_dim=128):
    products = 5 if phase == "backward" else 2
    flops = products * 2.0 * batch * heads * tokens * tokens * head_dim
    dims = (batch, heads, tokens, tokens, head_dim)
    kernel = Kernel("attention", Origin(phase), kind="attention", flops=flops, dtype="bf16")
    return replace(kernel, dims=dims)


# Published measurements that the shipped profile stands on


def test_a_vector_add_takes_what_was_measured():
    """gpus.md: 1.5 us for 65,536 and 4.1 ms for 2^30 fp32 elements on an H100; others: 9 % less."""
    for elements, seconds in ((65_536, 1.5e-6), (2**30, 4.1e-3)):
        add = Kernel("add", vector_flops=float(elements), bytes=12.0 * elements)
        cost = kernel_time(add, H100, shipped("h100-sxm"))
        assert cost.time == pytest.approx(seconds, rel=0.06)
    assert cost.bound == "memory"


@pytest.mark.parametrize(
    ("chip", "shape", "tflops"),
    [
        ("h100-sxm", (16384, 16384, 16384), 700.6),  # goes on for long, under the power limit
        ("h100-sxm", (2048, 2048, 2048), 641.0),  # XLA's table
    ],
)
def test_a_matmul_runs_as_fast_as_was_measured(chip, shape, tflops):
    kernel = matmul(1, *shape)
    cost = kernel_time(kernel, catalog.accelerator(chip), shipped(chip))
    assert kernel.flops / cost.time / 1e12 == pytest.approx(tflops, rel=0.12)  # the fit's p90
    assert cost.bound == "compute"


def test_attention_runs_as_fast_as_was_measured():
    """FlashAttention-3, figure 5: cuDNN, causal, 4k tokens, heads of 128 at 518 TFLOP/s."""
    kernel = replace(attention(), library="cudnn")
    cost = kernel_time(kernel, H100, shipped("h100-sxm"))
    assert kernel.flops / 2 / cost.time / 1e12 == pytest.approx(518, rel=0.03)


# The shape of a matmul: tests/scaling/simulate/test_products.py


@given(DIMS, st.integers(0, 2), st.integers(1, 1000))
def test_a_larger_matmul_never_takes_less_time(dims, which, more):
    larger = list(dims)
    larger[which + 1] += more
    times = [kernel_time(matmul(*d), H100, shipped("h100-sxm")).time for d in (dims, larger)]
    assert times[1] >= times[0] * (1 - 1e-9)


# The roofline


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS)
def test_no_kernel_beats_the_peak_or_the_memory(flops, vector, special, moved):
    kernel = Kernel("any", "", flops=flops, vector_flops=vector, dtype="bf16", bytes=moved)
    kernel = replace(kernel, transcendentals=special)
    cost = kernel_time(kernel, H100, shipped("h100-sxm"))
    assert cost.time >= flops / H100.peak("bf16")
    in_cache = moved <= KEPT * H100.l2_cache
    assert in_cache or cost.time >= moved / H100.memory_bandwidth
    assert cost.time >= vector / H100.peak("fp32")
    assert cost.time >= max(cost.compute, cost.memory) + cost.overhead
    most = np.hypot(cost.compute, cost.memory) + cost.overhead
    assert cost.time <= most * (1 + 1e-9)


@given(st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=5))
def test_arrays_are_priced_like_single_kernels(amounts):
    flops, moved = np.array(amounts).T
    together = kernel_time(Kernel("k", flops=flops, bytes=moved, dtype="bf16"), H100, ideal())
    for i, (f, b) in enumerate(amounts):
        alone = kernel_time(Kernel("k", flops=f, bytes=b, dtype="bf16"), H100, ideal())
        assert together.time[i] == pytest.approx(alone.time)
        assert together.bound[i] == alone.bound


@pytest.mark.parametrize(
    ("kernel", "bound"),
    [
        (Kernel("matmul", flops=1e12, bytes=1e6, dtype="bf16"), "compute"),
        (Kernel("softmax", transcendentals=1e10, bytes=1e6), "compute"),
        (Kernel("copy", bytes=1e9), "memory"),
        (Kernel("tiny", bytes=100), "overhead"),
    ],
)
def test_the_largest_part_binds(kernel, bound):
    assert kernel_time(kernel, H100, shipped("h100-sxm")).bound == bound


# Attention


def test_the_backward_pass_has_a_fit_of_its_own_and_recomputation_that_of_the_forward():
    profile = shipped("h100-sxm")
    phases = ("forward", "backward", "remat")
    forward, backward, remat = (kernel_time(attention(p), H100, profile).time for p in phases)
    assert 2.5 < backward / forward < 3.5 and remat == forward


def test_attention_without_a_fit_is_a_matmul():
    kernel, profile = attention(), replace(shipped("h100-sxm"), attention=())
    cost = kernel_time(kernel, H100, profile)
    assert cost.compute == pytest.approx(kernel.flops / (989.4e12 * profile.matmul[0].sustained))


# A machine without figures of its own


def host_profile():
    return Profile(
        *("host", "two cores", "2026-11-21"),
        matmul=(MatmulFit("fp32", 1.0, HERE, 2e-6, (4.0, 4.0, 8.0), peak=5e10),),
        memory=MemoryFit(1.0, HERE, 1e-6, 1e10, 1e6, 4e10),
        vector=VectorFit(1e10, 1e9, HERE),
    )


def test_a_calibrated_cpu_needs_no_figures_of_the_catalogue():
    cpu = catalog.accelerator("cpu")
    cost = kernel_time(matmul(1, 1020, 1020, 1016, "fp32"), cpu, host_profile())
    share = (1020 / 1024) ** 2 * 1016 / 1024
    assert cost.compute == pytest.approx(2 * 1020 * 1020 * 1016 / (5e10 * share))
    assert cost.overhead == 2e-6


def test_a_dtype_without_a_rate_names_those_that_have_one():
    with pytest.raises(InputError, match="profile host has no matmul in 'bf16'; it has fp32"):
        kernel_time(matmul(1, 8, 8, 8), catalog.accelerator("cpu"), host_profile())
    with pytest.raises(InputError, match="no peak rate for 's8'; known: bf16"):
        kernel_time(matmul(1, 8, 8, 8, "s8"), H100, profile_of(H100))


def test_a_chip_without_memory_bandwidth_says_so():
    with pytest.raises(InputError, match="no figure 'memory_bandwidth'"):
        kernel_time(Kernel("copy", bytes=1.0), catalog.accelerator("cpu"), ideal())


# What a price rests on


def test_the_evidence_is_that_of_the_part_that_takes_longest():
    profile = Profile(
        name="p",
        machine="h100-sxm",
        date="",
        matmul=(MatmulFit("bf16", 0.8, replace(HERE, source="matmul"), overhead=1e-5),),
        memory=MemoryFit(0.9, replace(HERE, source="memory"), overhead=2e-6),
        vector=VectorFit(3e13, 3e12, replace(HERE, source="vector")),
        attention=(AttentionFit("forward", 0.7, replace(HERE, source="attention")),),
    )
    kernels = {
        "matmul": [matmul(1, 4096, 4096, 4096), matmul(1, 8, 8, 8)],  # its rate; its overhead
        "attention": [attention()],
        "memory": [Kernel("copy", bytes=1e9), Kernel("small", bytes=1.0), matmul(1, 4096, 4096, 1)],
        "vector": [Kernel("chain", vector_flops=1e12, bytes=1e6)],
    }
    for source, some in kernels.items():
        found = {kernel_time(kernel, H100, profile).evidence.source for kernel in some}
        assert found == {source}


def test_a_chip_without_units_for_a_format_multiplies_in_a_wider_one():
    old = replace(H100, peaks={"fp32": 15.7e12, "fp16": 125e12})
    assert peak_rate(H100, "tf32") == 494.7e12
    assert peak_rate(old, "tf32") == 15.7e12
    with pytest.raises(InputError, match="no peak rate for 'fp8'"):
        peak_rate(old, "fp8")


# A machine whose kernels take the sum of their parts


def summing(**changes):
    return replace(host_profile(), overlap=False, **changes)


def host_time(kernel, profile):
    return kernel_time(kernel, catalog.accelerator("cpu"), profile)


def test_the_parts_of_a_kernel_add_up_on_a_cpu():
    kernel = Kernel("f", bytes=1e6, vector_flops=1e6, transcendentals=1e5)
    cost = host_time(kernel, summing())
    assert cost.memory == pytest.approx(1e6 / 4e10)
    assert cost.compute == pytest.approx(1e6 / 1e10 + 1e5 / 1e9)
    assert cost.time == pytest.approx(cost.memory + cost.compute + 1e-6)


def test_the_traffic_of_a_product_is_in_its_rate_unless_it_alone_takes_longer():
    thin, cube = matmul(1, 1, 4096, 4096, "fp32"), matmul(1, 512, 512, 512, "fp32")
    cost = host_time(replace(cube, bytes=3 * 4.0 * 512**2), summing())
    assert cost.time == pytest.approx(cost.compute + cost.overhead)
    thin = replace(thin, bytes=4.0 * 4096**2)
    cost = host_time(thin, summing())
    assert cost.time >= memory_time(thin.bytes, catalog.accelerator("cpu"), summing().memory)


def test_what_is_only_copied_lies_far():
    copy, same = (Kernel("k", kind=kind, bytes=5e5) for kind in ("copy", "fusion"))
    assert host_time(copy, summing()).memory == pytest.approx(5e5 / 1e10)
    assert host_time(same, summing()).memory == pytest.approx(5e5 / 4e10)


def test_kernels_take_longer_in_programs_than_alone():
    kernel = Kernel("f", bytes=1e6, vector_flops=1e6)
    alone = host_time(kernel, summing())
    inside = host_time(kernel, summing(step=StepFit(1.25, HERE)))
    for name in ("time", "compute", "memory", "overhead"):
        assert getattr(inside, name) == pytest.approx(1.25 * getattr(alone, name))


@given(*[st.floats(0, 1e12)] * 3, st.floats(1, 10))
def test_more_of_anything_never_takes_less_time_on_a_cpu(moved, flops, special, more):
    small = Kernel("k", bytes=moved, vector_flops=flops, transcendentals=special)
    for name in ("bytes", "vector_flops", "transcendentals"):
        large = replace(small, **{name: more * getattr(small, name)})
        assert host_time(large, summing()).time >= host_time(small, summing()).time


def test_a_copy_to_the_host_takes_as_long_as_the_slower_memory():
    copy = Kernel("copy", kind="copy", bytes=1e9, host_bytes=1e9)
    alone, far = (kernel_time(copy, H100, ideal(), host) for host in (None, 50e9))
    assert (alone.memory, far.memory) == (pytest.approx(1e9 / 3.35e12, rel=0.01), 1e9 / 50e9)
    assert kernel_time(copy, H100, ideal(), 1e15).time == alone.time
