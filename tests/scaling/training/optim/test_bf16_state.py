"""A state in bf16: half the bytes, steps computed in float32, right in the mean."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.training.optim.optimizer import stochastic_round, store_state_in_bf16

PARAMS = {"matrix": jnp.linspace(-1, 1, 64).reshape(8, 8), "scale": jnp.ones(8)}


def averaged(seed: int | None, steps: int, keep: float = 0.999) -> np.ndarray:
    """The mean of ones as `keep` forgets, after some steps."""
    made = store_state_in_bf16(optax.ema(keep, debias=False), seed)
    params = jnp.zeros(4096)
    state = made.init(params)
    update = jax.jit(made.update)
    for _ in range(steps):
        _, state = update(jnp.ones_like(params), state)
    return np.asarray(optax.tree.get(state, "ema"), np.float32)


@pytest.mark.parametrize("seed", [None, 3])
def test_arrays_are_bf16_and_counters_whole(seed: int | None) -> None:
    made = store_state_in_bf16(optax.adamw(1e-3), seed)
    state = made.init(PARAMS)
    _, after = made.update(PARAMS, state, PARAMS)
    for tree in (state, after):
        assert {leaf.dtype.name for leaf in jax.tree.leaves(tree)} == {"bfloat16", "int32"}
    assert jax.tree.structure(state) == jax.tree.structure(after)


def test_the_first_step_is_that_of_float32_because_it_computes_in_float32() -> None:
    plain, stored = optax.adamw(1e-3), store_state_in_bf16(optax.adamw(1e-3), None)
    expected, _ = plain.update(PARAMS, plain.init(PARAMS), PARAMS)
    found, _ = stored.update(PARAMS, stored.init(PARAMS), PARAMS)
    for name, update in found.items():
        assert update.dtype == jnp.float32
        np.testing.assert_array_equal(update, expected[name])


def test_rounding_to_nearest_stops_a_slow_mean_and_stochastic_rounding_does_not() -> None:
    expected = 1 - 0.999**600
    nearest, random = averaged(None, 600), averaged(0, 600)
    assert nearest.max() < 0.8 * expected  # it stands still
    assert random.mean() == pytest.approx(expected, rel=0.01)


@given(st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False), st.integers(0, 100))
def test_a_number_is_rounded_to_one_of_its_two_neighbours(value: float, seed: int) -> None:
    x = jnp.full(64, value, jnp.float32)
    rounded = np.asarray(stochastic_round(x, jax.random.key(seed)), np.float32)
    below = np.asarray(np.float32(value)).view(np.uint32) >> 16 << 16
    neighbours = {float(np.uint32(b).view(np.float32)) for b in (below, below + (1 << 16))}
    exact = float(np.uint32(below).view(np.float32)) == float(np.float32(value))
    assert set(rounded.tolist()) <= ({float(np.float32(value))} if exact else neighbours)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_stays_so(value: float) -> None:
    rounded = stochastic_round(jnp.full(16, value, jnp.float32), jax.random.key(0))
    np.testing.assert_array_equal(np.asarray(rounded, np.float32), np.full(16, value, np.float32))


def test_odds_are_those_of_the_distance() -> None:
    x = jnp.full(20_000, 1 + 0.25 / 128, jnp.float32)  # a quarter of the way to the next bf16
    up = np.asarray(stochastic_round(x, jax.random.key(1)), np.float32) > 1
    assert up.mean() == pytest.approx(0.25, abs=0.02)
