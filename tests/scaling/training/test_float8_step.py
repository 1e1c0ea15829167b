"""A step with 8-bit matrix products, against the same step in float32 on one device.

Rounding to 8 bits moves every gradient, and each mesh rounds otherwise, because devices scale what
they hold. So directions and lengths are compared; that products are right is exact in
tests/models/test_float8.py.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
import pytest

from scaling.meshes.errors import InputError
from scaling.run import Precision
from scaling.run.parallelism.checks import check_device
from tests.harness import Case, stepped, stepped_alone

# A wrong scale or a missing part moves these by far more; the worst of three cases, seen with jax
# 0.10.2 on CPU: 0.976 (queries of latent attention) and 4.8 % (a norm's scale).
LEAST_COSINE, LENGTH = 0.97, 0.1
MORE = [
    Case("stage=2,fsdp=2,tensor=2", "gpt", "selective", 2, compute="fp8"),
    Case("data=2,fsdp=2,tensor=2", "gpt", "full", 2, compute="fp8"),
    Case("data=2,fsdp=2,tensor=2", compute="fp8"),
    Case("fsdp=2,context=2,tensor=2", remat="selective", compute="fp8"),
    Case("data=2,fsdp=2,tensor=2", "latent", microbatches=2, compute="fp8"),
    Case("data=2,fsdp=4", "gpt", zero=1, compute="fp8"),
    Case("fsdp=2,expert=2,tensor=2", "padded", "selective", compute="fp8"),
    Case("data=2,expert=4", "mixtral", compute="fp8"),
    Case("data=2,stage=2,tensor=2", remat="full", microbatches=4, compute="fp8"),
]


@pytest.mark.parametrize(
    "case",
    [
        Case("fsdp=2", compute="fp8"),
        *(pytest.param(case, marks=pytest.mark.slow) for case in MORE),
    ],
    ids=str,
)
def test_8_bit_gradients_point_where_those_in_float32_point(case: Case) -> None:
    found, wanted = stepped(case, steps=1), stepped_alone(case.alone)
    loss, wanted_loss = found["metrics"]["loss 1"], wanted["metrics"]["loss 1"]
    assert loss == pytest.approx(wanted_loss, rel=0.01)
    assert loss != pytest.approx(wanted_loss, rel=1e-6)  # it did round
    alone = {}
    # Chains of products of latent attention round to 0.93 on one device already, and a rounded
    # token may go to another expert.
    if case.model == "latent" or case.run.model.moe:
        alone = stepped_alone(replace(case.alone, compute="fp8"))["gradients"]
    for name, gradient in found["gradients"].items():
        if "key_bias" in name:
            continue  # zero without rotation, see tests/harness.py
        exact = wanted["gradients"][name]
        least = max(0.9, cosine(alone[name], exact) - 0.02) if alone else LEAST_COSINE
        assert cosine(gradient, exact) > least, name
        assert np.linalg.norm(gradient) == pytest.approx(np.linalg.norm(exact), rel=LENGTH), name


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two arrays as vectors."""
    a, b = (x.ravel().astype(np.float64) for x in (a, b))
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


# --- what is refused ------------------------------------------------------------------------------


class Gpu(NamedTuple):
    compute_capability: str
    platform: str = "gpu"
    device_kind: str = "NVIDIA A100"


def test_gpu_without_8_bit_units_is_refused() -> None:
    run = Case(compute="fp8").run
    with pytest.raises(InputError, match=r"A100 \(compute capability 8.0\).*begins with 8.9; use"):
        check_device(run, Gpu("8.0"))
    for fine in (Gpu("8.9"), Gpu("9.0"), Gpu("gfx942"), jax.devices()[0]):
        check_device(run, fine)
    check_device(replace(run, precision=Precision("bf16")), Gpu("8.0"))
