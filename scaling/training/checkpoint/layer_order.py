"""Checkpoints of pipelines: a stack of layers in the order that another run stores it in.

A circular pipeline stores its layers by stage (`models.pipeline.schedule.layer_order`); everything
else, in the order in which they are applied. Arrays are the same otherwise, so a checkpoint of one
is restored for the other and its rows are moved.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.shape import MeshShape
from scaling.models.pipeline.schedule import layer_order
from scaling.run import Run, read_run
from scaling.run.parallelism.pipeline import pipeline_schedule

STACK = "layers"  # in the name of an array that has a row for each layer


def layer_order_of(run: Run) -> np.ndarray:
    """The layer in each row of the run's stacks: int [n_layers]."""
    pipeline = pipeline_schedule(run, run.mesh or MeshShape())
    return layer_order(run.model.n_layers, pipeline.stages, pipeline.virtual_stages)


def reorder_layers(
    arrays: dict[str, jax.Array], saved: Mapping[str, Any], run: Run
) -> dict[str, jax.Array]:
    """Arrays of a checkpoint, the rows of its stacks as `run` stores them. Under its mesh.

    Args:
        arrays: by name, as `scaling.training.weights.naming.to_dict` has them; already on the mesh.
        saved: the description of the run that they were saved from.
    """
    there, here = layer_order_of(read_run(dict(saved))), layer_order_of(run)
    if np.array_equal(there, here):
        return arrays
    rows = np.argsort(there)[here]

    def moved_rows(x: jax.Array) -> jax.Array:
        spec = jax.typeof(x).sharding.spec
        unsharded = P(None, *spec.partitions[1:])
        return reshard(reshard(x, unsharded).at[rows].get(out_sharding=unsharded), spec)

    moved = jax.jit(moved_rows, donate_argnums=0)
    is_stack = lambda name, x: x.ndim and STACK in name.split("/")  # counters have no rows
    return {name: moved(x) if is_stack(name, x) else x for name, x in arrays.items()}
