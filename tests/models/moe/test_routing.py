"""Routing against a numpy reference that decides token by token, and its laws."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.config import Moe
from scaling.models.moe.routing import routing_statistics, top_k_gating, updated_selection_bias
from tests.models.one_device import choose

MIXTRAL = Moe(8, 2)
QWEN = Moe(8, 3, normalize_weights=False)
DEEPSEEK = Moe(
    16, 4, gate="sigmoid", routed_scaling=2.5, selection_bias=True, n_groups=4, groups_per_token=2
)
KINDS = {"mixtral": MIXTRAL, "qwen": QWEN, "deepseek": DEEPSEEK}
logits_of = lambda moe, tokens=20, seed=0: (
    np.random.default_rng(seed).standard_normal((tokens, moe.n_experts)).astype(np.float32)
)
bias_of = lambda moe: np.linspace(-0.5, 0.5, moe.n_experts, dtype=np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_experts_and_weights_are_those_of_a_choice_token_by_token(name: str) -> None:
    moe = KINDS[name]
    logits, bias = logits_of(moe), bias_of(moe) if moe.selection_bias else None
    choice = jax.jit(top_k_gating, static_argnums=0)(moe, logits, bias)
    for token in range(len(logits)):
        expected = choose(moe, logits[token], bias)
        found = dict(
            zip(choice.experts[token].tolist(), choice.weights[token].tolist(), strict=True)
        )
        assert found == pytest.approx(expected, rel=1e-5)


def test_mixtrals_softmax_over_the_chosen_is_the_normalised_softmax_over_all() -> None:
    logits = logits_of(MIXTRAL)
    choice = top_k_gating(MIXTRAL, jnp.asarray(logits), None)
    over_chosen = jax.nn.softmax(np.take_along_axis(logits, np.asarray(choice.experts), -1))
    np.testing.assert_allclose(choice.weights, over_chosen, rtol=1e-5)


def test_the_bias_changes_the_choice_and_not_the_weights() -> None:
    logits = logits_of(DEEPSEEK, tokens=1)
    one_group = replace(DEEPSEEK, n_groups=1, groups_per_token=1, normalize_weights=False)
    pushed = np.where(np.arange(16) < 4, 10.0, 0.0).astype(np.float32)
    choice = top_k_gating(one_group, jnp.asarray(logits), pushed)
    assert set(choice.experts[0].tolist()) == {0, 1, 2, 3}
    sigmoids = 1 / (1 + np.exp(-logits[0][np.asarray(choice.experts[0])]))
    np.testing.assert_allclose(choice.weights[0], 2.5 * sigmoids, rtol=1e-5)


def test_the_bias_gets_no_gradient_and_the_logits_do() -> None:
    weigh = lambda logits, bias: (top_k_gating(DEEPSEEK, logits, bias).weights ** 2).sum()
    arguments = jnp.asarray(logits_of(DEEPSEEK)), jnp.asarray(bias_of(DEEPSEEK))
    to_logits, to_bias = jax.jit(jax.grad(weigh, argnums=(0, 1)))(*arguments)
    assert not to_bias.any() and to_logits.any()


def test_weights_of_underflowing_sigmoids_stay_finite() -> None:
    choice = top_k_gating(DEEPSEEK, jnp.full((3, 16), -200.0), None)
    assert np.isfinite(choice.weights).all() and np.isfinite(choice.probs).all()


def losses(moe: Moe, logits: np.ndarray) -> tuple:
    compute = lambda x: routing_statistics(x, top_k_gating(moe, x, None), (), jnp.float32(0))
    return jax.jit(compute)(jnp.asarray(logits))


@pytest.mark.parametrize("name", KINDS)
def test_losses_are_their_formulas(name: str) -> None:
    moe = KINDS[name]
    logits = logits_of(moe).astype(np.float64)
    found = losses(moe, logits.astype(np.float32))
    gates = np.exp(logits) if moe.gate == "softmax" else 1 / (1 + np.exp(-logits))
    shares = gates / gates.sum(-1, keepdims=True)
    counts = np.zeros(moe.n_experts)
    for row in logits:
        for expert in choose(moe, row, None):
            counts[expert] += 1
    np.testing.assert_array_equal(found.load_E, counts)
    aux = moe.n_experts * np.sum(counts / len(logits) * shares.mean(0))
    assert float(found.aux_loss) == pytest.approx(aux, rel=1e-5)
    z = np.mean(np.log(np.exp(logits).sum(-1)) ** 2)
    assert float(found.z_loss) == pytest.approx(z, rel=1e-5)


def test_an_even_load_costs_k_and_one_expert_for_all_costs_more() -> None:
    """Every token near one pair of neighbours, each pair in turn; and all on the first pair."""
    pairs = np.eye(4).repeat(2, axis=1).astype(np.float32)
    assert float(losses(MIXTRAL, 9 * pairs).aux_loss) == pytest.approx(2.0, rel=1e-3)
    assert float(losses(MIXTRAL, 9 * pairs[[0, 0, 0, 0]]).aux_loss) > 7.9


def test_the_gradient_of_the_aux_loss_lowers_the_crowded_experts() -> None:
    logits = logits_of(MIXTRAL, 50) + np.float32(0.5) * np.arange(8, dtype=np.float32)

    def loss(shift_E: jax.Array) -> jax.Array:
        return losses(MIXTRAL, logits + shift_E).aux_loss

    gradient = jax.jit(jax.grad(loss))(jnp.zeros(8))
    load = losses(MIXTRAL, logits).load_E
    assert gradient[load.argmax()] > 0 > gradient[load.argmin()]


@given(st.lists(st.integers(0, 99), min_size=6, max_size=6), st.floats(1e-4, 1))
def test_the_bias_moves_against_the_load_by_its_rate(load: list[int], rate: float) -> None:
    moved = jax.jit(updated_selection_bias)(np.zeros((1, 6)), np.float32([load]), rate)
    moved = np.asarray(moved)[0]
    assert np.all(np.abs(moved[moved != 0]) == np.float32(rate))
    for number, bias in zip(load, moved, strict=True):
        gap = np.mean(load) - number
        assert abs(gap) < 1e-4 or np.sign(bias) == np.sign(gap)  # a float32 mean is not exact


def test_a_biased_load_becomes_even_by_the_bias_alone() -> None:
    """DeepSeek-V3's promise: no gradient, and after some steps no crowded expert."""
    moe = Moe(8, 2, gate="sigmoid", selection_bias=True, bias_update_rate=0.02)
    logits = logits_of(moe, 400) + np.float32(0.4) * np.arange(8, dtype=np.float32)
    bias_LE = np.zeros((1, 8), np.float32)
    skews = []
    load_of = jax.jit(
        lambda bias: (
            routing_statistics(logits, top_k_gating(moe, logits, bias), (), jnp.float32(0)).load_E
        )
    )
    update = jax.jit(updated_selection_bias)
    for _ in range(60):
        load = load_of(bias_LE[0])
        skews.append(float(load.max() / load.mean()))
        bias_LE = update(bias_LE, load[None], moe.bias_update_rate)
    assert skews[0] > 2 and skews[-1] < 1.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"experts_per_token": 9}, "experts_per_token=9 must lie between 1 and n_experts=8"),
        ({"experts_per_token": 0}, "experts_per_token=0"),
        ({"capacity_factor": 0.0}, "capacity_factor=0.0 must be a positive number"),
        ({"device_capacity_factor": 0.0}, "device_capacity_factor=0.0 must be a positive number"),
        ({"capacity_factor": 1.0, "device_capacity_factor": 2.0}, "set one of them to null"),
        ({"capacity_factor": -1.0}, "capacity_factor=-1.0"),
        ({"capacity_factor": float("nan")}, "capacity_factor=nan"),
        ({"capacity_factor": float("inf")}, "capacity_factor=inf"),
        ({"routed_scaling": 0.0}, "routed_scaling=0.0"),
        ({"aux_loss": -0.1}, "aux_loss=-0.1 must be at least 0"),
        ({"z_loss": float("nan")}, "z_loss=nan"),
        ({"bias_update_rate": 0.1}, "set selection_bias true"),
        ({"bias_update_rate": -0.1, "selection_bias": True}, "bias_update_rate=-0.1"),
        ({"n_groups": 3}, "n_experts=8 is not divisible by n_groups=3"),
        ({"n_groups": 0}, "n_groups=0"),
        ({"d_ff_expert": -64}, "d_ff_expert=-64"),
        ({"n_groups": 4, "groups_per_token": 5}, "between 1 and n_groups=4"),
        ({"n_groups": 8, "groups_per_token": 1}, "exceeds the 1 experts of groups_per_token=1"),
    ],
)
def test_settings_that_mean_nothing_are_named(changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(MIXTRAL, **changes)
