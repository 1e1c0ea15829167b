"""Mixtures of experts, and latent attention: the sharded step computes what one device computes.

Loss, every gradient (balancing losses included) and the load of every expert, for `expert` alone
and mixed with data, fsdp and tensor. All are dropless or have room for every token: what a smaller
capacity drops depends on the device that a token is on, so it differs from mesh to mesh.
"""

import functools
import itertools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.config import Mla, ModelConfig, Moe, Yarn
from scaling.models.execution import Execution
from scaling.parallelism.rules import rules_for
from scaling.run import Batch, Run, Sharding, Train
from scaling.train.step import (
    Tokens,
    abstract_state,
    abstract_tokens,
    init_state,
    jitted_step,
    output_and_gradients,
)

RTOL, ATOL_OF_LARGEST = 1e-4, 1e-5  # the second for entries that cancel out, of the array's largest
SEQUENCES, SEQ_LEN = 16, 16
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
DEEPSEEK = Moe(
    8,
    3,
    d_ff_expert=16,
    n_shared_experts=1,
    first_dense_layers=1,
    gate="sigmoid",
    routed_scaling=2.5,
    selection_bias=True,
    bias_update_rate=0.01,
    n_groups=4,
    groups_per_token=2,
)
_toy = functools.partial(
    ModelConfig, 64, d_model=32, n_layers=2, n_heads=8, head_dim=4, d_ff=64, qk_norm=True
)
MODELS = {
    "mixtral": _toy(moe=Moe(8, 2, d_ff_expert=32, aux_loss=0.1, z_loss=0.01)),
    "padded": _toy(moe=Moe(8, 2, d_ff_expert=32, aux_loss=0.1, capacity_factor=4.0)),
    "deepseek": _toy(moe=replace(DEEPSEEK, aux_loss=0.1, z_loss=0.01)),
    "dense": _toy(),
}
LATENT = Mla(16, 8, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=6)
YARN = Yarn(4.0, 8, mscale_all_dim=1.0)
_latent = functools.partial(_toy, qk_norm=False, yarn=YARN)
MODELS |= {
    "latent": _latent(mla=LATENT),
    "direct": _latent(mla=replace(LATENT, q_lora_rank=None), sliding_window=5),
    "deepseek-v3": _latent(mla=LATENT, moe=replace(DEEPSEEK, aux_loss=0.1, z_loss=0.01)),
}


class Case(NamedTuple):
    """A mesh, and how the model is trained on it."""

    data: int
    fsdp: int
    expert: int
    tensor: int
    model: str = "mixtral"
    remat: str = "none"
    microbatches: int = 1
    sequence_parallel: bool = True

    @property
    def mesh(self) -> MeshShape:
        return MeshShape(self.data, self.fsdp, expert=self.expert, tensor=self.tensor)

    @property
    def alone(self) -> "Case":
        """The same on one device; losses are means over a microbatch, so it keeps their number."""
        return Case(1, 1, 1, 1, self.model, microbatches=self.microbatches)

    @property
    def run(self) -> Run:
        batch = Batch(SEQUENCES, SEQ_LEN, self.microbatches)
        train = Train(steps=10, learning_rate=1e-2, warmup_steps=0)
        sharding = Sharding(sequence_parallel=self.sequence_parallel)
        return Run("toy", MODELS[self.model], batch, self.mesh, sharding, train=train)

    @property
    def execution(self) -> Execution:
        return Execution(rules_for(self.run, self.mesh), compute="fp32", remat=self.remat)

    def __str__(self) -> str:
        rest = "-".join(map(str, self[4:7])) + ("" if self.sequence_parallel else "-whole")
        return f"{self.data}x{self.fsdp}x{self.expert}x{self.tensor}-{rest}"


FAST = [
    Case(1, 2, 2, 2, "mixtral", "selective", sequence_parallel=False),
    Case(2, 1, 2, 2, "padded", "none"),
    Case(2, 1, 2, 1, "dense", "none", 2),
    Case(2, 1, 1, 4, "latent", "none", sequence_parallel=False),
]
MORE = [  # ten seconds and more
    Case(1, 2, 2, 2, "latent", "selective"),
    Case(2, 2, 1, 2, "padded", "full"),
    Case(1, 1, 8, 1, "mixtral", "full"),
    Case(2, 1, 4, 1, "deepseek", "selective", 2),
]
SIZES = [s for s in itertools.product((1, 2, 4, 8), repeat=4) if np.prod(s) == 8]
REMATS = ("none", "selective", "full")
GRID = [  # every mesh with every way to route; remat and microbatches take turns
    Case(*sizes, model, REMATS[(i + j) % len(REMATS)], 1 + (i + j) % 2)
    for i, sizes in enumerate(SIZES)
    for j, model in enumerate(("mixtral", "padded", "deepseek"))
]
LATENTS = ("deepseek-v3", "selective", 2), ("direct", "full", 1)
GRID += [Case(*sizes, *LATENTS[i % 2]) for i, sizes in enumerate(SIZES)]


