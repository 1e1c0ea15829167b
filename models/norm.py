"""RMSNorm (arXiv 1910.07467) and LayerNorm (arXiv 1607.06450), computed in float32.

rms:    y = x / sqrt(mean(x^2) + eps) * scale
layer:  y = (x - mean(x)) / sqrt(var(x) + eps) * scale + bias

With `norm_offset` (Gemma) 1 + scale takes the place of scale. A `divisor` divides the result
(Granite's logits, before the head).
"""

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from scaling.meshes.rules import Dims, Rules
from scaling.models.config import ModelConfig
from scaling.models.initializers import constant


class Norm(nnx.Module):
    """Normalises the last dimension, or the last two by a scale of both.

    The scale is replicated over what does not shard `dims`: too small to be worth a gather.
    """

    def __init__(
        self,
        config: ModelConfig,
        rules: Rules,
        size: int | tuple[int, int],
        kind: str = "",
        eps: float = 0.0,
        dims: Dims = (None,),
        divisor: float = 1.0,
    ):
        shape = size if isinstance(size, tuple) else (size,)
        self.kind, self.axes = kind or config.norm, tuple(range(-len(shape), 0))
        self.eps, self.offset = eps or config.norm_eps, config.norm_offset
        self.divisor = divisor
        self.scale = constant(rules, 0.0 if self.offset else 1.0, shape, dims)
        has_bias = self.kind == "layernorm" and config.bias
        self.bias = constant(rules, 0.0, shape, dims) if has_bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., *size] -> the same shape, format and sharding.

        Only `x` is kept for the backward pass; the float32 steps between are computed again.
        """
        return jax.checkpoint(self._normalize, prevent_cse=False)(x)

    def _normalize(self, x: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        if self.kind == "layernorm":
            y = y - jnp.mean(y, axis=self.axes, keepdims=True)
        y = y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=self.axes, keepdims=True) + self.eps)
        y = y * (1 + self.scale[...] if self.offset else self.scale[...])
        if self.bias is not None:
            y = y + self.bias[...]
        return (y if self.divisor == 1 else y / self.divisor).astype(x.dtype)


@functools.partial(jax.checkpoint, prevent_cse=False, static_argnums=1)
def unit_heads(x: jax.Array, eps: float) -> jax.Array:
    """x [..., K] over the root mean square of its last dimension, in float32; saves only x."""
    y = x.astype(jnp.float32)
    mean = jnp.mean(jnp.square(y), axis=-1, keepdims=True)
    return (y * jax.lax.rsqrt(mean + eps)).astype(x.dtype)
