"""ZeRO stage 1 (arXiv 1910.02054, section 5): weights are all-gathered once per step.

    stored between steps    float32 weights and optimizer state, sharded as in stage 3, over fsdp,
                            expert and context (`scaling.meshes.rules`)
    during a step           every matrix whole along "embed", in compute format, on each device
    gradients               partial sums of whole matrices, reduce-scattered after the last
                            microbatch

Stored arrays, and so checkpoints, are the same in both stages. A step differentiates with respect
to the gathered weights.
"""

from typing import Any

import jax
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard
from jax.tree_util import keystr, tree_map_with_path

from scaling.meshes.rules import named
from scaling.models.execution import Execution, spec_of
from scaling.models.initializers import is_matrix, is_variable


def all_gather_params(params: Any, execution: Execution) -> Any | None:
    """The parameters with matrices all-gathered in compute format (routers in float32).

    Vectors stay as they are. None under stage 3, where a matrix is gathered for each product.
    """
    if not execution.gathers_weights_once:
        return None

    def gather(path: tuple, param: nnx.Variable) -> nnx.Variable:
        if not is_matrix(param):
            return param
        axes = set(execution.rules.gathered_axes(*param.dims))
        partitions = spec_of(param[...]).partitions
        gathered = P(*(None if named([entry]) & axes else entry for entry in partitions))
        weight = param[...] if is_router(path) else param[...].astype(execution.dtype)
        return param.replace(reshard(weight, gathered))

    with jax.named_scope("gather"):
        return tree_map_with_path(gather, params, is_leaf=is_variable)


def is_router(path: tuple) -> bool:
    """True for the path of a router's matrix, which is float32 whatever the format of others."""
    return keystr(path, simple=True, separator="/").endswith("router_DE")


def reduce_scatter_grads(gradients: Any, params: Any, execution: Execution) -> Any:
    """Partial sums of whole gradients as float32 shards like those of `params`.

    Reduce-scattered in the format that they have or in float32 (`Execution.reduce`); the
    shards are all-reduced over the other replicas.
    """

    def shard(gradient: nnx.Variable, own: nnx.Variable) -> nnx.Variable:
        wide = own[...].dtype
        early = wide if execution.reduce == "fp32" else gradient[...].dtype
        total = _reduce_scatter(gradient[...].astype(early), spec_of(own[...]))
        return gradient.replace(total.astype(wide))

    return jax.tree.map(shard, gradients, params, is_leaf=is_variable)


def _reduce_scatter(gradient: jax.Array, spec: P) -> jax.Array:
    """A gradient like a stored weight of `spec`: reduce-scattered, then the shard is
    all-reduced over the other replicas, but for those that the weight is marked `reduced` over."""
    unreduced = spec_of(gradient).unreduced - named(spec.partitions)
    shard = reshard(gradient, P(*spec.partitions, unreduced=unreduced))
    return reshard(shard, P(*spec.partitions, unreduced=spec.reduced))
