"""The arrays of a training state by name: how they are saved, restored and shown.

params/layers/attention/query_DNK      optimizer/1/0/mu/layers/attention/query_DNK      step

A pipeline of several virtual stages stores its stacks of layers by stage
(`models.pipeline.schedule.layer_order`); everything else, in the order in which they are applied.
Arrays are the same otherwise, so a checkpoint of one is restored for the other and its rows are
moved.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.shape import MeshShape
from scaling.models.pipeline.schedule import layer_order
from scaling.run import Run, read_run
from scaling.run.parallelism.pipeline import pipeline_schedule

STACKS = {"layers", "dense_layers"}  # in names of arrays that have a row for each of some layers
Tree = TypeVar("Tree")


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf of a pytree in flattening order: `params/final_norm/scale`."""
    paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
    names = (jax.tree_util.keystr(path, simple=True, separator="/") for path in paths)
    return ["/".join(part for part in name.split("/") if part != "value") for name in names]


def to_dict(state: Any) -> dict[str, jax.Array]:
    """The state as a flat dictionary of arrays by name, random keys as their numbers."""
    leaves = [_numbers(x) if is_key(x) else x for x in jax.tree.leaves(state)]
    return dict(zip(leaf_names(state), leaves, strict=True))


def from_dict(like: Tree, arrays: dict[str, Any]) -> Tree:
    """The state with the structure of `like` and the leaves of `arrays`."""
    pairs = zip(jax.tree.leaves(like), leaf_names(like), strict=True)
    leaves = [_as_keys(arrays[n], x) if is_key(x) else arrays[n] for x, n in pairs]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _as_keys(numbers: jax.Array, like: Any) -> jax.Array:
    kinds: list[Any] = []  # of a key jax says it, not of the shape of one
    jax.eval_shape(lambda key: kinds.append(jax.random.key_impl(key)), like)
    return jax.random.wrap_key_data(numbers, impl=kinds[0])


def _numbers(key: Any) -> Any:
    if isinstance(key, jax.Array):
        return jax.random.key_data(key)
    return jax.eval_shape(jax.random.key_data, key).update(sharding=key.sharding)


def is_key(leaf: Any) -> bool:
    """Whether an array, or its shape, is one of `jax.random.key`."""
    return jax.dtypes.issubdtype(getattr(leaf, "dtype", int), jax.dtypes.prng_key)


def layer_order_of(run: Run, layers: int) -> np.ndarray:
    """The layer in each row of a stack of the run, counted in that stack: int [layers]."""
    pipeline = pipeline_schedule(run, run.mesh or MeshShape())
    return layer_order(layers, pipeline.stages, pipeline.virtual_stages)


def reorder_layers(
    arrays: dict[str, jax.Array], saved: Mapping[str, Any], run: Run
) -> dict[str, jax.Array]:
    """Arrays of a checkpoint, the rows of its stacks as `run` stores them. Under its mesh.

    Args:
        arrays: by name, as `to_dict` has them; already on the mesh.
        saved: the description of the run that they were saved from.
    """
    runs = read_run(dict(saved)), run
    there, here = (layer_order_of(each, run.model.n_layers) for each in runs)
    if np.array_equal(there, here):
        return arrays

    def moved_rows(x: jax.Array) -> jax.Array:
        there, here = (layer_order_of(each, len(x)) for each in runs)
        spec = jax.typeof(x).sharding.spec
        unsharded = P(None, *spec.partitions[1:])
        rows = np.argsort(there)[here]
        return reshard(reshard(x, unsharded).at[rows].get(out_sharding=unsharded), spec)

    moved = jax.jit(moved_rows, donate_argnums=0)
    is_stack = lambda name, x: x.ndim and STACKS & {*name.split("/")}  # counters have no rows
    return {name: moved(x) if is_stack(name, x) else x for name, x in arrays.items()}
