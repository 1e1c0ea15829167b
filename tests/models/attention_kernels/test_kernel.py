"""Attention in blocks is attention: parts of the keys, merged, and their gradients, added."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.models.attention_kernels import kernel
from scaling.models.attention_kernels.kernel import AttentionKernel, Mask, PartialAttention
from scaling.models.attention_kernels.reference import attention_scores, reference_attention
from tests.models.one_device import jit, numbers

KERNEL = AttentionKernel("xla", jax.lax.Precision.HIGHEST)
B, T, U, N, M, K, V = 2, 4, 6, 4, 2, 8, 6  # values shorter than keys, as of latent attention
WHOLE = Mask(offset=U - T)  # the queries are the last T of U tokens
merge = jit(kernel.merge)


def forward(q, k, v, mask):
    return jit(lambda *x: KERNEL.forward(*x, mask))(q, k, v)


def backward(q, k, v, whole, dout, mask):
    return jit(lambda *x: KERNEL.backward(*x, mask))(q, k, v, whole, dout)


def drawn(seed: int = 0) -> tuple[np.ndarray, ...]:
    """q, k, v and the gradient of the output."""
    shapes = (B, T, N, K), (B, U, M, K), (B, U, M, V), (B, T, N, V)
    return tuple(numbers(*shape, seed=4 * seed + i) for i, shape in enumerate(shapes))


def plain(q, k, v, mask=WHOLE):
    """jax's own attention, under the same mask written out; it takes values as long as keys."""
    distance = mask.offset + np.arange(T)[:, None] - np.arange(U)
    seen = (distance >= 0) & (distance < (mask.window or U))
    with jax.default_matmul_precision("highest"):
        longer = jnp.pad(v, [(0, 0)] * 3 + [(0, K - V)])
        return jax.nn.dot_product_attention(q, k, longer, mask=seen[None, None])[..., :V]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_one_block_is_plain_attention(window):
    q, k, v, _ = drawn()
    mask = Mask(WHOLE.offset, window)
    close(forward(q, k, v, mask).out_BTNV, plain(q, k, v, mask))


def in_two(q, k, v, at, window=None):
    """Attention to the keys before `at`, and to those from there."""
    offset = WHOLE.offset
    first = forward(q, k[:, :at], v[:, :at], Mask(offset, window))
    return first, forward(q, k[:, at:], v[:, at:], Mask(offset - at, window))


@pytest.mark.parametrize(("at", "window"), [(1, None), (3, None), (3, 2), (5, 4)])
def test_keys_split_anywhere_and_merged_are_all_keys(at, window):
    """Also where a query sees none of the keys of one part."""
    q, k, v, _ = drawn(at)
    first, second = in_two(q, k, v, at, window)
    for parts in ((first, second), (second, first)):
        close(merge(*parts).out_BTNV, plain(q, k, v, Mask(WHOLE.offset, window)))


def test_gradients_of_two_blocks_are_those_of_all_keys():
    q, k, v, dout = drawn()

    def with_gradients(q, k, v):
        out, back = jax.vjp(plain, q, k, v)
        return out, *back(dout)

    out, dq, dk, dv = jit(with_gradients)(q, k, v)
    at = 4
    whole = merge(*in_two(q, k, v, at))
    close(whole.out_BTNV, out)
    first = backward(q, k[:, :at], v[:, :at], whole, dout, WHOLE)
    second = backward(q, k[:, at:], v[:, at:], whole, dout, Mask(WHOLE.offset - at))
    close(first[0] + second[0], dq)
    close(np.concatenate([first[1], second[1]], 1), dk)
    close(np.concatenate([first[2], second[2]], 1), dv)


def test_a_query_without_keys_adds_nothing_and_is_no_nan():
    q, k, v, dout = drawn()
    hidden = Mask(offset=-U)
    nothing, something = forward(q, k, v, hidden), forward(q, k, v, None)
    close(merge(nothing, something).out_BTNV, something.out_BTNV)
    for gradient in backward(q, k, v, something, dout, hidden):
        assert not np.any(gradient)


