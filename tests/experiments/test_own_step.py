"""A step that is not ours, priced for 64 H100 that are not here, does what the hand count says.

A two-layer MLP in plain JAX, whose hidden layer is cut over `model`, whose batch over `data`, with
gradients and a plain SGD update, state donated.
"""

from collections import Counter
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from scaling.program.ir import collectives, kernels, unattributed

BATCH, WIDTH, HIDDEN = 65_536, 8192, 32_768
RATE = 1e-3
BYTES = 2  # of bf16, in which it multiplies and sums
DATA = MODEL = 8


def loss(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error in bf16."""
    up, down = (weights[name].astype(jnp.bfloat16) for name in ("up", "down"))
    with jax.named_scope("mlp"):
        out = jax.nn.gelu(x @ up) @ down
    return jnp.mean(jnp.square(out - y).astype(jnp.float32))


def step(weights: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    gradients = jax.grad(loss)(weights, x, y)
    with jax.named_scope("optimizer"):
        return jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)


@pytest.mark.deviceless
def test_a_step_that_is_not_ours_does_what_the_hand_count_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward, the second product cuts what it sums over `model`; backward, both gradients sum
    over `data`. The gradient of the data is nobody's."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    mesh = sc.device_mesh("data=8,model=8", cluster="dgx-h100", nodes=8)
    array = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, P(*spec))
    )
    weights = {
        "up": array((WIDTH, HIDDEN), jnp.float32, None, "model"),
        "down": array((HIDDEN, WIDTH), jnp.float32, "model", None),
    }
    batch = array((BATCH, WIDTH), jnp.bfloat16, "data", None)
    prediction = sc.predict_step(
        jax.jit(step, donate_argnums=0), weights, batch, batch, cluster="dgx-h100", nodes=8,
        name="own step",
    )  # fmt: skip
    program = prediction.pricing.program
    rows, hidden = BATCH // DATA, HIDDEN // MODEL
    sums: Counter = Counter()
    for collective, calls in collectives(program):
        sums[collective.kind, collective.axes, collective.origin.phase] += collective.bytes * calls
    assert sums == {
        ("all-reduce", ("model",), "forward"): BYTES * rows * WIDTH,
        ("all-reduce", ("data",), "backward"): 2 * BYTES * WIDTH * hidden,
    }
    product = 2 * rows * WIDTH * hidden
    assert sum(kernel.flops * calls for kernel, calls in kernels(program)) == 5 * product
    assert unattributed(program) == 0
    page = str(prediction)
    assert "own step" in page and "all-reduce[model]" in page and "fits" in page
