"""The documented example: a step that is not ours does what the hand count says."""

from collections import Counter
from pathlib import Path

import pytest

from experiments import own_step
from scaling.program.ir import collectives, kernels, unattributed

BYTES = 2  # of bf16, in which it multiplies and sums
DATA = MODEL = 8


@pytest.mark.deviceless
def test_the_example_prints_a_prediction_of_what_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Forward, the second product cuts what it sums over `model`; backward, both gradients sum
    over `data`. The gradient of the data is nobody's."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    program = own_step.main().pricing.program
    rows, hidden = own_step.BATCH // DATA, own_step.HIDDEN // MODEL
    sums: Counter = Counter()
    for collective, calls in collectives(program):
        sums[collective.kind, collective.axes, collective.origin.phase] += collective.bytes * calls
    assert sums == {
        ("all-reduce", ("model",), "forward"): BYTES * rows * own_step.WIDTH,
        ("all-reduce", ("data",), "backward"): 2 * BYTES * own_step.WIDTH * hidden,
    }
    product = 2 * rows * own_step.WIDTH * hidden
    assert sum(kernel.flops * calls for kernel, calls in kernels(program)) == 5 * product
    assert unattributed(program) == 0
    page = capsys.readouterr().out
    assert "own step" in page and "all-reduce[model]" in page and "fits" in page
