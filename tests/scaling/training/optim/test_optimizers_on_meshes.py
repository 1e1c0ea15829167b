"""Every optimiser on meshes of eight devices: parameters and state are those of one device, each
array is cut by the rules, and Muon and Adafactor move what they say they move."""

import functools
from collections import Counter
from dataclasses import replace

import jax
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

from scaling.analytic.optimizer import optimizer_transfers
from scaling.analytic.step import step_sizes
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.program.ir import collectives
from scaling.run import Batch, Precision, Run, Train
from scaling.run.optimizers import DEFAULTS, Optimizer
from scaling.run.parallelism.rules import rules_for
from scaling.training.optim.optimizer import ADAMW, make_optimizer
from scaling.training.running import program_of
from scaling.training.step import (
    TrainState,
    abstract_state,
    abstract_tokens,
)
from scaling.training.weights.naming import leaf_names

NAMES = tuple(DEFAULTS)
STEPS = 3
RTOL = 1e-4
TRAIN = Train(steps=10, learning_rate=1e-2, warmup_steps=1, clip_norm=0.5)
MODELS = {
    "llama": ModelConfig(64, d_model=32, n_layers=2, n_heads=8, n_kv_heads=4, d_ff=64, head_dim=4),
    "gpt": ModelConfig(
        61,
        d_model=32,
        n_layers=3,  # no size of an axis divides it
        n_heads=8,
        d_ff=64,
        mlp="gelu",
        norm="layernorm",
        positions="learned",
        max_positions=16,
        bias=True,
        tied_embeddings=True,
    ),
    "deepseek": ModelConfig(
        64,
        d_model=32,
        n_layers=3,
        n_heads=8,
        d_ff=64,
        mla=Mla(8, 16, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4),
        moe=Moe(4, 2, 16, n_shared_experts=1, first_dense_layers=1, selection_bias=True),
    ),
}
CUBE = "data=2,fsdp=2,tensor=2"
FACTORED = ("muon", "adafactor")  # which see whole matrices
MESHES = {
    CUBE: "gpt",
    **{"data=8": "llama", "fsdp=8": "gpt", "tensor=4": "llama", "data=2,fsdp=4": "gpt"},
    **{"fsdp=2,tensor=4": "llama", "fsdp=4,tensor=2": "gpt"},
    **{"fsdp=2,expert=2,tensor=2": "deepseek", "fsdp=2,stage=2,tensor=2": "llama"},
}
CASES = [  # AdamW, and Lion like it, work on each element alone
    pytest.param(mesh, name, marks=[] if mesh == CUBE and name in FACTORED else [pytest.mark.slow])
    for mesh in MESHES
    for name in NAMES
]


def run_of(model: str, optimizer: Optimizer = ADAMW, train: Train = TRAIN) -> Run:
    precision = Precision(optimizer_state=optimizer.state)
    run = Run("toy", MODELS[model], Batch(8, 16), precision=precision, train=train)
    return replace(run, optimizer=optimizer.name)


def abstract(model: str, shape: MeshShape, optimizer: Optimizer) -> tuple:
    """State and tokens on the mesh that is set."""
    run = run_of(model, optimizer)
    execution = Execution(rules_for(run, shape), compute="fp32")
    state = abstract_state(run, execution)
    return execution, state, abstract_tokens(run.batch, execution)


def drawn(tree, seed: int):
    """Normal numbers, the same on every mesh, in place of the leaves."""
    random = np.random.default_rng(seed)
    draw = lambda leaf: jax.device_put(
        np.float32(0.1 * random.standard_normal(leaf.shape)), leaf.sharding
    )
    return jax.tree.map(draw, tree)


@functools.cache
def updated(model: str, mesh: str, optimizer: Optimizer) -> dict[str, np.ndarray]:
    """Parameters and state after a few steps with given gradients."""
    shape = parse_mesh(mesh) if mesh else MeshShape()
    with jax.set_mesh(host_mesh(shape)):
        _, like, _ = abstract(model, shape, optimizer)
        made = make_optimizer(TRAIN, optimizer)

        @jax.jit
        def step(params, state, gradients):
            updates, state = made.update(gradients, state, params)
            return optax.apply_updates(params, updates), state

        params = drawn(like.params, 0)
        state = jax.jit(made.init)(params)
        for seed in range(1, STEPS + 1):
            gradients = drawn(like.params, seed)
            params, state = step(params, state, gradients)
        both = {"params": params, "optimizer": state}
        for leaf, wanted in zip(
            jax.tree.leaves(state), jax.tree.leaves(like.optimizer), strict=True
        ):
            assert leaf.sharding.is_equivalent_to(wanted.sharding, leaf.ndim)
        leaves = [np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(both)]
        return dict(zip(leaf_names(both), leaves, strict=True))


@pytest.mark.parametrize(("mesh", "name"), CASES)
def test_updates_on_a_mesh_equal_those_of_one_device(name: str, mesh: str) -> None:
    found = updated(MESHES[mesh], mesh, Optimizer(name))
    expected = updated(MESHES[mesh], "", Optimizer(name))
    assert found.keys() == expected.keys()
    for key, values in found.items():
        largest = np.abs(expected[key]).max()
        np.testing.assert_allclose(values, expected[key], RTOL, 1e-5 * largest, err_msg=key)


