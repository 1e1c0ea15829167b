"""Norms, positions, MLP, attention, embedding and loss, each against its formula in numpy."""

import functools
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.attention import Attention, ScoreRules, attend
from scaling.models.attention_kernels.reference import reference_attention
from scaling.models.config import ModelConfig, RopeScaling
from scaling.models.documents import documents_of
from scaling.models.head import cross_entropy
from scaling.models.mlp import Mlp
from scaling.models.norm import Norm
from scaling.models.positions import rotary_frequencies, rotation
from tests.models.one_device import FP32, jit, numbers, perturbed

# Dims: B batch, S sequence, D model, N query heads, M key/value heads, K head dim, V vocabulary

pytestmark = pytest.mark.usefixtures("one_device")
CONFIG = ModelConfig(vocab_size=32, d_model=24, n_layers=2, n_heads=4, n_kv_heads=2, d_ff=40)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["rmsnorm", "layernorm"])
def test_a_norm_is_its_formula(kind: str, bias: bool) -> None:
    config = replace(CONFIG, norm=kind, bias=bias, norm_eps=0.1)
    norm, x = perturbed(Norm(config, FP32.rules, 24)), 3 + numbers(2, 5, 24)
    centred = x - x.mean(-1, keepdims=True) if kind == "layernorm" else x
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.1) * norm.scale[...]
    if bias and kind == "layernorm":
        expected = expected + norm.bias[...]
    else:
        assert norm.bias is None
    np.testing.assert_allclose(norm(x), expected, rtol=1e-5, atol=1e-6)


def test_a_norm_computes_in_float32_and_keeps_the_format_of_its_input() -> None:
    x = jnp.asarray(300 * numbers(2, 24), jnp.float16)  # squares overflow in float16
    y = Norm(CONFIG, FP32.rules, 24)(x)
    assert y.dtype == jnp.float16 and bool(jnp.isfinite(y).all())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["swiglu", "gelu", "relu"])
def test_an_mlp_is_its_formula(kind: str, bias: bool) -> None:
    mlp = perturbed(Mlp(replace(CONFIG, mlp=kind, bias=bias), FP32, jax.random.key(0)))
    x = numbers(2, 5, 24)
    add = lambda y, b: y + np.asarray(b[...]) if bias else y
    up = add(x @ np.asarray(mlp.up_DF[...]), mlp.up_bias_F)
    if kind == "swiglu":
        gate = add(x @ np.asarray(mlp.gate_DF[...]), mlp.gate_bias_F)
        hidden = gate / (1 + np.exp(-gate)) * up
    elif kind == "gelu":
        hidden = up / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (up + 0.044715 * up**3)))
    else:
        hidden = np.maximum(up, 0)
    expected = add(hidden @ np.asarray(mlp.down_FD[...]), mlp.down_bias_D)
    np.testing.assert_allclose(jit(lambda mlp: mlp(x))(mlp), expected, rtol=1e-4, atol=1e-5)


def test_attention_is_its_formula_with_a_window_and_grouped_heads() -> None:
    q, k, v = numbers(2, 7, 4, 6), numbers(2, 7, 2, 6, seed=1), numbers(2, 7, 2, 6, seed=2)
    k_all, v_all = np.repeat(k, 2, axis=2), np.repeat(v, 2, axis=2)  # query heads in pairs
    scores = np.einsum("bsnk,btnk->bnst", q, k_all) / math.sqrt(6)
    ago = np.arange(7)[:, None] - np.arange(7)[None, :]
    for window in (None, 1, 3):
        seen = (ago >= 0) & (ago < (window or math.inf))
        weights = np.where(seen, np.exp(scores), 0)
        weights = weights / weights.sum(-1, keepdims=True)
        expected = np.einsum("bnst,btnk->bsnk", weights, v_all)
        core = functools.partial(attend, execution=FP32, rules=ScoreRules(window))
        np.testing.assert_allclose(jit(core)(q, k, v), expected, rtol=1e-4, atol=1e-5)


def test_qk_norm_makes_attention_ignore_the_scale_of_queries_and_keys() -> None:
    attention = Attention(replace(CONFIG, qk_norm=True, norm_eps=1e-12), FP32, jax.random.key(0))
    x = numbers(2, 9, 24)
    apply = jit(lambda attention: attention(x))
    before = apply(attention)
    attention.query_DNK = attention.query_DNK.replace(7 * attention.query_DNK[...])
    np.testing.assert_allclose(apply(attention), before, rtol=1e-4, atol=1e-6)
    attention.key_norm.scale = attention.key_norm.scale.replace(jnp.linspace(1, 9, CONFIG.head_dim))
    assert np.abs(apply(attention) - before).max() > 1e-4


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 20))
def test_rotary_scores_depend_on_the_distance_only(first: int, second: int, shift: int) -> None:
    rotate = rotation(CONFIG, np.arange(41))
    q, k = (np.tile(numbers(1, 1, 1, 6, seed=seed), (1, 41, 1, 1)) for seed in (1, 2))
    q, k = np.asarray(rotate(q))[0, :, 0], np.asarray(rotate(k))[0, :, 0]
    score = q[first] @ k[second]
    np.testing.assert_allclose(q[first + shift] @ k[second + shift], score, rtol=1e-4, atol=1e-5)


