"""RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450), computed in float32.

rms:    y = x / sqrt(mean(x^2) + eps) * scale
layer:  y = (x - mean(x)) / sqrt(var(x) + eps) * scale + bias
"""

import jax
import jax.numpy as jnp
from flax import nnx

from scaling.meshes.rules import Rules
from scaling.models.config import ModelConfig
from scaling.models.initializers import constant


class Norm(nnx.Module):
    """Normalises the last dimension. The scale is replicated: too small to be worth a gather."""

    def __init__(
        self, config: ModelConfig, rules: Rules, size: int, kind: str = "", eps: float = 0.0
    ):
        self.kind = kind or config.norm
        self.eps = eps or config.norm_eps
        self.scale = constant(rules, 1.0, (size,), (None,))
        has_bias = self.kind == "layernorm" and config.bias
        self.bias = constant(rules, 0.0, (size,), (None,)) if has_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., size] -> the same shape, format and sharding.

        Only `x` is kept for the backward pass; the float32 steps between are computed again.
        """
        return jax.checkpoint(self._normalize, prevent_cse=False)(x)

    def _normalize(self, x: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        if self.kind == "layernorm":
            y = y - jnp.mean(y, axis=-1, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + self.eps)
        y = y * self.scale[...]
        if self.bias is not None:
            y = y + self.bias[...]
        return y.astype(x.dtype)
