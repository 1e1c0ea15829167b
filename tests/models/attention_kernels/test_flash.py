"""cuDNN's kernel on blocks: it lowers as it should without a GPU, and computes the same on one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.attention_kernels import flash
from scaling.models.attention_kernels.flash import (
    flash_attention,
    flash_backward,
    flash_forward,
)
from scaling.models.attention_kernels.kernel import AttentionKernel, Mask, PartialAttention, merge
from scaling.models.attention_kernels.reference import causal_mask, reference_attention

B, T, N, M, K = 2, 128, 4, 2, 64
BF16_ROUNDING = 2e-2  # of values of about 1: a few units in the last place of bfloat16
FLASH = AttentionKernel("cudnn", jax.lax.Precision.DEFAULT)
PLAIN = AttentionKernel("xla", jax.lax.Precision.HIGHEST)


def shapes(sharding=None) -> list[jax.ShapeDtypeStruct]:
    """q, k, v, output (or its gradient)."""
    make = lambda heads: jax.ShapeDtypeStruct((B, T, heads, K), jnp.bfloat16, sharding=sharding)
    return [make(N), make(M), make(M), make(N)]


def lowered(function, *more, cluster: str = "dgx-h100", arguments=None) -> str:
    mesh = absent_mesh(MeshShape(data=8), catalog.load(cluster))
    specs = jax.P()
    mapped = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=specs, check_vma=False)
    sharding = jax.NamedSharding(mesh, jax.P())
    placed = [
        jax.ShapeDtypeStruct(m.shape, m.dtype, sharding=sharding)
        for m in (*(arguments or shapes()), *more)
    ]
    return jax.jit(mapped).lower(*placed).as_text()


@pytest.mark.deviceless
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 32)])
def test_forward_is_one_kernel_with_its_log_sum_exp_in_float32(causal, window):
    found = {}

    def forward(q, k, v, _):
        out, lse = flash_forward(q, k, v, causal, window)
        found.update(out=(out.shape, out.dtype), lse=(lse.shape, lse.dtype))
        return out, lse

    text = lowered(forward)
    assert text.count("__cudnn$fmhaSoftmax") == 1 and "Backward" not in text
    assert found == {"out": ((B, T, N, K), jnp.bfloat16), "lse": ((B, T, N), jnp.float32)}


@pytest.mark.deviceless
def test_backward_is_one_kernel_and_no_forward():
    def backward(q, k, v, out, lse):
        return flash_backward(q, k, v, (out, lse), out, False, None)

    text = lowered(backward, jax.ShapeDtypeStruct((B, T, N), jnp.float32))
    assert text.count("__cudnn$fmhaSoftmaxBackward") == 1
    assert text.count("__cudnn$fmha") == 1


@pytest.mark.deviceless
@pytest.mark.parametrize(
    ("cluster", "keys", "values"),
    [
        ("dgx-a100", 128, 128),
        ("dgx-h100", 192, 128),
        ("dgx-h100", 256, 256),
        ("dgx-b200", 192, 128),
    ],
)
def test_a_step_has_both_kernels_of_its_heads_for_gpus_that_are_not_here(cluster, keys, values):
    make = lambda heads, length: jax.ShapeDtypeStruct((B, T, heads, length), jnp.bfloat16)
    arguments = [make(N, keys), make(M, keys), make(M, values), make(N, values)]
    found = {}

    def both(q, k, v, dout):
        out, back = jax.vjp(lambda *x: flash_attention(None, *x), q, k, v)
        gradients = back(dout)
        found["shapes"] = [x.shape for x in (*gradients, out)]
        return gradients

    text = lowered(both, cluster=cluster, arguments=arguments)
    assert text.count("__cudnn$fmhaSoftmaxBackward") == 1 and text.count("__cudnn$fmha") == 2
    assert found["shapes"] == [x.shape for x in arguments]


def between_chunks(kernel, q, k, v, segments, dout=None, total=None):
    """A block under a mask that only the device knows; with `segments` in packed documents."""
    mask = Mask(jnp.zeros(B, jnp.int32), window=32)
    both = None if segments is None else (segments, segments)
    if dout is None:
        return kernel.forward(q, k, v, mask, both)
    return kernel.backward(q, k, v, total, dout, mask, both)


@pytest.mark.deviceless
@pytest.mark.parametrize("documents", [False, True])
def test_a_window_between_chunks_has_the_kernel_and_a_mask(documents):
    def forward(q, k, v, _, segments):
        return tuple(between_chunks(FLASH, q, k, v, segments if documents else None))

    text = lowered(forward, jax.ShapeDtypeStruct((B, T), jnp.int32))
    assert text.count("__cudnn$fmhaScaleBiasSoftmax") == text.count("__cudnn$fmha") == 1


@pytest.mark.gpu
@pytest.mark.parametrize("documents", [False, True])
def test_on_a_gpu_a_window_between_chunks_equals_xla(documents):
    q, k, v, dout = drawn()
    segments = jnp.repeat(jnp.array([[1, 2]] * B), T // 2, axis=1) if documents else None
    found, plain = (between_chunks(kernel, q, k, v, segments) for kernel in (FLASH, PLAIN))
    near(found.out_BTNV, plain.out_BTNV)
    total = PartialAttention(plain.out_BTNV.astype(q.dtype), plain.lse_BTN)
    given = q, k, v, segments, dout, total
    both = (between_chunks(kernel, *given) for kernel in (FLASH, PLAIN))
    for mine, theirs in zip(*both, strict=True):
        near(mine, theirs)


def test_the_backward_kernel_computes_no_gradient_of_a_mask():
    """cuDNN would sum it over all heads, [1, 1, T, T], and nobody reads it."""
    q, k, v, out = shapes()
    lse, seen = (jax.ShapeDtypeStruct(*x) for x in (((B, T, N), "float32"), ((1, 1, T, T), "bool")))
    backward = lambda q, k, v, out, lse, seen: flash_backward(
        q, k, v, (out, lse), out, True, None, seen
    )
    traced = jax.make_jaxpr(backward)(q, k, v, out, lse, seen)
    (call,) = [e for e in traced.eqns if "dot_product_attention" in e.primitive.name]
    assert [x.aval.shape for x in call.outvars] == [q.shape, k.shape, v.shape]


def test_a_jax_without_these_kernels_is_named(monkeypatch):
    from jax._src.cudnn import fused_attention_stablehlo

    flash._kernels.cache_clear()
    monkeypatch.delattr(fused_attention_stablehlo, "_dot_product_attention_bwd_p_wrapper")
    q, k, v, _ = drawn()
    with pytest.raises(InputError, match=f"jax {jax.__version__} .* --set attention=unfused"):
        flash_attention(None, q, k, v)
    flash._kernels.cache_clear()


def drawn() -> list[jax.Array]:
    keys = jax.random.split(jax.random.key(0), 4)
    return [
        jax.random.normal(key, shape.shape, shape.dtype)
        for key, shape in zip(keys, shapes(), strict=True)
    ]


def near(actual, expected):
    actual, expected = (np.asarray(x, np.float32) for x in (actual, expected))
    np.testing.assert_allclose(
        actual, expected, BF16_ROUNDING, BF16_ROUNDING * np.abs(expected).max()
    )


@pytest.mark.gpu
@pytest.mark.parametrize("mask", [None, Mask(), Mask(window=32)])
def test_on_a_gpu_a_block_and_its_log_sum_exp_equal_xla(mask):
    q, k, v, _ = drawn()
    flash, plain = FLASH.forward(q, k, v, mask), PLAIN.forward(q, k, v, mask)
    near(flash.out_BTNV, plain.out_BTNV)
    np.testing.assert_allclose(flash.lse_BTN, plain.lse_BTN, atol=1e-2)


@pytest.mark.gpu
def test_on_a_gpu_two_blocks_and_their_gradients_equal_all_keys_at_once():
    q, k, v, dout = drawn()
    half = T // 2
    first, second = (slice(None), slice(half)), (slice(None), slice(half, None))
    parts = [FLASH.forward(q, k[at], v[at], None) for at in (first, second)]
    whole = merge(*parts)
    expected = PLAIN.forward(q, k, v, None)
    near(whole.out_BTNV, expected.out_BTNV)
    rounded = PartialAttention(whole.out_BTNV.astype(q.dtype), whole.lse_BTN)
    found = [FLASH.backward(q, k[at], v[at], rounded, dout, None) for at in (first, second)]
    dq, dk, dv = PLAIN.backward(q, k, v, expected, dout, None)
    near(found[0][0].astype(jnp.float32) + found[1][0], dq)
    near(jnp.concatenate([found[0][1], found[1][1]], 1), dk)
    near(jnp.concatenate([found[0][2], found[1][2]], 1), dv)


def test_sinks_scale_what_the_kernel_returns(monkeypatch):
    """Results and all gradients are those of one more score; the kernels are XLA's here."""
    mask = Mask()
    forward = lambda q, k, v, causal, window, seen: PLAIN.forward(q, k, v, mask)
    backward = lambda q, k, v, total, dout, *_: PLAIN.backward(
        q, k, v, PartialAttention(*total), dout, mask
    )
    monkeypatch.setattr(flash, "flash_forward", forward)
    monkeypatch.setattr(flash, "flash_backward", backward)
    random = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(random.standard_normal(shape), jnp.float32)
    arrays = draw(B, 8, N, 4), draw(B, 8, M, 4), draw(B, 8, M, 4), draw(N)
    with_sinks = lambda q, k, v, sinks: flash_attention(None, q, k, v, None, sinks)
    exact = lambda q, k, v, sinks: reference_attention(
        q, k, v, causal_mask(8, 8, None), PLAIN.precision, sinks_N=sinks
    )
    dout = draw(B, 8, N, 4)
    found, expected = (jax.vjp(attend, *arrays) for attend in (with_sinks, exact))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(found[1](dout), expected[1](dout), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
