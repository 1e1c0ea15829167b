"""Lion, Adafactor and Muon against their formulas and optax's own, on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from scaling.run import Train
from scaling.run.optimizers import DEFAULTS, Optimizer
from scaling.training.optim.adafactor import scale_by_adafactor
from scaling.training.optim.matrix_axes import Axes, matrix_axes_of
from scaling.training.optim.muon import by_kind, orthogonalized
from scaling.training.optim.muon import scale_by_muon as our_muon
from scaling.training.optim.optimizer import make_optimizer, schedule

LAYERS = 3
SHAPES = {
    "query": ((LAYERS, 6, 4, 2), ("embed", "heads", None)),
    "out": ((LAYERS, 4, 2, 6), ("heads", None, "embed")),
    "up": ((LAYERS, 6, 16), ("embed", "mlp")),
    "scale": ((LAYERS, 6), (None,)),
    "bias": ((LAYERS, 4, 2), ("heads", None)),
    "table": ((10, 6), ("vocab", "embed")),
}


def params(seed: int = 0) -> dict[str, nnx.Param]:
    """A model's parameters in small; layers are stacked along a dimension without a name."""
    draw = np.random.default_rng(seed).normal
    return {
        name: nnx.Param(jnp.asarray(draw(size=shape), jnp.float32), dims=dims)
        for name, (shape, dims) in SHAPES.items()
    }


def after(optimizer: optax.GradientTransformation, steps: int = 3) -> tuple[list[dict], dict]:
    """The update of each step with random gradients, and the last state."""
    weights, found = params(), []
    state = optimizer.init(weights)
    for seed in range(1, steps + 1):
        updates, state = jax.jit(optimizer.update)(params(seed), state, weights)
        found.append({name: np.asarray(param[...]) for name, param in updates.items()})
    return found, state


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("query", Axes((0,), (1,), (2, 3))),
        ("out", Axes((0,), (3,), (1, 2))),
        ("up", Axes((0,), (1,), (2,))),
        ("scale", Axes((0,), (), (1,))),
        ("bias", Axes((0,), (), (1, 2))),
        ("table", Axes((), (1,), (0,))),
    ],
)
def test_rows_run_along_d_model_and_layers_are_a_stack(name: str, axes: Axes) -> None:
    assert matrix_axes_of(params()[name]) == axes


def test_experts_are_stacked_like_layers() -> None:
    param = nnx.Param(jnp.zeros((2, 4, 6, 16)), dims=("expert", "embed", "mlp"))
    assert matrix_axes_of(param) == Axes((0, 1), (2,), (3,))


def matrix_of(name: str, value: np.ndarray) -> np.ndarray:
    """One layer of a parameter as d_model by the rest."""
    return value.reshape(-1, 6).T if name in ("out", "table") else value.reshape(6, -1)


@pytest.mark.parametrize("name", ["out", "table"])
def test_adafactor_is_optaxs_on_each_matrix(name: str) -> None:
    found, _ = after(scale_by_adafactor(0.8, 1e-30))
    theirs = optax.chain(
        optax.scale_by_factored_rms(decay_rate=0.8, min_dim_size_to_factor=1, epsilon=1e-30),
        optax.clip_by_block_rms(1.0),
    )
    update = jax.jit(theirs.update)
    for layer in range(LAYERS if name != "table" else 1):
        of = lambda tree, layer=layer: matrix_of(
            name, np.asarray(tree[name][...])[layer] if name != "table" else tree[name][...]
        )
        state = theirs.init(jnp.asarray(of(params())))
        for step, ours in enumerate(found, 1):
            expected, state = update(jnp.asarray(of(params(step))), state, of(params()))
            mine = ours[name][layer] if name != "table" else ours[name]
            np.testing.assert_allclose(matrix_of(name, mine), expected, rtol=1e-5, atol=1e-7)


def test_adafactor_divides_vectors_by_their_own_mean_square() -> None:
    found, _ = after(scale_by_adafactor(0.8, 1e-30))
    square = np.zeros(SHAPES["scale"][0])
    for step, updates in enumerate(found, 1):
        gradient = np.asarray(params(step)["scale"][...], np.float64)
        keep = 1 - step**-0.8
        square = keep * square + (1 - keep) * gradient**2
        scaled = gradient / np.sqrt(square)
        rms = np.sqrt((scaled**2).mean(-1, keepdims=True))
        np.testing.assert_allclose(updates["scale"], scaled / np.maximum(1, rms), rtol=1e-5)


