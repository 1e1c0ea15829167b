"""Products of rows with their groups' matrices, by every implementation, on one device."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.models.accounting.expert_buffers import tile_count, tile_size
from scaling.models.moe.grouped_matmul import grouped_matmul
from scaling.models.moe.triton_tiles import row_tiles

EXACT = jax.lax.Precision.HIGHEST
ROWS, INPUTS, OUTPUTS = 300, 32, 48


def by_hand(x, w, sizes, dy):
    """Product, gradient of rows and of matrices, group by group in float64."""
    x, w, dy = (np.asarray(a, np.float64) for a in (x, w, dy))
    y, dx, dw = np.zeros(dy.shape), np.zeros(x.shape), np.zeros(w.shape)
    for group, end in enumerate(np.cumsum(sizes)):
        own = slice(end - sizes[group], end)
        y[own], dx[own], dw[group] = x[own] @ w[group], dy[own] @ w[group].T, x[own].T @ dy[own]
    return y, dx, dw


@functools.partial(jax.jit, static_argnums=0)
def both_passes(implementation, x, w, sizes, dy):
    multiply = lambda x, w: grouped_matmul(x, w, sizes, implementation, precision=EXACT)
    y, backward = jax.vjp(multiply, x, w)
    return (y, *backward(dy))


def check(implementation, sizes) -> None:
    noise = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(noise.standard_normal(shape), jnp.float32)
    x, w = draw(ROWS, INPUTS), draw(len(sizes), INPUTS, OUTPUTS)
    dy, n = draw(ROWS, OUTPUTS), sum(sizes)
    found = both_passes(implementation, x, w, jnp.int32(sizes), dy)
    for own, true in zip(found, by_hand(x, w, sizes, dy), strict=True):
        used = slice(None) if own.ndim == 3 else slice(n)
        np.testing.assert_allclose(own[used], true[used], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("implementation", ["tiles", "ragged"])
@pytest.mark.parametrize(
    "sizes",
    [(75, 75, 75, 75), (10, 0, 200, 60), (0, 0, 300, 0), (0, 0, 0, 0), (1, 128, 129, 42)],
    ids=["even", "an empty group", "one group", "no rows", "around a tile"],
)
def test_rows_meet_the_matrix_of_their_group(implementation: str, sizes: tuple[int, ...]) -> None:
    check(implementation, sizes)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 75), min_size=4, max_size=4))
def test_any_sizes_give_the_same_products(sizes: list[int]) -> None:
    check("tiles", tuple(sizes))


@given(st.lists(st.integers(0, 40), min_size=6, max_size=6), st.sampled_from([1, 8, 16]))
def test_tiles_cover_each_group_once_in_order(sizes: list[int], tile: int) -> None:
    rows = 6 * 40 + 5  # the same for all: jax compiles for each shape
    group, first, end = (np.asarray(a) for a in row_tiles(jnp.int32(sizes), rows, tile))
    assert len(group) == tile_count(rows, len(sizes), tile)
    needed = first < end
    assert (np.diff(first) >= 0).all() and (first[~needed] == rows).all()
    covered = [
        (g, r)
        for g, a, b in zip(group[needed], first[needed], end[needed], strict=True)
        for r in range(a, min(a + tile, b))
    ]
    groups = [g for g, size in enumerate(sizes) for _ in range(size)]
    assert covered == list(zip(groups, range(sum(sizes)), strict=True))


def test_tiles_are_about_as_long_as_a_group() -> None:
    assert [tile_size(rows, 8) for rows in (1, 64, 65, 4096, 10**6)] == [8, 8, 16, 512, 512]
