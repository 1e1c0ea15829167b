"""Layers with experts on one device against a reference that loops over tokens and experts."""

import functools
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.tree_util import keystr, tree_flatten_with_path

from scaling.meshes.rules import make_rules
from scaling.models.config import ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.models.experts import Experts
from scaling.models.transformer import Transformer
from tests.models.one_device import DEEPSEEK_CHOICE, ONE, choose, jit, logits_and_routing

# Dims: B batch, S sequence, D model, F hidden, E experts

pytestmark = pytest.mark.usefixtures("one_device")
_toy = functools.partial(ModelConfig, 32, d_model=12, n_layers=3, n_heads=2, d_ff=10)
MIXTRAL = _toy(moe=Moe(4, 2))
QWEN = _toy(mlp="gelu", moe=Moe(6, 3, d_ff_expert=7, normalize_weights=False))
DEEPSEEK = _toy(
    moe=Moe(
        8, 3, 5, n_shared_experts=2, first_dense_layers=1, routed_scaling=2.5, **DEEPSEEK_CHOICE
    )
)
MODELS = {"mixtral": MIXTRAL, "qwen": QWEN, "deepseek": DEEPSEEK}


def built(config: ModelConfig, make=Experts) -> Experts:
    """Experts whose parameters are all random, the selection bias too."""
    execution = Execution(make_rules(ONE, sequence_parallel=False), compute="fp32")
    shapes = jax.eval_shape(lambda: make(config, execution, jax.random.key(0)))
    noise = np.random.default_rng(0)
    draw = lambda leaf: (0.5 * noise.standard_normal(leaf.shape)).astype(leaf.dtype)
    return jax.tree.map(draw, shapes)


def stream(config: ModelConfig) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((2, 6, config.d_model)).astype(np.float32)


def by_hand(config: ModelConfig, layer: Experts, x_BSD: np.ndarray) -> np.ndarray:
    """Token by token, expert by expert, in float64."""
    moe = config.moe
    w = {name: np.asarray(v, np.float64) for name, v in layer._weights().items()}
    y = np.zeros_like(x_BSD, np.float64)
    for place in np.ndindex(x_BSD.shape[:2]):
        x = x_BSD[place].astype(np.float64)
        for expert, weight in choose(moe, x @ w["router"], w.get("bias")).items():
            matrices = {n: w[n][expert] for n in ("gate", "up", "down") if n in w}
            y[place] += weight * mlp(config, x, matrices)
        if moe.n_shared_experts:  # one after the other, though stored side by side
            F = moe.d_ff_expert
            for number in range(moe.n_shared_experts):
                own = slice(number * F, (number + 1) * F)
                matrices = {n: w[f"shared_{n}"][:, own] for n in ("gate", "up")}
                y[place] += mlp(config, x, matrices | {"down": w["shared_down"][own]})
    return y


def mlp(config: ModelConfig, x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    up = x @ w["up"]
    if config.mlp == "swiglu":
        gate = x @ w["gate"]
        return (gate / (1 + np.exp(-gate)) * up) @ w["down"]
    tanh = np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3))
    return (0.5 * up * (1 + tanh)) @ w["down"]


@pytest.mark.parametrize("capacity_factor", [None, 8.0], ids=["dropless", "room for all"])
@pytest.mark.parametrize("name", MODELS)
def test_a_layer_is_the_weighted_sum_of_its_experts(name: str, capacity_factor) -> None:
    config = MODELS[name]
    config = replace(config, moe=replace(config.moe, capacity_factor=capacity_factor))
    layer, x_BSD = built(config), stream(config)
    y_BSD, routing = jit(lambda layer, x: layer(x))(layer, x_BSD)
    np.testing.assert_allclose(y_BSD, by_hand(config, layer, x_BSD), rtol=2e-4, atol=2e-4)
    assert float(routing.dropped) == 0
    assert float(routing.load_E.sum()) == 12 * config.moe.experts_per_token


