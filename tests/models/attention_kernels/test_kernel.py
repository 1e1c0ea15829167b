"""Attention in blocks is attention: parts of the keys, merged, and their gradients, added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.models.attention_kernels.kernel import AttentionKernel, Mask, PartialAttention, merge

KERNEL = AttentionKernel("xla", jax.lax.Precision.HIGHEST)
B, T, U, N, M, K = 2, 4, 6, 4, 2, 8
WHOLE = Mask(offset=U - T)  # the queries are the last T of U tokens


def drawn(seed: int = 0) -> tuple[jax.Array, ...]:
    """q, k, v and the gradient of the output."""
    shapes = (B, T, N, K), (B, U, M, K), (B, U, M, K), (B, T, N, K)
    keys = jax.random.split(jax.random.key(seed), 4)
    return tuple(jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))


def plain(q, k, v, mask=WHOLE):
    """jax's own attention, under the same mask written out."""
    distance = mask.offset + jnp.arange(T)[:, None] - jnp.arange(U)
    seen = (distance >= 0) & (distance < (mask.window or U))
    with jax.default_matmul_precision("highest"):
        return jax.nn.dot_product_attention(q, k, v, mask=seen[None, None])


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_one_block_is_plain_attention(window):
    q, k, v, _ = drawn()
    mask = Mask(WHOLE.offset, window)
    close(KERNEL.forward(q, k, v, mask).out_BTNK, plain(q, k, v, mask))


def in_two(q, k, v, at, window=None):
    """Attention to the keys before `at`, and to those from there."""
    offset = WHOLE.offset
    first = KERNEL.forward(q, k[:, :at], v[:, :at], Mask(offset, window))
    return first, KERNEL.forward(q, k[:, at:], v[:, at:], Mask(offset - at, window))


@pytest.mark.parametrize(("at", "window"), [(1, None), (3, None), (3, 2), (5, 4)])
def test_keys_split_anywhere_and_merged_are_all_keys(at, window):
    """Also where a query sees none of the keys of one part."""
    q, k, v, _ = drawn(at)
    first, second = in_two(q, k, v, at, window)
    for parts in ((first, second), (second, first)):
        close(merge(*parts).out_BTNK, plain(q, k, v, Mask(WHOLE.offset, window)))


def test_gradients_of_two_blocks_are_those_of_all_keys():
    q, k, v, dout = drawn()
    out, back = jax.vjp(plain, q, k, v)
    dq, dk, dv = back(dout)
    at = 4
    whole = merge(*in_two(q, k, v, at))
    close(whole.out_BTNK, out)
    first = KERNEL.backward(q, k[:, :at], v[:, :at], whole, dout, WHOLE)
    second = KERNEL.backward(q, k[:, at:], v[:, at:], whole, dout, Mask(WHOLE.offset - at))
    close(first[0] + second[0], dq)
    close(jnp.concatenate([first[1], second[1]], 1), dk)
    close(jnp.concatenate([first[2], second[2]], 1), dv)


def test_a_query_without_keys_adds_nothing_and_is_no_nan():
    q, k, v, dout = drawn()
    hidden = Mask(offset=-U)
    nothing, something = KERNEL.forward(q, k, v, hidden), KERNEL.forward(q, k, v, None)
    close(merge(nothing, something).out_BTNK, something.out_BTNK)
    for gradient in KERNEL.backward(q, k, v, something, dout, hidden):
        assert not np.any(gradient)


def test_every_sequence_of_a_batch_may_have_its_own_mask():
    q, k, v, _ = drawn()
    both = KERNEL.forward(q, k, v, Mask(jnp.array([0, 2])))
    for row, offset in enumerate((0, 2)):
        alone = KERNEL.forward(q, k, v, Mask(offset))
        close(both.out_BTNK[row], alone.out_BTNK[row])


def test_merged_parts_may_be_far_apart_in_size():
    """exp of a score of 200 is no float32."""
    one = PartialAttention(jnp.ones((1, 1, 1, 1)), jnp.full((1, 1, 1), 200.0))
    two = PartialAttention(jnp.zeros((1, 1, 1, 1)), jnp.full((1, 1, 1), -200.0))
    merged = merge(one, two)
    assert float(merged.out_BTNK[0, 0, 0, 0]) == 1.0
    assert float(merged.lse_BTN[0, 0, 0]) == 200.0


def test_masks_that_flash_does_not_know_go_to_xla():
    kernel = AttentionKernel("cudnn", jax.lax.Precision.DEFAULT)
    assert kernel._flash(None) and kernel._flash(Mask()) and kernel._flash(Mask(window=4))
    assert not kernel._flash(Mask(jnp.array([4]), window=4))
