"""Rotary positions (RoFormer, arXiv 2104.09864), in the half-split form of Llama and GPT-NeoX.

Channel pair (i, i + R/2) of a head is rotated by the angle  position * theta^(-2i/R), where R are
the rotated channels: all of a head, or its first (`ModelConfig.rotated`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.config import ModelConfig
from scaling.models.execution import spec_of
from scaling.models.norm import unit_heads
from scaling.models.rope import RopeScaling, Yarn

Rotation = Callable[..., jax.Array]  # of x [B, S, N, K], and whether these are queries

YARN_GROWTH = 0.1  # of the scale per e-fold of the factor: arXiv 2309.00071, equation 22
LEAST_RAMP = 0.001  # keeps 0 / 0 away where the ramp begins and ends at the same pair


def rotary_frequencies(config: ModelConfig, longest: int = 0) -> np.ndarray:
    """Angle per position of each rotated channel pair: float64 [rotated channels / 2].

    `longest` is the number of positions, by which LongRoPE chooses its factors.
    """
    channels = config.rotated_channels
    exponent = np.arange(0, channels, 2) / channels
    plain = config.rope_theta**-exponent / config.rope_factor
    if config.yarn is not None:
        return _yarn(plain, config.rope_theta, config.yarn)
    if (long := config.longrope) is not None:
        is_long = longest > long.original_max_positions
        return plain / np.array(long.long_factor if is_long else long.short_factor)
    return plain if config.rope_scaling is None else _llama3_scaling(plain, config.rope_scaling)


def attention_factor(config: ModelConfig) -> float:
    """The factor of rotated queries and keys: 1 except for YaRN and LongRoPE."""
    if (long := config.longrope) is not None:  # arXiv 2402.13753, appendix; Hugging Face's words
        growth = math.log(long.factor) / math.log(max(long.original_max_positions, 2))
        return long.attention_factor or math.sqrt(1 + growth)
    yarn = config.yarn
    if yarn is None:
        return 1.0
    if yarn.attention_factor is not None:
        return yarn.attention_factor
    if yarn.mscale and yarn.mscale_all_dim:
        return _yarn_mscale(yarn.factor, yarn.mscale) / _yarn_mscale(
            yarn.factor, yarn.mscale_all_dim
        )
    return _yarn_mscale(yarn.factor, 1.0)


def yarn_score_scale(config: ModelConfig) -> float:
    """The factor of latent attention's scores, beside 1 / sqrt(head): 1 except for YaRN.

    DeepSeek-V3 (its inference code and Hugging Face's) scales all channels there, rotated or not.
    """
    yarn = config.yarn
    if config.mla is None or yarn is None or not yarn.mscale_all_dim:
        return 1.0
    return _yarn_mscale(yarn.factor, yarn.mscale_all_dim) ** 2


def rotation(config: ModelConfig, positions: np.ndarray) -> Rotation:
    """How queries or keys [B, S, N, K] take in their `positions`, int [S] (`_placing`)."""
    if config.positions == "rope":
        return _placing(config, _cos_sin(config, positions))
    return _placing(config, temperature_BS=_temperature(config, positions[None]))


def rotation_at(config: ModelConfig, positions_BS: jax.Array, most: int) -> Rotation:
    """As `rotation`, at positions of each token that are known when the step runs, below `most`."""
    if config.positions != "rope":
        return _placing(config, temperature_BS=_temperature(config, positions_BS))
    tables = _cos_sin(config, np.arange(most))

    def rotate(x_BSNK: jax.Array, is_query: bool = False) -> jax.Array:
        batch, sequence = spec_of(x_BSNK)[:2]
        at_BS = reshard(positions_BS, P(batch, sequence))
        out = P(batch, sequence, None, None)
        rows = [jnp.asarray(table[0]).at[at_BS].get(out_sharding=out) for table in tables]
        return _placing(config, rows)(x_BSNK, is_query)

    return rotate


def _placing(
    config: ModelConfig, tables: Sequence[Any] = (), temperature_BS: Any = None
) -> Rotation:
    """The rotation by cosines and sines, and the norm after it; without tables the temperature of
    queries, or nothing."""

    def placed(x_BSNK: jax.Array, is_query: bool = False) -> jax.Array:
        if tables:
            x_BSNK = _rotate(x_BSNK, *tables)
            return unit_heads(x_BSNK, config.norm_eps) if config.unit_heads else x_BSNK
        if temperature_BS is None or not is_query:
            return x_BSNK
        batch, sequence = spec_of(x_BSNK)[:2]
        whole = temperature_BS.shape[0] == 1
        factor_BS = reshard(jnp.asarray(temperature_BS), P(None if whole else batch, sequence))
        return (x_BSNK * factor_BS[:, :, None, None]).astype(x_BSNK.dtype)

    return placed


def _temperature(config: ModelConfig, positions_BS: Any) -> Any:
    """The factor of queries by their positions, float32; None without one (`ModelConfig`)."""
    if not config.temperature:
        return None
    lib: Any = np if isinstance(positions_BS, np.ndarray) else jnp
    passed = lib.floor((positions_BS.astype(np.float32) + 1) / config.temperature_floor)
    return (1 + config.temperature * lib.log1p(passed)).astype(np.float32)


def _cos_sin(config: ModelConfig, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines, float32 [1, S, 1, R/2], scaled, of angles exact in float64."""
    frequencies = rotary_frequencies(config, len(positions))
    angles = np.outer(positions, frequencies)[None, :, None, :]
    factor = attention_factor(config)
    cos, sin = ((factor * f(angles)).astype(np.float32) for f in (np.cos, np.sin))
    return cos, sin


def _rotate(x_BSNK: jax.Array, cos: Any, sin: Any) -> jax.Array:
    half = cos.shape[-1]
    ends = [half] if 2 * half == x_BSNK.shape[-1] else [half, 2 * half]
    low, high, *rest = jnp.split(x_BSNK.astype(jnp.float32), ends, axis=-1)
    rotated = jnp.concatenate([low * cos - high * sin, high * cos + low * sin, *rest], axis=-1)
    return rotated.astype(x_BSNK.dtype)


def _llama3_scaling(freqs: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, a ramp between."""
    wavelength = 2 * math.pi / freqs
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    ramp = (scaling.original_max_positions / wavelength - low) / (high - low or LEAST_RAMP)
    ramp = np.clip(ramp, 0.0, 1.0)
    return (1 - ramp) * freqs / scaling.factor + ramp * freqs


def _yarn(freqs: np.ndarray, theta: float, yarn: Yarn) -> np.ndarray:
    """Likewise, with a ramp along the number of the pair, not along its wavelength."""
    pairs = len(freqs)

    def pair_with(turns: float) -> float:
        """Number of the pair that turns so often within the original sequence."""
        wavelength = yarn.original_max_positions / turns / (2 * math.pi)
        return pairs * math.log(wavelength) / math.log(theta)

    first, last = pair_with(yarn.beta_fast), pair_with(yarn.beta_slow)
    if yarn.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, 2 * pairs - 1)
    ramp = (np.arange(pairs) - first) / (last - first or LEAST_RAMP)
    ramp = np.clip(ramp, 0.0, 1.0)
    return ramp * freqs / yarn.factor + (1 - ramp) * freqs


def _yarn_mscale(factor: float, share: float) -> float:
    """YaRN's scale of attention for sequences longer by `factor` (0.1 share ln(factor) + 1)."""
    return YARN_GROWTH * share * math.log(factor) + 1.0
