"""Tokens that experts have no room for: which are dropped, and what the metrics say of it."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.config import Moe
from scaling.models.experts import Experts
from scaling.run import Batch
from tests.harness import MODELS, RTOL, Case, execution_of, stepped

pytestmark = pytest.mark.slow
TIGHT = replace(MODELS["mixtral"], moe=Moe(8, 2, 32, capacity_factor=0.5))


def expert_layer(mesh: MeshShape, x_BSD: np.ndarray) -> tuple[np.ndarray, float]:
    """Output of a layer of experts with little room, and the assignments that it drops."""
    run = replace(Case().run, model=TIGHT, batch=Batch(*x_BSD.shape[:2]), mesh=mesh)
    execution = execution_of(run)
    with jax.set_mesh(host_mesh(mesh)):
        spec = jax.NamedSharding(host_mesh(mesh), execution.spec("batch", "residual", None))

        @jax.jit
        def layer(x_BSD: jax.Array) -> Any:
            return Experts(TIGHT, execution, jax.random.key(0))(x_BSD)

        y_BSD, routing = layer(jax.device_put(x_BSD, spec))
        return np.asarray(y_BSD), float(routing.dropped)


def test_device_drops_the_same_tokens_however_they_were_sharded() -> None:
    """A capacity is an even load of one device: over `context` it drops what it drops over `data`
    when devices hold the same tokens."""
    x_BSD = np.random.default_rng(0).standard_normal((4, 16, 64)).astype(np.float32)
    halves = np.concatenate(np.split(x_BSD, 2, axis=1))  # what the devices of context hold
    y_BSD, dropped = expert_layer(MeshShape(expert=2, context=2), x_BSD)
    # Batches are cut over data first, so the devices of `expert` must hold the same sequences.
    same, as_many = expert_layer(MeshShape(data=2, expert=2), halves)
    np.testing.assert_allclose(np.concatenate(np.split(y_BSD, 2, axis=1)), same, RTOL, 1e-6)
    assert dropped == as_many >= 0.5 * x_BSD.shape[0] * x_BSD.shape[1] * 2


def test_full_device_drops_what_is_counted(monkeypatch) -> None:
    """Over `expert` a device takes at most `device_capacity_factor` times an even load."""
    x_BSD = np.random.default_rng(0).standard_normal((8, 16, 64)).astype(np.float32)
    mesh, moe = MeshShape(data=2, expert=4), TIGHT.moe
    bounded = lambda factor: replace(
        TIGHT, moe=replace(moe, capacity_factor=None, device_capacity_factor=factor)
    )
    monkeypatch.setitem(globals(), "TIGHT", bounded(0.5))
    _, dropped = expert_layer(mesh, x_BSD)
    assert 128 <= dropped < 256  # half of 256 assignments, and more where the load is uneven
    monkeypatch.setitem(globals(), "TIGHT", bounded(4.0))
    roomy, none = expert_layer(mesh, x_BSD)
    monkeypatch.setitem(globals(), "TIGHT", bounded(None))
    exact, _ = expert_layer(mesh, x_BSD)
    assert none == 0
    np.testing.assert_array_equal(roomy, exact)


def test_metrics_have_the_share_of_dropped_tokens(monkeypatch) -> None:
    monkeypatch.setitem(MODELS, "tight", TIGHT)
    metrics = stepped(Case("expert=4,tensor=2", "tight"), steps=1)["metrics"]
    assert 0.5 <= float(metrics["dropped 1"]) < 0.9  # room for half of an even load
    assert np.isfinite(metrics["loss 1"]) and np.isfinite(metrics["grad_norm 1"])


def test_router_bias_moves_by_its_rate_in_a_pipeline_too() -> None:
    """The starting bias is noise, so the difference to the same step of rate 0 is compared."""
    case = Case("stage=4,expert=2", "balanced", microbatches=4)
    found = stepped(case, steps=1)
    name = next(name for name in found["params"] if name.endswith("router_bias_E"))
    still = replace(MODELS["balanced"].moe, bias_update_rate=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(MODELS, "still", replace(MODELS["balanced"], moe=still))
        before = stepped(replace(case, model="still"), steps=1)["params"][name]
    moves = np.abs(found["params"][name] - before)
    assert moves.max() == pytest.approx(MODELS["balanced"].moe.bias_update_rate, rel=1e-4)
    load = found["metrics"]["expert_load 1"]
    assert load.sum(axis=1) == pytest.approx(MODELS["balanced"].moe.n_experts)  # over the mean