def test_a_rotation_turns_each_pair_of_channels_by_its_angle() -> None:
    x = numbers(1, 11, 2, 6)
    turned = np.asarray(rotation(replace(CONFIG, rope_theta=50.0), np.arange(11))(x))
    angles = np.arange(11)[:, None] * 50.0 ** (-np.arange(3) / 3)
    pairs = (x[..., :3] + 1j * x[..., 3:]) * np.exp(1j * angles)[None, :, None]
    np.testing.assert_allclose(turned[..., :3], pairs.real, atol=1e-5)
    np.testing.assert_allclose(turned[..., 3:], pairs.imag, atol=1e-5)


def test_positions_are_exact_far_into_a_sequence() -> None:
    """float32 angles would be wrong by up to 0.004 rad at position 100,000."""
    x = np.zeros((1, 100_001, 1, 6), np.float32)
    x[..., 0] = 1
    last = np.asarray(rotation(CONFIG, np.arange(100_001))(x))[0, -1, 0]
    angle = math.fmod(100_000.0, 2 * math.pi)
    np.testing.assert_allclose([last[0], last[3]], [math.cos(angle), math.sin(angle)], atol=1e-6)


def test_stretched_wavelengths_follow_llama_3() -> None:
    """Case by case as the paper tells it, where the code has one clipped ramp."""
    config = ModelConfig(32, 128, 1, 1, 32, rope_theta=500_000.0)
    stretched = rotary_frequencies(replace(config, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192)))
    regions = set()
    for plain, ours in zip(rotary_frequencies(config), stretched, strict=True):
        turns = 8192 * plain / (2 * math.pi)  # in the original context
        if turns > 4:
            expected, region = plain, "kept"
        elif turns < 1:
            expected, region = plain / 8, "stretched"
        else:
            smooth = (turns - 1) / (4 - 1)
            expected, region = (1 - smooth) * plain / 8 + smooth * plain, "between"
        regions.add(region)
        assert ours == pytest.approx(expected, rel=1e-12)
    assert regions == {"kept", "stretched", "between"}


def test_cross_entropy_equals_optax() -> None:
    logits, targets = 5 * numbers(3, 7, 32), np.arange(21).reshape(3, 7) % 32
    each = jit(optax.softmax_cross_entropy_with_integer_labels)(logits, targets)
    np.testing.assert_allclose(jit(cross_entropy)(logits, targets)[0], each.mean(), rtol=1e-6)


def test_cross_entropy_survives_huge_logits() -> None:
    logits = jnp.asarray([[[1e4, 0.0, -1e4]]])
    value, gradient = jit(jax.value_and_grad(cross_entropy, has_aux=True))(
        logits, jnp.asarray([[1]])
    )
    assert value[0] == 1e4
    np.testing.assert_allclose(gradient, [[[1, -1, 0]]])


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_position_sees_its_chunk_alone(is_packed: bool) -> None:
    """Of a sequence that is no whole number of chunks; in documents they begin with each."""
    q, k, v = numbers(2, 10, 4, 6), numbers(2, 10, 2, 6, seed=1), numbers(2, 10, 2, 6, seed=2)
    segments_BS = np.repeat([[1] * 3 + [2] * 6 + [0]], 2, axis=0) if is_packed else None
    documents = None if segments_BS is None else documents_of(jnp.asarray(segments_BS))
    found = attend(q, k, v, FP32, ScoreRules(chunk=4), documents)
    chunk = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 3] if is_packed else np.arange(10) // 4)
    mask = np.tril(chunk[:, None] == chunk)
    expected = reference_attention(q, k, v, jnp.asarray(mask), FP32.precision)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_queries_that_nothing_rotates_are_tempered_by_their_positions() -> None:
    """arXiv 2501.19399 as Llama 4 has it; keys, and rotated queries, are not."""
    config = replace(CONFIG, temperature=0.5, temperature_floor=3)
    x, positions = numbers(1, 8, 4, 6), np.arange(8)
    place = rotation(replace(config, positions="none"), positions)
    expected = x * (1 + 0.5 * np.log(1 + (positions + 1) // 3))[None, :, None, None]
    np.testing.assert_allclose(place(x, is_query=True), expected, rtol=1e-6)
    assert place(x) is x
    np.testing.assert_array_equal(
        rotation(config, positions)(x, True), rotation(CONFIG, positions)(x)
    )


def test_unit_heads_are_rotated_and_then_divided_by_their_root_mean_square() -> None:
    x = numbers(1, 8, 4, 6)
    y = np.asarray(rotation(replace(CONFIG, unit_heads=True), np.arange(8))(x))
    np.testing.assert_allclose(np.square(y).mean(axis=-1), 1, rtol=1e-3)
