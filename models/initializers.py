"""Making parameters: random numbers of the right scale, born with their sharding."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from scaling.meshes.rules import Rules
from scaling.models.config import ModelConfig

INIT_STD = (
    0.02  # GPT-2 (Radford et al. 2019) and Llama: normal(0, 0.02) for matrices and embeddings
)


def matrix(
    rules: Rules,
    key: jax.Array,
    shape: tuple[int, ...],
    dims: tuple[str | None, ...],
    std: float = INIT_STD,
) -> nnx.Param:
    """A float32 weight ~ normal(0, std), sharded by its logical dimensions `dims`.

    Raises:
        ShardingTypeError: an axis does not divide its dimension (checked earlier, in user's words,
            by `scaling.parallelism.rules`).
    """
    sample = jax.random.normal(key, shape, jnp.float32, out_sharding=P(*rules.spec(*dims)))
    return nnx.Param(sample * std, dims=dims)


def constant(
    rules: Rules, value: float, shape: tuple[int, ...], dims: tuple[str | None, ...]
) -> nnx.Param:
    """A float32 parameter that starts at `value` everywhere: norm scales (1) and biases (0)."""
    filled = jnp.full(shape, value, jnp.float32, out_sharding=P(*rules.spec(*dims)))
    return nnx.Param(filled, dims=dims)


def zeros(
    config: ModelConfig, rules: Rules, shape: tuple[int, ...], dims: tuple[str | None, ...]
) -> nnx.Param | None:
    """A bias that starts at zero, or None for a model without biases."""
    return constant(rules, 0.0, shape, dims) if config.bias else None


def is_matrix(param: nnx.Variable) -> bool:
    """Whether a parameter is multiplied (a matrix or table) rather than scaled or added (a vector).

    True for logical dimensions such as ("embed", "heads", None); a bias of heads x head_dim is a
    vector. Matrices are decayed, and are what fully sharded data parallelism gathers.
    """
    return "embed" in param.dims


def add_bias(x: jax.Array, bias: nnx.Param | None) -> jax.Array:
    """x + bias, broadcast over the leading dimensions, in the format of x.

    Added in float32, so that the bias's gradient, a sum over all tokens, is summed in float32.
    """
    return x if bias is None else (x.astype(jnp.float32) + bias[...]).astype(x.dtype)


def residual_std(n_layers: int) -> float:
    """Scale of matrices that write into the residual stream: 0.02 / sqrt(2 n_layers) (GPT-2)."""
    return INIT_STD / math.sqrt(2 * n_layers)