@functools.cache
def numbers(model: str) -> tuple[list[np.ndarray], np.ndarray]:
    """Parameters and tokens of a toy, with noise on what starts at 0 or 1."""
    case = Case(1, 1, 1, 1, model)
    with jax.set_mesh(host_mesh(case.mesh)):
        make = jax.jit(lambda: init_state(MODELS[model], case.execution, Train()).params)
        params = make.lower().compile(compiler_options=QUICK)()
    noise = np.random.default_rng(0)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
    leaves = [np.float32(x + 0.1 * noise.standard_normal(x.shape)) for x in leaves]
    tokens = noise.integers(MODELS[model].vocab_size, size=(SEQUENCES, SEQ_LEN + 1))
    return leaves, tokens.astype(np.int32)


def placed(case: Case) -> tuple[Any, Tokens]:
    """Parameters and tokens on the mesh of a case, which is set."""
    leaves, text = numbers(case.model)
    shapes = abstract_state(case.run.model, case.execution, case.run.train).params
    wanted, treedef = jax.tree.flatten(shapes)
    both = zip(leaves, wanted, strict=True)
    params = treedef.unflatten([jax.device_put(x, leaf.sharding) for x, leaf in both])
    cut = abstract_tokens(case.run.batch, case.execution).inputs
    # Microbatches of the same sequences on every mesh.
    parts = (part.reshape(cut.shape) for part in (text[:, :-1], text[:, 1:]))
    return params, Tokens(*jax.device_put(tuple(parts), cut.sharding))


def compiled(function: jax.stages.Wrapped, *arguments: Any) -> jax.stages.Compiled:
    return function.lower(*arguments).compile(compiler_options=QUICK)


def by_name(tree: Any) -> dict[str, np.ndarray]:
    leaves, _ = tree_flatten_with_path(tree)
    return {keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}


def computed(case: Case) -> dict[str, np.ndarray]:
    """Loss, routing and gradients by name, as whole arrays on the host."""
    with jax.set_mesh(host_mesh(case.mesh)):
        arguments = placed(case)
        outcome, gradients = compiled(jax.jit(output_and_gradients), *arguments)(*arguments)
        both = zip(*map(jax.tree.leaves, (gradients, arguments[0])), strict=True)
        assert all(g.sharding.is_equivalent_to(param.sharding, g.ndim) for g, param in both)
        return by_name(outcome) | by_name(gradients)


@functools.cache
def on_one_device(case: Case) -> dict[str, np.ndarray]:
    return computed(case)


def check(case: Case) -> None:
    found, expected = computed(case), on_one_device(case.alone)
    assert found.keys() == expected.keys()
    for name, value in found.items():
        atol = ATOL_OF_LARGEST * np.abs(expected[name]).max()
        np.testing.assert_allclose(value, expected[name], RTOL, atol, err_msg=name)


@pytest.mark.parametrize(
    "case", [*FAST, *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)], ids=str
)
def test_loss_load_and_gradients_equal_those_of_one_device(case: Case) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", GRID, ids=str)
def test_every_mesh_of_eight_devices_equals_one_device(case: Case) -> None:
    check(case)


def trained(case: Case, steps: int = 2) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Parameters and the last step's metrics after some steps from the initial state."""
    with jax.set_mesh(host_mesh(case.mesh)):
        run, execution = case.run, case.execution
        state = jax.jit(lambda: init_state(run.model, execution, run.train))()
        tokens = placed(case)[1]
        step = compiled(jitted_step(run.train), state, tokens)
        for _ in range(steps):
            state, metrics = step(state, tokens)
        return by_name(state.params), {name: np.asarray(v) for name, v in metrics.items()}


@pytest.mark.slow
def test_steps_move_parameters_and_biases_alike_on_every_mesh() -> None:
    case = Case(1, 2, 2, 2, "deepseek")
    parameters, metrics = trained(case)
    expected, expected_metrics = trained(case.alone)
    rate = case.run.train.learning_rate
    for name, values in parameters.items():
        # AdamW divides a gradient by its own size: the rounding of the smallest ones is seen.
        np.testing.assert_allclose(values, expected[name], RTOL, 1e-2 * rate, err_msg=name)
    for name, value in metrics.items():
        np.testing.assert_allclose(value, expected_metrics[name], RTOL, 1e-6, err_msg=name)
    biases = parameters["layers/mlp/router_bias_E/value"]
    steps = np.round(biases / 0.01)
    np.testing.assert_allclose(biases, 0.01 * steps, atol=1e-6)
    assert np.abs(steps).max() == 2 and metrics["expert_load"].shape == (1, 8)


@pytest.mark.slow
def test_a_small_capacity_drops_and_says_how_much() -> None:
    """The gradient still exists; what is dropped depends on the mesh, its share is reported."""
    moe = replace(MODELS["padded"].moe, capacity_factor=0.5)
    MODELS["tight"] = replace(MODELS["padded"], moe=moe)
    _, metrics = trained(Case(1, 1, 4, 2, "tight"), steps=1)
    assert 0.5 <= float(metrics["dropped"]) < 0.9  # room for half of an even load
    assert np.isfinite(metrics["loss"]) and np.isfinite(metrics["grad_norm"])


def test_the_fast_cases_have_every_size_of_the_expert_axis() -> None:
    assert {case.expert for case in [*FAST, *MORE]} == {1, 2, 4, 8}
    for axis in ("data", "fsdp", "tensor"):
        assert any(getattr(c, axis) > 1 and c.expert > 1 for c in FAST)
    assert len({case.mesh for case in GRID}) == len(SIZES) == 20
