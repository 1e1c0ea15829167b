"""Mixtures of experts in stages: loss, load, gradients of one device; traffic as in the table."""

import functools
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.analytic.communication.experts import BUFFERS, EVERY_EXPERT
from scaling.analytic.communication.table import SMALLEST, expected_bytes
from scaling.compare.audit import audit
from scaling.meshes import catalog
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import ModelConfig, Moe
from scaling.parallelism.rules import rules_for
from scaling.profiles.io import ideal
from scaling.run import Batch, Precision, Run, Train
from scaling.simulate.step import price, running_collectives
from scaling.train.execution import execution_for
from scaling.train.program import program_of_run
from scaling.train.step import (
    Tokens,
    abstract_state,
    abstract_tokens,
    init_state,
    jitted_step,
    output_and_gradients,
)

H100 = catalog.load("dgx-h100")
RTOL, ATOL_OF_LARGEST = 1e-4, 1e-5  # the second for entries that cancel out, of the array's largest
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
ROUNDING = 0.01  # vectors and choices that travel in the same instruction as matrices
BALANCED = Moe(8, 3, 16, n_shared_experts=1, gate="sigmoid", aux_loss=0.1, z_loss=0.01)
_toy = functools.partial(
    ModelConfig, 64, d_model=32, n_layers=4, n_heads=8, head_dim=4, d_ff=64, qk_norm=True
)
MODELS = {
    "mixtral": _toy(moe=Moe(8, 2, 32, aux_loss=0.1, z_loss=0.01)),
    "padded": _toy(moe=Moe(8, 2, 32, aux_loss=0.1, capacity_factor=4.0)),
    "balanced": _toy(moe=replace(BALANCED, selection_bias=True, bias_update_rate=0.01)),
}


class Case(NamedTuple):
    mesh: str
    model: str
    remat: str
    microbatches: int

    @property
    def alone(self) -> "Case":
        """On one device; losses are means over a microbatch, so it keeps their number."""
        return self._replace(mesh="data=1", remat="none")

    @property
    def run(self) -> Run:
        batch, train = Batch(16, 16, self.microbatches), Train(steps=9, warmup_steps=0)
        model, mesh = MODELS[self.model], parse_mesh(self.mesh)
        precision = Precision("fp32")
        return Run("toy", model, batch, mesh, precision=precision, train=train, remat=self.remat)

    @property
    def execution(self) -> Any:
        return execution_for(self.run, rules_for(self.run, self.run.mesh), "cpu")

    def __str__(self) -> str:
        return "-".join(map(str, self))


CASES = [
    Case("data=2,stage=2,expert=2", "mixtral", "none", 2),
    Case("stage=2,expert=2,tensor=2", "padded", "selective", 2),
    Case("stage=4,expert=2", "balanced", "full", 4),
    Case("fsdp=2,stage=2,tensor=2", "mixtral", "full", 1),
]


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def placed(case: Case) -> tuple[Any, Tokens]:
    """A state with noise instead of zeros and ones, and tokens, on the mesh that is set."""
    run, execution, noise = case.run, case.execution, np.random.default_rng(0)
    state = abstract_state(run.model, execution, run.train)
    flat, treedef = tree_flatten_with_path(state.params)
    leaves = []
    for path, leaf in flat:
        scale = keystr(path, simple=True, separator="/").endswith("scale/value")
        x = 0.1 * noise.standard_normal(leaf.shape) + scale
        leaves.append(jax.device_put(np.float32(x), leaf.sharding))
    cut = abstract_tokens(run.batch, execution).inputs
    text = noise.integers(64, size=(16, 17)).astype(np.int32)
    parts = (part.reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
    return treedef.unflatten(leaves), Tokens(*jax.device_put(tuple(parts), cut.sharding))


def compiled(function: jax.stages.Wrapped, *arguments: Any) -> jax.stages.Compiled:
    return function.lower(*arguments).compile(compiler_options=QUICK)


def computed(case: Case) -> dict[str, np.ndarray]:
    """Loss, routing and gradients by name."""
    with jax.set_mesh(host_mesh(case.run.mesh)):
        arguments = placed(case)
        outcome, gradients = compiled(jax.jit(output_and_gradients), *arguments)(*arguments)
        return by_name(outcome) | by_name(gradients)


def assert_equal(found: dict, wanted: dict) -> None:
    assert found.keys() == wanted.keys()
    for name, value in found.items():
        atol = ATOL_OF_LARGEST * np.abs(wanted[name]).max()
        np.testing.assert_allclose(value, wanted[name], RTOL, atol, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_loss_load_and_gradients_equal_those_of_one_device(case: Case) -> None:
    assert_equal(computed(case), computed(case.alone))


@pytest.mark.slow
def test_idle_ticks_move_no_bias_and_no_metric() -> None:
    def stepped(case: Case) -> tuple[dict, np.ndarray]:
        with jax.set_mesh(host_mesh(case.run.mesh)):
            run, execution = case.run, case.execution
            state = jax.jit(lambda: init_state(run.model, execution, run.train))()
            tokens = placed(case)[1]
            state, metrics = compiled(jitted_step(run.train), state, tokens)(state, tokens)
            return by_name(metrics), np.asarray(state.params.layers.mlp.router_bias_E[...])

    (metrics, biases), (wanted, wanted_biases) = map(stepped, (CASES[2], CASES[2].alone))
    assert_equal(metrics, wanted)
    np.testing.assert_allclose(biases, wanted_biases, atol=1e-7)
    assert np.abs(biases).max() == pytest.approx(0.01)
    assert metrics["expert_load"].sum(axis=1) == pytest.approx(8)  # over the mean, of 8 experts


GPU_MODEL = ModelConfig(2048, 512, 4, n_heads=8, head_dim=64, d_ff=1024, moe=Moe(8, 2, 512))
PADDED = replace(GPU_MODEL, moe=Moe(8, 2, 512, capacity_factor=2.0))


@pytest.mark.deviceless
@pytest.mark.parametrize(
    ("mesh", "remat", "model", "reason"),
    [
        ("data=2,stage=2,expert=2", "none", GPU_MODEL, EVERY_EXPERT),
        ("stage=2,expert=2,tensor=2", "selective", PADDED, BUFFERS),
        ("stage=4,expert=2", "full", GPU_MODEL, EVERY_EXPERT),
    ],
)
def test_the_gpu_program_moves_what_the_table_says(
    tmp_path, monkeypatch, mesh: str, remat: str, model: ModelConfig, reason: str
) -> None:
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    run = Run("deep", model, Batch(16, 512, 2), parse_mesh(mesh), remat=remat)
    assert isinstance(run.mesh, MeshShape)
    priced = price(program_of_run(run, run.mesh, H100)[0], H100, ideal())
    moved: Counter = Counter()
    for collective, calls in running_collectives(priced):
        if collective.bytes >= SMALLEST:
            moved["+".join(collective.axes), collective.kind] += collective.bytes * calls
    assert dict(moved) == pytest.approx(expected_bytes(run, run.mesh), rel=ROUNDING)
    assert [s.reason for s in audit(priced, run, run.mesh)] == [reason]
