"""What is measured: shapes, counted work, axes; and that counts are the compiler's."""

import math
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import pytest
from pytest import approx

from scaling.calibration import cases as module
from scaling.calibration.cases import (
    attention_cases,
    axes,
    backward_alone,
    collective_cases,
    matmul_cases,
    memory_cases,
)
from scaling.calibration.fit import attention_flops
from scaling.calibration.sizes import HOST_FULL, HOST_QUICK, Sizes, sizes_for, slabs
from scaling.calibration.timing import compiled
from scaling.hlo.parse import parse_module
from scaling.hlo.replica_groups import replica_groups
from scaling.meshes.devices import abstract_mesh, present_mesh
from scaling.meshes.shape import MeshShape
from scaling.profiles.samples import AttentionSample

PLATFORMS = [(platform, quick) for platform in ("cpu", "gpu") for quick in (True, False)]
LARGEST = 4 * 2**30  # bytes of one input on one device: fits beside its result on any GPU


@pytest.fixture(scope="module")
def mesh():
    return present_mesh(MeshShape(data=8))


@pytest.mark.parametrize(("platform", "quick"), PLATFORMS)
def test_no_operation_is_measured_twice_and_all_fit(mesh, platform, quick):
    sizes = sizes_for(platform, quick)
    cases = [*matmul_cases(mesh, sizes), *memory_cases(mesh, sizes.elements)]
    inputs = lambda case: (jax.ShapeDtypeStruct(s, case.dtype) for s in case.shapes)
    done = lambda case: str(jax.make_jaxpr(case.operation)(*inputs(case)))
    assert set(Counter((case.sample, done(case)) for case in cases).values()) == {1}
    assert all(math.prod(shape) * 4 <= LARGEST for case in cases for shape in case.shapes)


def test_slabs_have_one_dimension_apart():
    assert slabs(16, 128) == (
        (1, 16, 128, 128), (1, 128, 16, 128), (1, 128, 128, 16),
        (1, 128, 16, 16), (1, 16, 128, 16), (1, 16, 16, 128),
    )  # fmt: skip


@pytest.mark.parametrize(("batch", "m", "n", "k"), [(1, 3, 4, 5), (2, 3, 4, 5)])
def test_a_point_names_the_shape_that_is_multiplied(mesh, batch, m, n, k):
    sizes = Sizes(("fp32",), ((batch, m, n, k),), ())
    (case,) = matmul_cases(mesh, sizes)
    result = jax.eval_shape(case.operation, *(np.zeros(s, np.float32) for s in case.shapes))
    assert result.shape == ((batch, m, n) if batch > 1 else (m, n))
    assert case.shapes[1][-2] == k


def test_other_dtypes_are_measured_on_squares_only(mesh):
    sizes = Sizes(("fp32",), ((1, 8, 8, 8), (1, 8, 8, 16)), (), ("bf16",))
    samples = [case.sample for case in matmul_cases(mesh, sizes)]
    assert [(p.dtype, p.k) for p in samples] == [("fp32", 8), ("fp32", 16), ("bf16", 8)]


def test_counted_bytes_and_work_are_those_of_xla():
    """HloCostAnalysis of the operation alone, on one device."""
    mesh = present_mesh(MeshShape(), jax.devices()[:1])
    for case in memory_cases(mesh, (2**12,)):
        inputs = [np.zeros(shape, np.float32) for shape in case.shapes]
        cost = jax.jit(case.operation).lower(*inputs).compile().cost_analysis()
        if case.sample.kind not in ("copy", "transpose"):  # alone they may be no operation
            assert cost["bytes accessed"] == approx(case.sample.bytes, rel=0.01)
        assert cost.get("flops", 0) == approx(case.sample.vector_flops, rel=0.07)  # n - 1 sums
        assert cost.get("transcendentals", 0) == approx(case.sample.transcendentals, rel=0.01)


def test_axes_have_every_size_and_stride_that_divide_the_devices():
    assert axes(8, quick=False) == [(2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)]
    assert axes(8, quick=True) == [(2, 4), (4, 2), (8, 1)]
    assert axes(1, quick=False) == []


def test_groups_of_a_collective_have_the_stated_ranks_and_stride():
    for (ranks, stride), case in zip(
        [(2, 4), (4, 2), (8, 1)],
        list(collective_cases(8, True, HOST_QUICK.messages))[::25],
        strict=True,
    ):
        module = parse_module(compiled(case, 3).as_text())
        found = [i for c in module.computations.values() for i in c if i.opcode == "all-reduce"]
        (instruction,) = found
        numbers = np.arange(8).reshape(-1, ranks, stride).swapaxes(1, 2).reshape(-1, ranks)
        assert (replica_groups(instruction, 8) == numbers).all()


@pytest.mark.parametrize("kind", ["all-reduce", "all-gather", "reduce-scatter", "all-to-all"])
def test_bytes_are_the_unsharded_total(kind):
    """What nccl-tests calls the size: the larger of a rank's input and output."""
    cases = [c for c in collective_cases(8, True, HOST_QUICK.messages) if c.sample.kind == kind]
    for case in cases:
        ((elements,),) = case.shapes
        factor = case.sample.ranks if kind == "all-gather" else 1
        assert case.sample.bytes == 4 * elements * factor
        assert case.sample.groups * case.sample.ranks == 8


def test_sizes_that_do_not_divide_are_rounded_down(monkeypatch):
    monkeypatch.setattr(module, "present_mesh", abstract_mesh)
    for case in collective_cases(6, True, HOST_QUICK.messages):
        assert case.sample.bytes % (4 * case.sample.ranks) == 0
        least = 4 * case.sample.ranks
        assert any(0 <= size - case.sample.bytes < least for size in HOST_QUICK.messages)


def test_attention_comes_in_pairs_of_the_same_size(mesh):
    cases = list(attention_cases(mesh, HOST_FULL, flash=False))
    assert len(cases) == 2 * len(HOST_FULL.attention)
    for forward, both in zip(cases[::2], cases[1::2], strict=True):
        assert both.sample == replace(forward.sample, direction="backward")
        assert len(both.shapes) == len(forward.shapes) + 1  # the gradient of the result


def test_flash_attention_is_measured_in_bf16(mesh):
    assert {c.sample.dtype for c in attention_cases(mesh, HOST_QUICK, flash=True)} == {"bf16"}


def attention_sample(direction, *seconds):
    return AttentionSample("fp32", 1, 2, 64, 64, 16, direction, seconds)


def test_the_backward_pass_is_the_difference_repeat_by_repeat():
    pair = [attention_sample("forward", 1.0, 2.0), attention_sample("backward", 3.5, 5.0)]
    forward, backward = backward_alone(pair)
    assert forward == pair[0]
    assert backward.seconds == (2.5, 3.0)
    assert attention_flops(backward) == 2.5 * attention_flops(forward)


def test_differences_that_noise_made_negative_are_left_out():
    pair = [attention_sample("forward", 1.0, 2.0), attention_sample("backward", 3.5, 1.0)]
    assert backward_alone(pair)[1].seconds == (2.5,)
    pair = [attention_sample("forward", 9.0), attention_sample("backward", 3.5)]
    assert backward_alone(pair) == pair[:1]
