"""Buffers of exchanged tokens: every assignment has its own row, or is dropped by rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.accounting.expert_buffers import buffer_rows, capacity
from scaling.models.config import Moe
from scaling.models.moe.dispatch import (
    RoutingIndices,
    combine,
    dispatch,
    padded_indices,
    sorted_indices,
    weights_of_rows,
)

TOKENS, K, EXPERTS = 10, 2, 8
SEEDS = st.integers(0, 10**6)
# one shape each, so that nothing compiles twice
placed = jax.jit(padded_indices, static_argnums=(1, 2))
picked = jax.jit(sorted_indices, static_argnums=(1, 2))


def choices(seed: int) -> np.ndarray:
    """Experts [T, K] of some tokens, different within a token; crowded for odd seeds."""
    noise = np.random.default_rng(seed)
    weight = noise.random(EXPERTS) ** (4 if seed % 2 else 0)
    draw = lambda: noise.choice(EXPERTS, K, replace=False, p=weight / weight.sum())
    return np.array([draw() for _ in range(TOKENS)], np.int32)


@given(SEEDS, st.sampled_from([1, 2]))
def test_dropless_rows_hold_each_assignment_once_sorted_by_expert(seed: int, devices: int) -> None:
    experts_TK, local = choices(seed), EXPERTS // devices
    rows = buffer_rows(Moe(EXPERTS, K), TOKENS // devices, devices)
    held: list[int] = []
    for device in range(devices):  # TOKENS are those of all devices
        at, sizes = picked(experts_TK - device * local, local, rows)
        own = np.asarray(at.assignment_R)
        own, empty = own[: int(sizes.sum())], own[int(sizes.sum()) :]
        assert (empty == TOKENS * K).all() and int(at.kept) == len(own)
        of_rows = experts_TK.T.reshape(-1)[own] - device * local
        assert (np.bincount(of_rows, minlength=local) == sizes).all()
        assert (np.diff(of_rows) >= 0).all()
        held += list(own)
    assert sorted(held) == list(range(TOKENS * K))


@given(SEEDS, st.sampled_from([0, 3, 7, 12]))
def test_a_full_device_drops_later_choices_and_later_tokens(seed: int, rows: int) -> None:
    """Whichever of its experts they are for."""
    experts_TK = choices(seed)
    at, sizes = picked(experts_TK, EXPERTS // 2, rows)
    own = [a for a, e in enumerate(experts_TK.T.reshape(-1)) if e < EXPERTS // 2]
    held = np.asarray(at.assignment_R)
    assert sorted(held[held < TOKENS * K]) == own[:rows]
    assert int(at.kept) == int(sizes.sum()) == min(rows, len(own))


@given(SEEDS, st.sampled_from([0.3, 0.7, 1.0, 1.5]))
def test_without_room_later_choices_and_later_tokens_are_dropped(seed: int, factor: float) -> None:
    experts_TK = choices(seed)
    room = capacity(Moe(EXPERTS, K, capacity_factor=factor), TOKENS)
    at = placed(experts_TK, EXPERTS, room)
    kept = np.asarray(at.row_KT) < EXPERTS * room
    taken = np.zeros(EXPERTS, int)
    for choice in range(K):
        for token in range(TOKENS):
            expert = experts_TK[token, choice]
            assert kept[choice, token] == (taken[expert] < room)
            taken[expert] += 1
    assert int(at.kept) == np.minimum(taken, room).sum()


@jax.jit
def both_ways(x_TD: jax.Array, y_RD: jax.Array, at: RoutingIndices) -> tuple:
    """dispatch, its transpose, combine, its transpose."""
    rows, to_tokens = jax.vjp(lambda x: dispatch(x, at), x_TD)
    sums, to_rows = jax.vjp(lambda y: combine(y, at), y_RD)
    return rows, to_tokens(y_RD)[0], sums, to_rows(x_TD)[0]


@given(SEEDS, st.sampled_from([None, 0.7]))
def test_spread_and_collect_are_each_others_transposes(seed: int, factor: float | None) -> None:
    if factor is None:
        at, _ = picked(choices(seed), EXPERTS // 2, TOKENS * K)
    else:
        moe = Moe(EXPERTS, K, capacity_factor=factor)
        at = placed(choices(seed), EXPERTS, capacity(moe, TOKENS))
    noise = np.random.default_rng(0)
    x_TD = noise.standard_normal((TOKENS, 3)).astype(np.float32)
    y_RD = noise.standard_normal((at.assignment_R.size, 3)).astype(np.float32)
    rows, to_tokens, sums, to_rows = both_ways(x_TD, y_RD, at)
    assert np.vdot(rows, y_RD) == pytest.approx(np.vdot(x_TD, sums), rel=1e-4, abs=1e-4)
    np.testing.assert_array_equal(to_tokens, sums)
    np.testing.assert_array_equal(to_rows, rows)


def test_rows_carry_the_weight_of_their_assignment_and_empty_ones_none() -> None:
    experts_TK = jnp.int32([[0, 3], [3, 1]])
    weights_TK = jnp.float32([[0.6, 0.4], [0.7, 0.3]])
    found = lambda first: weights_of_rows(
        weights_TK, sorted_indices(experts_TK - first, 2, rows=4)[0]
    )
    # device 0: expert 0 of token 0, expert 1 of token 1; device 1: expert 3 of tokens 1 (its first
    # choice), then 0
    np.testing.assert_allclose(found(0), [0.6, 0.3, 0, 0])
    np.testing.assert_allclose(found(2), [0.7, 0.4, 0, 0])


def test_sums_of_bfloat16_rows_are_added_up_in_float32() -> None:
    k = 3
    at, _ = sorted_indices(jnp.int32([[0, 1, 2]]), 3, 3)
    rows = jnp.bfloat16([[256.0], [1.0], [1.0]])  # 256 + 1 is 256 in bfloat16
    assert combine(rows, at).tolist() == [[258.0]] and at.row_KT.shape == (k, 1)


def test_room_by_hand() -> None:
    """Mixtral, 4,096 tokens on a device, 8 devices: each of them may get every token once."""
    mixtral = Moe(8, 2)
    assert buffer_rows(mixtral, 4096, 8) == 8 * 4096 == 4 * 2 * 4096
    assert buffer_rows(mixtral, 4096, 1) == 2 * 4096
    deepseek = Moe(256, 8)
    assert buffer_rows(deepseek, 4096, 8) == 8 * 8 * 4096
    assert buffer_rows(deepseek, 4096, 64) == 64 * 4 * 4096
    # Twice an even load, or room for all where that is less.
    assert buffer_rows(Moe(256, 8, device_capacity_factor=2.0), 4096, 8) == 2 * 8 * 4096
    assert buffer_rows(Moe(256, 8, device_capacity_factor=2.0), 4096, 1) == 8 * 4096
    # 1.25 x 4096 x 2 / 8 = 1,280 rows for each expert, on any number of devices
    assert buffer_rows(Moe(8, 2, capacity_factor=1.25), 4096, 4) == 8 * 1280


@given(st.sampled_from([1, 2, 4]), st.integers(1, 99), st.integers(1, 4))
def test_dropless_room_is_enough_and_no_more_than_all_tokens_to_each(devices, tokens, k) -> None:
    rows = buffer_rows(Moe(8, k), tokens, devices)
    assert tokens * k <= rows <= devices * tokens * k
    assert rows == devices * tokens * min(k, 8 // devices)
    generous = buffer_rows(Moe(8, k, capacity_factor=8.0), tokens, devices)
    assert generous == 8 * tokens  # a token chooses an expert once
