"""The range of one kernel: ends about its time, wider where the evidence is weaker."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.profiles.grades import half_range
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Evidence
from scaling.program.ir import Kernel, Origin
from scaling.program.ops import attention, matmul
from scaling.simulate.kernels import kernel_time
from scaling.simulate.uncertainty import kernel_half_range, kernel_range

CHIPS = [name for name in catalog.accelerator_names() if catalog.accelerator(name).peaks]
size = st.integers(1, 1 << 15)


def kernels(m, n, k):
    """A product, an attention forward and backward, and a stream."""
    yield matmul("m", (1, m, n, k), "bf16", (2, 2, 2))
    for phase in ("forward", "backward"):
        dims = (1, 8, m, m, 128.0)
        yield attention("a", dims, 128.0, 2.0 * 8 * 128 * 4 * m, "bf16", origin=Origin(phase))
    yield Kernel("s", bytes=2.0 * m * n)


@given(st.sampled_from(CHIPS), size, size, size)
def test_the_time_lies_between_finite_ends(name, m, n, k):
    chip = catalog.accelerator(name)
    profile = profile_of(chip)
    for kernel in kernels(m, n, k):
        cost = kernel_time(kernel, chip, profile)
        low, high = kernel_range(kernel, cost, chip, profile)
        assert 0 < low <= cost.time * (1 + 1e-9) and cost.time <= high < np.inf
        assert kernel_half_range(kernel, cost, chip, profile) > 0


@given(st.sampled_from(["h100-sxm", "b200-sxm", "l40s", "tpu-v5e"]), size, size)
def test_an_array_has_the_ranges_of_its_kernels(name, n, k):
    chip = catalog.accelerator(name)
    profile, rows = profile_of(chip), np.array([1.0, 64, 1024, 65_536])
    ends = lambda kernel: kernel_range(kernel, kernel_time(kernel, chip, profile), chip, profile)
    together = ends(matmul("m", (1, rows, n, k), "bf16", (2, 2, 2)))
    for at, m in enumerate(rows):
        alone = ends(matmul("m", (1, m, n, k), "bf16", (2, 2, 2)))
        assert [float(end[at]) for end in together] == pytest.approx(list(map(float, alone)))


@given(st.floats(0.01, 2.0), st.floats(0.01, 2.0), st.floats(1e9, 1e12))
def test_a_stream_is_as_sure_as_its_bytes_and_its_call_by_their_shares(wide, late, moved):
    chip = catalog.accelerator("h100-sxm")
    evidence = Evidence("e", "2026-11", "calibrated", 9, error_p90=wide, latency_p90=late)
    base = profile_of(chip)
    for call in (0.0, 1e-3):
        memory = replace(base.memory, overhead=call, evidence=evidence)
        kernel, profile = Kernel("s", bytes=moved), replace(base, memory=memory)
        cost = kernel_time(kernel, chip, profile)
        share = call / cost.time
        half = float(kernel_half_range(kernel, cost, chip, profile))
        assert half == pytest.approx(share * late + (1 - share) * wide)


@pytest.mark.parametrize("samples", [0, 1, 2, 3])
def test_errors_of_two_measurements_narrow_no_range(samples):
    sure = Evidence("e", "2026-11", "calibrated", samples, error_p90=0.05)
    assert (half_range(sure, "calibrated") == 0.05) == (samples >= 3)
    assert half_range(sure, "datasheet") >= half_range(sure, "calibrated")
