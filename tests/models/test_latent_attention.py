"""Latent attention and YaRN against their formulas in numpy."""

import functools
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.models.attention_kernels.reference import causal_mask, reference_attention
from scaling.models.config import Mla, ModelConfig, RopeScaling, Yarn
from scaling.models.latent_attention import EPS, LatentAttention
from scaling.models.positions import (
    attention_factor,
    rotary_frequencies,
    yarn_score_scale,
)
from tests.models.one_device import FP32, jit, numbers, perturbed

pytestmark = pytest.mark.usefixtures("one_device")
MLA = Mla(12, 10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5)
YARN = Yarn(40.0, 4096, mscale=1.0, mscale_all_dim=1.0)  # DeepSeek-V3's config.json
CONFIG = ModelConfig(32, d_model=24, n_layers=2, n_heads=3, d_ff=40, mla=MLA)


def rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPS) * scale


def by_hand(attention: LatentAttention, x: np.ndarray) -> np.ndarray:
    """Token by token and head by head, as the paper's equations read."""
    config = attention.config
    mla, freqs, scale = config.mla, rotary_frequencies(config), attention_factor(config)
    take = lambda param: np.asarray(param[...], np.float64)

    def turned(pairs: np.ndarray, position: int) -> np.ndarray:
        half = len(pairs) // 2
        z = (pairs[:half] + 1j * pairs[half:]) * np.exp(1j * position * freqs) * scale
        return np.concatenate([z.real, z.imag])

    n, r, window = mla.qk_nope_head_dim, mla.qk_rope_head_dim, config.sliding_window or len(x)
    outputs = []
    for t, row in enumerate(x):
        keys, values, y = [], [], np.zeros(config.d_model)
        if mla.q_lora_rank is None:
            q_heads = np.einsum("d,dnk->nk", row, take(attention.query_DNK))
        else:
            latent = rms(row @ take(attention.query_a_DR), take(attention.query_a_norm.scale))
            q_heads = np.einsum("r,rnk->nk", latent, take(attention.query_b_RNK))
        for u in range(max(0, t - window + 1), t + 1):
            both = x[u] @ take(attention.kv_a_DR)
            c = rms(both[: mla.kv_lora_rank], take(attention.kv_a_norm.scale))
            kv = np.einsum("r,rnk->nk", c, take(attention.kv_b_RNK))
            shared = turned(both[mla.kv_lora_rank :], u)
            keys.append([np.concatenate([head[:n], shared]) for head in kv])
            values.append(kv[:, n:])
        for head in range(config.n_heads):
            q = np.concatenate([q_heads[head, :n], turned(q_heads[head, n:], t)])
            scores = (
                np.array([q @ k[head] for k in keys]) / math.sqrt(n + r) * yarn_score_scale(config)
            )
            p = np.exp(scores - scores.max())
            p /= p.sum()
            a = sum(weight * v[head] for weight, v in zip(p, values, strict=True))
            y += a @ take(attention.out_NVD)[head]
        outputs.append(y)
    return np.array(outputs)


@pytest.mark.parametrize(
    "change",
    [{}, {"mla": replace(MLA, q_lora_rank=None), "sliding_window": 3}, {"yarn": YARN}],
    ids=["compressed", "direct-window", "yarn"],
)
def test_latent_attention_is_its_formula(change: dict) -> None:
    config = replace(CONFIG, **change)
    attention = perturbed(jit(lambda: LatentAttention(config, FP32, jax.random.key(0)))())
    x = numbers(2, 7, 24)
    found = jit(lambda attention: attention(x))(attention)
    for sequence, expected in zip(found, (by_hand(attention, row) for row in x), strict=True):
        np.testing.assert_allclose(sequence, expected, rtol=2e-4, atol=2e-5)


