"""The gradient norm of each layer: from the first layer on, and the same on every mesh."""

import numpy as np
import pytest

from tests.harness import Case, assert_equals_one_device, stepped_alone

CASE = Case(tuning="layer norms")


def test_they_and_the_other_gradients_make_up_the_whole_norm():
    found = stepped_alone(CASE)
    norms_L, whole = (found["metrics"][f"{n} 1"] for n in ("layer_grad_norms", "grad_norm"))
    gradients = found["gradients"]
    for layer, norm in enumerate(norms_L):
        of_layer = [np.sum(g[layer] ** 2) for name, g in gradients.items() if "layers/" in name]
        others = [np.sum(g**2) for g in gradients.values()]
        assert norm / whole == pytest.approx(np.sqrt(sum(of_layer) / sum(others)), rel=1e-4)


@pytest.mark.parametrize(
    "case",
    [
        Case("fsdp=2", tuning="layer norms"),
        pytest.param(
            Case("data=2,fsdp=2,tensor=2", microbatches=2, tuning="layer norms"),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            Case("stage=2", schedule="interleaved", microbatches=4, tuning="layer norms"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_they_are_the_same_on_every_mesh(case):
    assert_equals_one_device(case)


@pytest.mark.slow
def test_those_of_frozen_layers_are_zero():
    found = stepped_alone(Case(tuning="layer norms of a head"))["metrics"]
    assert found["layer_grad_norms 1"].tolist() == [0.0] * 4 and found["grad_norm 1"] > 0
