"""Rotary positions (RoFormer, arXiv 2104.09864), in the half-split form of Llama and GPT-NeoX.

Channel pair (i, i + K/2) of a head is turned by the angle  position * theta^(-2i/K).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from models.config import ModelConfig, RopeScaling


def frequencies(config: ModelConfig) -> np.ndarray:
    """Angle per position of each channel pair: float64 [head_dim / 2]."""
    exponent = np.arange(0, config.head_dim, 2) / config.head_dim
    plain = config.rope_theta**-exponent
    return plain if config.rope_scaling is None else _stretched(plain, config.rope_scaling)


def rotate(x_BSNK: jax.Array, freqs: np.ndarray, positions: np.ndarray | None = None) -> jax.Array:
    """Queries or keys [B, S, N, K] turned by their positions: int [S], 0..S-1 if None."""
    if positions is None:
        positions = np.arange(x_BSNK.shape[1])
    angles = np.outer(positions, freqs)[None, :, None, :]  # [1, S, 1, K/2], exact in float64
    cos, sin = (f(angles).astype(np.float32) for f in (np.cos, np.sin))
    low, high = jnp.split(x_BSNK.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return turned.astype(x_BSNK.dtype)


def _stretched(freqs: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, a ramp between."""
    wavelength = 2 * math.pi / freqs
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    ramp = (scaling.original_max_positions / wavelength - low) / (high - low)
    ramp = np.clip(ramp, 0.0, 1.0)
    return (1 - ramp) * freqs / scaling.factor + ramp * freqs