def test_values_may_be_longer_or_shorter_than_keys() -> None:
    q, k, v = numbers(2, 5, 4, 6), numbers(2, 5, 2, 6, seed=1), numbers(2, 5, 2, 9, seed=2)
    attend = functools.partial(reference_attention, precision=jax.lax.Precision.HIGHEST)
    whole = attend(q, k, v, causal_mask(5, 5, None))
    assert whole.shape == (2, 5, 4, 9)
    parts = [attend(q, k, v[..., i : i + 3], causal_mask(5, 5, None)) for i in (0, 3, 6)]
    np.testing.assert_allclose(np.concatenate(parts, axis=-1), whole, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("window", [None, 1, 3])
def test_later_queries_see_what_they_would_see_among_all(window: int | None) -> None:
    expected = np.asarray(causal_mask(8, 8, window))
    seen = jit(lambda first: causal_mask(2, 8, window, first))
    for first in range(7):
        np.testing.assert_array_equal(seen(first), expected[first : first + 2])
    assert expected.sum(axis=1).tolist() == [min(t + 1, window or 8) for t in range(8)]


def test_yarn_follows_the_paper_case_by_case() -> None:
    """Pairs are told apart by how often they turn within the original sequence (section 3.2).

    With `truncate` the ramp begins and ends at whole pairs, so only far from its ends do both
    tellings agree exactly.
    """
    config = ModelConfig(32, 128, 1, 1, 32, yarn=Yarn(16.0, 4096, truncate=False))
    plain = rotary_frequencies(replace(config, yarn=None))
    regions = set()
    for i, (before, ours) in enumerate(zip(plain, rotary_frequencies(config), strict=True)):
        turns = 4096 * before / (2 * math.pi)
        ends = [64 * math.log(4096 / (b * 2 * math.pi)) / math.log(10_000) for b in (32, 1)]
        if turns >= 32:
            expected, region = before, "kept"
        elif turns <= 1:
            expected, region = before / 16, "stretched"
        else:
            share = (i - ends[0]) / (ends[1] - ends[0])
            expected, region = share * before / 16 + (1 - share) * before, "between"
        regions.add(region)
        assert ours == pytest.approx(expected, rel=1e-12)
    assert regions == {"kept", "stretched", "between"}


@given(
    st.floats(1.0, 1000.0),
    st.integers(64, 10**6),
    st.booleans(),
    st.sampled_from([1e2, 1e4, 5e5]),
)
def test_yarn_only_lengthens_and_never_beyond_its_factor(
    factor: float, original: int, truncate: bool, theta: float
) -> None:
    config = ModelConfig(32, 64, 1, 1, 32, rope_theta=theta)
    stretched = rotary_frequencies(replace(config, yarn=Yarn(factor, original, truncate=truncate)))
    plain = rotary_frequencies(config)
    assert (stretched <= plain * (1 + 1e-12)).all()
    assert (stretched >= plain / factor * (1 - 1e-12)).all()
    assert (np.diff(stretched) < 0).all()


def test_yarn_scales_rotated_channels_or_the_scores_of_latent_attention() -> None:
    growth = 0.1 * math.log(40) + 1
    assert attention_factor(replace(CONFIG, yarn=YARN)) == 1.0
    assert yarn_score_scale(replace(CONFIG, yarn=YARN)) == pytest.approx(growth**2)
    plain = replace(CONFIG, mla=None, yarn=Yarn(40.0, 4096))
    assert (attention_factor(plain), yarn_score_scale(plain)) == (pytest.approx(growth), 1.0)
    assert attention_factor(replace(plain, yarn=Yarn(40.0, 4096, attention_factor=0.7))) == 0.7
    assert (attention_factor(CONFIG), yarn_score_scale(CONFIG)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Yarn(0.5, 4096), "factor=0.5 must be at least 1"),
        (lambda: Yarn(4.0, 0), "original_max_positions=0"),
        (lambda: Yarn(4.0, 9, beta_fast=1.0), "beta_slow=1.0 must be positive and below"),
        (lambda: Yarn(4.0, 9, attention_factor=0.0), "attention_factor=0.0 must be a positive"),
        (lambda: Yarn(4.0, 9, mscale=-1.0), "mscale=-1.0"),
        (
            lambda: replace(CONFIG, yarn=YARN, rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192)),
            "either rope_scaling or yarn",
        ),
        (lambda: replace(CONFIG, yarn=YARN, rope_theta=1.0), "rope_theta above 1"),
    ],
)
def test_a_yarn_that_means_nothing_is_refused(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_rank_of_queries_below_1_is_refused() -> None:
    with pytest.raises(InputError, match="q_lora_rank=-8 must be at least 1"):
        replace(MLA, q_lora_rank=-8)