@pytest.mark.parametrize(
    ("name", "stochastic"),
    [
        ("lion", True),
        *(pytest.param(name, False, marks=pytest.mark.slow) for name in NAMES),
        *(pytest.param(name, True, marks=pytest.mark.slow) for name in NAMES if name != "lion"),
    ],
)
def test_bf16_state_on_a_mesh_equals_one_device_within_a_bit(name: str, stochastic: bool) -> None:
    optimizer = Optimizer(name, "bf16", stochastic)
    found, expected = updated("gpt", CUBE, optimizer), updated("gpt", "", optimizer)
    for key, values in found.items():
        largest = np.abs(expected[key]).max()
        np.testing.assert_allclose(values, expected[key], 2**-6, 1e-2 * largest, err_msg=key)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "adafactor"])
def test_state_arrays_are_sharded_like_their_parameter(name: str) -> None:
    state = abstract_of(name)
    parts = dict(zip(leaf_names(state.optimizer), jax.tree.leaves(state.optimizer), strict=True))
    for path, param in zip(leaf_names(state.params), jax.tree.leaves(state.params), strict=True):
        kept = [leaf for key, leaf in parts.items() if key.endswith("/" + path)]
        assert kept
        assert all(leaf.sharding.is_equivalent_to(param.sharding, param.ndim) for leaf in kept)


@pytest.mark.parametrize(
    ("part", "path", "shape", "spec"),
    [
        ("v_row", "layers/attention/query_DNK", (2, 32), (None, "fsdp")),
        ("v_col", "layers/attention/query_DNK", (2, 32), (None, "tensor")),
        ("v_row", "layers/attention/out_NKD", (2, 32), (None, "fsdp")),
        ("v_col", "layers/mlp/down_FD", (2, 64), (None, "tensor")),
        ("v_col", "head_VD", (64,), ("tensor",)),
        ("v", "layers/mlp_norm/scale", (2, 32), (None, None)),
    ],
)
def test_adafactor_rows_and_columns_are_sharded_like_those_of_the_parameter(
    part: str, path: str, shape: tuple, spec: tuple
) -> None:
    state = abstract_of("adafactor").optimizer
    parts = dict(zip(leaf_names(state), jax.tree.leaves(state), strict=True))
    (found,) = [leaf for key, leaf in parts.items() if key.endswith(f"{path}/0/{part}")]
    assert found.shape == shape
    assert found.sharding.is_equivalent_to(
        jax.NamedSharding(found.sharding.mesh, P(*spec)), len(shape)
    )


def abstract_of(name: str) -> TrainState:
    """The abstract state on fsdp=4, tensor=2."""
    shape = MeshShape(fsdp=4, tensor=2)
    with jax.set_mesh(host_mesh(shape)):
        return abstract("llama", shape, Optimizer(name))[1]


# --- what they move -----------------------------------------------------------------------------


def moved_by(name: str, mesh: str, model: str = "llama") -> dict[tuple[str, str], float]:
    """Bytes by axes and kind that one update moves; gradients are given, clipping is off."""
    shape, train = parse_mesh(mesh), Train(clip_norm=0)
    optimizer, devices = Optimizer(name), host_mesh(parse_mesh(mesh))
    run = run_of(model, optimizer, train)
    with jax.set_mesh(devices):
        execution = Execution(rules_for(run, shape), compute="fp32")
        like = abstract_state(run, execution)
        update = jax.jit(make_optimizer(train, optimizer).update)
        step = update.lower(like.params, like.optimizer, like.params).compile()
    sums: Counter = Counter()
    for call, calls in collectives(program_of(step, devices, name)):
        sums["+".join(call.axes), call.kind] += call.bytes * calls
    return dict(sums)


def table_of(name: str, mesh: str, model: str = "llama") -> dict[tuple[str, str], float]:
    """The same as derived by hand."""
    run = replace(run_of(model), optimizer=name, precision=Precision("fp32"))
    sums: Counter = Counter()
    for call in optimizer_transfers(step_sizes(run, parse_mesh(mesh))):
        if call.axes:
            sums[call.axes, call.kind] += call.bytes * call.calls
    return dict(sums)


@pytest.mark.parametrize("name", ["adamw", "lion"])
def test_adamw_and_lion_move_nothing(name: str) -> None:
    assert moved_by(name, CUBE) == table_of(name, CUBE) == {}


@pytest.mark.parametrize(
    ("mesh", "model"),
    [
        ("fsdp=2,stage=2,tensor=2", "llama"),
        pytest.param("fsdp=4", "llama", marks=pytest.mark.slow),
        pytest.param("tensor=2", "llama", marks=pytest.mark.slow),
        pytest.param(CUBE, "llama", marks=pytest.mark.slow),
        pytest.param("data=8", "llama", marks=pytest.mark.slow),
        pytest.param("fsdp=2,expert=2,tensor=2", "deepseek", marks=pytest.mark.slow),
    ],
)
def test_muon_moves_whole_layers_of_a_stage_and_of_each_expert_by_all_to_all(
    mesh: str, model: str
) -> None:
    found = moved_by("muon", mesh, model)
    assert found == pytest.approx(table_of("muon", mesh, model))
    assert {kind for _, kind in found} == ({"all-to-all"} if mesh != "data=8" else set())


@pytest.mark.parametrize(
    "mesh", ["fsdp=2,tensor=2", pytest.param("data=8", marks=pytest.mark.slow)]
)
def test_adafactor_sums_means_of_rows_and_columns_and_scalars(mesh: str) -> None:
    found, expected = moved_by("adafactor", mesh), table_of("adafactor", mesh)
    matrices, layers = 7, MODELS["llama"].n_layers
    scalars = 4 * 2 * 2 * (matrices * layers + 2)  # means of rows, sizes of steps; on both axes
    assert {kind for _, kind in found} == ({"all-reduce"} if expected else set())
    assert all(found[key] >= n for key, n in expected.items())
    assert sum(found.values()) <= sum(expected.values()) + scalars * bool(expected)