@pytest.mark.parametrize("capacity_factor", [None, 1.0], ids=["dropless", "padded"])
@pytest.mark.parametrize("name", MODELS)
def test_padding_has_no_expert_and_no_part_in_load_losses_and_room(name, capacity_factor) -> None:
    """One sequence with padding before and after its tokens, against the tokens alone: with a
    capacity factor in a buffer of the same rows, which all the tokens fill to the last."""
    moe = replace(MODELS[name].moe, capacity_factor=capacity_factor)
    first, tokens, length = 5, 6, 18
    if capacity_factor is not None:  # rows of an expert: as many as there are tokens
        moe = replace(
            moe, capacity_factor=tokens * moe.n_experts / (length * moe.experts_per_token)
        )
    config = replace(MODELS[name], moe=moe)
    layer = built(config)
    noise = np.random.default_rng(3)
    alone_BSD = noise.standard_normal((1, tokens, config.d_model)).astype(np.float32)
    is_token_BS = np.zeros((1, length), bool)
    is_token_BS[:, first : first + tokens] = True
    x_BSD = np.tile(noise.standard_normal((1, 1, config.d_model)), (1, length, 1))
    x_BSD = x_BSD.astype(np.float32)  # all padding would go to the same experts
    x_BSD[is_token_BS] = alone_BSD[0]
    whole = replace(config, moe=replace(moe, capacity_factor=None))
    y_BSD, routing = jit(lambda layer, x: layer(x, is_token_BS))(layer, x_BSD)
    expected_BSD, expected = jit(lambda layer, x: layer(x))(built(whole), alone_BSD)
    np.testing.assert_allclose(y_BSD[is_token_BS], expected_BSD[0], rtol=1e-5, atol=1e-5)
    assert float(routing.dropped) == 0
    assert routing.load_E.tolist() == expected.load_E.tolist()
    np.testing.assert_allclose(routing.aux_loss, expected.aux_loss, rtol=1e-5)
    np.testing.assert_allclose(routing.z_loss, expected.z_loss, rtol=1e-5)


def test_dropped_tokens_pass_by_and_are_counted() -> None:
    """With room for one row per expert, what is kept is the sum over the kept assignments."""
    config = replace(MIXTRAL, moe=replace(MIXTRAL.moe, capacity_factor=1 / 6))
    layer, x_BSD = built(config), stream(config)
    y_BSD, routing = jit(lambda layer, x: layer(x))(layer, x_BSD)
    used = (np.asarray(routing.load_E) > 0).sum()
    assert float(routing.dropped) == 24 - used  # 12 tokens x 2
    moved = np.abs(np.asarray(y_BSD)).sum(-1) > 0
    assert 1 <= moved.sum() <= used


@pytest.mark.parametrize("capacity_factor", [None, 8.0], ids=["dropless", "padded"])
def test_gradients_are_finite_differences(capacity_factor) -> None:
    """Of every weight, along a random direction; the choice of experts does not change nearby."""
    config = replace(DEEPSEEK, moe=replace(DEEPSEEK.moe, capacity_factor=capacity_factor))
    layer, x_BSD = built(config), stream(config)
    noise = np.random.default_rng(2)
    target = noise.standard_normal(x_BSD.shape)

    def loss(layer: Experts) -> jax.Array:
        y_BSD, routing = layer(x_BSD)
        return (y_BSD * target).sum() + routing.aux_loss + 0.1 * routing.z_loss

    gradients, _ = tree_flatten_with_path(jit(jax.grad(loss))(layer))
    leaves, treedef = jax.tree.flatten(layer)
    value = jit(loss)
    for number, (path, gradient) in enumerate(gradients):
        direction = noise.standard_normal(gradient.shape).astype(np.float32)
        ends = []
        for step in (1e-3, -1e-3):
            moved = [x + step * direction if i == number else x for i, x in enumerate(leaves)]
            ends.append(float(value(treedef.unflatten(moved))))
        slope = (ends[0] - ends[1]) / 2e-3
        name = keystr(path)
        expected = 0.0 if "router_bias" in name else slope
        assert np.vdot(gradient, direction) == pytest.approx(expected, rel=2e-2, abs=2e-2), name


def test_leading_layers_are_dense_and_the_rest_report_their_load() -> None:
    model = built(DEEPSEEK, Transformer)
    assert model.dense_layers.mlp.up_DF.shape == (1, 12, 10)
    assert model.layers.mlp.up_EDF.shape == (2, 8, 12, 5)
    tokens = np.arange(12, dtype=np.int32).reshape(2, 6)
    logits_BSV, routing = jit(logits_and_routing)(model, tokens)
    assert logits_BSV.shape == (2, 6, 32) and routing.load_E.shape == (2, 8)


def test_a_model_whose_layers_are_all_dense_has_no_experts() -> None:
    config = replace(DEEPSEEK, moe=replace(DEEPSEEK.moe, first_dense_layers=3))
    model = built(config, Transformer)
    assert model.dense_layers is None and model.layers.mlp.up_DF.shape == (3, 12, 10)