@pytest.mark.parametrize("name", ["query", "out"])
def test_muon_is_optaxs_with_updates_of_adamws_size(name: str) -> None:
    only = lambda tree: {name: tree[name]}
    ours, theirs = (
        our_muon(0.95, 1e-8, "fp32"),
        scale_by_muon(
            beta=0.95,
            eps=1e-8,
            weight_dimension_numbers={
                name: MuonDimensionNumbers((3,), (1, 2))
                if name == "out"
                else MuonDimensionNumbers((1,), tuple(range(2, len(SHAPES[name][0]))))
            },
        ),
    )
    bare = lambda tree: {name: tree[name][...]}
    weights, ours_update, their_update = params(), jax.jit(ours.update), jax.jit(theirs.update)
    mine, other = ours.init(only(weights)), theirs.init(bare(weights))
    size = 0.2 * np.sqrt(max(6, np.prod(SHAPES[name][0]) // LAYERS // 6))
    for seed in (1, 2, 3):
        gradient = params(seed)
        update, mine = ours_update(only(gradient), mine, only(weights))
        expected, other = their_update(bare(gradient), other)
        np.testing.assert_allclose(update[name][...], size * expected[name], rtol=2e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(2, 4, 16), (2, 16, 4)])
def test_orthogonalized_matrices_have_singular_values_of_about_one(shape: tuple) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    values = np.linalg.svd(orthogonalized(x, 1e-8, "fp32"), compute_uv=False)
    assert 0.5 < values.min() and values.max() < 1.3  # K. Jordan: about 0.7 to 1.2


def test_a_matrix_of_zeros_stays_zero() -> None:
    assert not np.any(orthogonalized(jnp.zeros((2, 4, 8)), 1e-8, "fp32"))


def test_muon_has_the_matrices_of_layers_and_adamw_the_rest() -> None:
    kinds = by_kind(params())
    assert {name for name, kind in kinds.items() if kind == "muon"} == {"query", "out", "up"}
    train = Train(steps=9, warmup_steps=0, learning_rate=1e-2, clip_norm=0, weight_decay=0.1)
    muon, _ = after(make_optimizer(train, Optimizer("muon")))
    adamw, _ = after(make_optimizer(train))
    for step, updates in zip(muon, adamw, strict=True):
        for name in ("scale", "bias", "table"):
            # two programs, whose float32 differ in the last digits by how XLA fuses them
            np.testing.assert_allclose(step[name], updates[name], rtol=1e-6)


def test_lion_steps_by_the_sign_of_the_paper() -> None:
    train = Train(steps=9, warmup_steps=0, learning_rate=1e-2, clip_norm=0, weight_decay=0.3)
    found, _ = after(make_optimizer(train, Optimizer("lion")))
    for name in SHAPES:
        mean = np.zeros(SHAPES[name][0])
        weights = np.asarray(params()[name][...], np.float64)
        for step, updates in enumerate(found, 1):
            gradient = np.asarray(params(step)[name][...], np.float64)
            decay = 0.3 * weights if name in ("query", "out", "up", "table") else 0
            rate = float(schedule(train)(step - 1))
            expected = -rate * (np.sign(0.9 * mean + 0.1 * gradient) + decay)
            mean = 0.99 * mean + 0.01 * gradient
            np.testing.assert_allclose(updates[name], expected, rtol=1e-5)


@pytest.mark.parametrize("name", DEFAULTS)
def test_without_a_gradient_only_matrices_move_by_the_decay(name: str) -> None:
    train = Train(steps=10, warmup_steps=0, learning_rate=1e-2, weight_decay=0.3)
    made, weights = make_optimizer(train, Optimizer(name)), params()
    zeros = jax.tree.map(jnp.zeros_like, weights)
    updates, _ = jax.jit(made.update)(zeros, made.init(weights), weights)
    for key, update in updates.items():
        decay = 0.0 if key in ("scale", "bias") else 1e-2 * 0.3
        np.testing.assert_allclose(update[...], -decay * weights[key][...], rtol=1e-5)
