"""Making parameters: random numbers of the right scale, created with their sharding."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import GATHERED, Dims, Rules
from scaling.models.execution import Execution
from scaling.models.pipeline.schedule import layer_order

Layer = TypeVar("Layer", bound=nnx.Module)

# GPT-2 (Radford et al. 2019) and Llama: normal(0, 0.02) for matrices and embeddings
INIT_STD = 0.02


def matrix(
    rules: Rules, key: jax.Array, shape: tuple[int, ...], dims: Dims, std: float = INIT_STD
) -> nnx.Param:
    """A float32 weight ~ normal(0, std), sharded by its logical dimensions `dims`.

    Raises:
        ShardingTypeError: an axis does not divide its dimension (checked earlier, in user's words,
            by `scaling.run.parallelism.rules`).
    """
    sample = jax.random.normal(key, shape, jnp.float32, out_sharding=P(*rules.spec(*dims)))
    return nnx.Param(sample * std, dims=dims)


def constant(rules: Rules, value: float, shape: tuple[int, ...], dims: Dims) -> nnx.Param:
    """A float32 parameter that starts at `value` everywhere: norm scales (1) and biases (0)."""
    filled = jnp.full(shape, value, jnp.float32, out_sharding=P(*rules.spec(*dims)))
    return nnx.Param(filled, dims=dims)


def bias(present: bool, rules: Rules, shape: tuple[int, ...], dims: Dims) -> nnx.Param | None:
    """A bias that starts at zero, or None where there is none."""
    return constant(rules, 0.0, shape, dims) if present else None


def stacked_layers(
    execution: Execution, make: Callable[[jax.Array], Layer], keys: jax.Array
) -> Layer:
    """The modules `make(key)` of all layers as one, with a leading dimension in stored order.

    In a pipeline rows are ordered by stage and virtual stage (`pipeline.schedule.layer_order`), and
    sharded over `stage`.
    """
    rules = execution.rules
    if rules.axes("layers"):
        order = layer_order(len(keys), rules.mesh.stage, execution.virtual_stages)
        keys = reshard(keys[order], execution.spec("layers"))
    return jax.vmap(make)(keys)


def is_variable(leaf: Any) -> bool:
    """True for a parameter as a whole, where a tree of them would go on to its array."""
    return isinstance(leaf, nnx.Variable)


def is_matrix(param: nnx.Variable) -> bool:
    """True for a parameter that is multiplied (a matrix or table), not scaled or added (a vector).

    True for logical dimensions such as ("embed", "heads", None), and for the factors of an adapter;
    a bias of heads x head_dim is a vector. Matrices are decayed, and are what fully sharded data
    parallelism gathers.
    """
    return not {"rank", *GATHERED}.isdisjoint(param.dims)


def add_bias(x: jax.Array, bias: nnx.Param | None) -> jax.Array:
    """x + bias, broadcast over the leading dimensions, in the format of x.

    Added in float32, so that the bias's gradient, a sum over all tokens, is summed in float32.
    """
    return x if bias is None else (x.astype(jnp.float32) + bias[...]).astype(x.dtype)


def residual_std(n_layers: int) -> float:
    """Scale of matrices that write into the residual stream: 0.02 / sqrt(2 n_layers) (GPT-2)."""
    return INIT_STD / math.sqrt(2 * n_layers)