def test_every_sequence_of_a_batch_may_have_its_own_mask():
    q, k, v, _ = drawn()
    both = forward(q, k, v, Mask(jnp.array([0, 2])))
    for row, offset in enumerate((0, 2)):
        alone = forward(q, k, v, Mask(offset))
        close(both.out_BTNV[row], alone.out_BTNV[row])


def test_merged_parts_may_be_far_apart_in_size():
    """exp of a score of 200 is no float32."""
    one = PartialAttention(jnp.ones((1, 1, 1, 1)), jnp.full((1, 1, 1), 200.0))
    two = PartialAttention(jnp.zeros((1, 1, 1, 1)), jnp.full((1, 1, 1), -200.0))
    merged = merge(one, two)
    assert float(merged.out_BTNV[0, 0, 0, 0]) == 1.0
    assert float(merged.lse_BTN[0, 0, 0]) == 200.0


def test_masks_that_flash_does_not_know_go_to_xla():
    kernel = AttentionKernel("cudnn", jax.lax.Precision.DEFAULT)
    has = lambda mask, segments=None, keys=8: kernel._flash(mask, segments, keys)
    assert has(None) and has(Mask()) and has(Mask(window=4))
    apart, segments = Mask(jnp.array([4]), window=4), (np.ones((1, 8)), np.ones((1, 8)))
    assert all(has(apart, x) and not has(apart, x, keys=7) for x in (None, segments))
    assert has(Mask(), None, keys=7) and not has(Mask(), segments, keys=7)


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("offset", [3, [3, 0]])
def test_flash_takes_other_masks_as_a_part_of_the_scores(monkeypatch, offset, documents):
    """cuDNN's kernels are replaced by ones that take `seen` as it would."""
    q, k, v, dout = (np.asarray(x, np.float32) for x in drawn())
    rng = np.random.default_rng(0)
    segments = tuple(rng.integers(1, 3, (B, n)) for n in (T, U)) if documents else None
    mask = Mask(jnp.array(offset), window=4)
    plain = jit(lambda: KERNEL.forward(q, k, v, mask, segments))()
    expected = *plain, *jit(lambda: KERNEL.backward(q, k, v, plain, dout, mask, segments))()

    def scores_of(self, q, k, mask, seen):
        return attention_scores(q, k, seen[:, None], self.precision)

    def stands_in(method, *arrays):
        *arrays, causal, window, seen = arrays
        assert not causal and window is None
        with monkeypatch.context() as patch:
            patch.setattr(AttentionKernel, "_scores", scores_of)
            return method(*arrays, None, seen)

    forwards, backwards = KERNEL.forward, KERNEL.backward
    monkeypatch.setattr(kernel, "flash_forward", lambda *x: stands_in(forwards, *x))
    monkeypatch.setattr(kernel, "flash_backward", lambda *x: stands_in(backwards, *x))
    flash = AttentionKernel("cudnn", jax.lax.Precision.HIGHEST)
    part = jit(lambda: flash.forward(q, k, v, mask, segments))()
    found = *part, *jit(lambda: flash.backward(q, k, v, plain, dout, mask, segments))()
    sees = plain.lse_BTN > -1e6  # one without a key counts for nothing
    close(found[0][sees], expected[0][sees])
    close(found[1][sees], expected[1][sees])
    for mine, theirs in zip(found[2:], expected[2:], strict=True):
        close(mine, theirs)


def test_the_gradients_of_capped_scores_are_those_of_attention_that_stores_them():
    q, k, v, dout = drawn()
    seen, precise = WHOLE.seen(T, U), jax.lax.Precision.HIGHEST
    stored = lambda q, k, v: reference_attention(q, k, v, seen, precise, softcap=0.7)
    capped = AttentionKernel("xla", precise, softcap=0.7)

    def both(q, k, v):
        part = capped.forward(q, k, v, WHOLE)
        out, back = jax.vjp(stored, q, k, v)
        return (part.out_BTNV, *capped.backward(q, k, v, part, dout, WHOLE)), (out, *back(dout))

    for found, expected in zip(*jit(both)(q, k, v), strict=True):
        close(found, expected)
