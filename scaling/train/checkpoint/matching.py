"""Comparison of a saved state with the one that a run needs, and its target shardings."""

from pathlib import Path
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from scaling.meshes.errors import InputError

State = Any  # a pytree of jax arrays: nested dicts, tuples, optax states


def check_match(saved: State, wanted: State, path: Path) -> None:
    """Raise InputError with the first leaf in which a checkpoint differs from the run."""
    there, here = _leaves(saved), _leaves(wanted)
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            raise InputError(
                f"checkpoint {path} belongs to another run: {name} is "
                f"{there.get(name, 'missing')} there and {here.get(name, 'missing')} here. "
                "Resume with the model and optimizer it was saved with (run.json beside it), or "
                "start in another --run-dir."
            )


def _leaves(tree: State) -> dict[str, str]:
    """Name -> type of each array of a tree, such as {"params/wq": "float32[64, 32]"}."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in flat
    }


def with_shardings(abstract_state: State) -> State:
    """The same tree with a sharding on every leaf; a leaf without one is replicated."""
    shardings = [leaf.sharding for leaf in jax.tree.leaves(abstract_state)]
    meshes = [s.mesh for s in shardings if isinstance(s, NamedSharding)]
    replicated = (
        NamedSharding(meshes[0], PartitionSpec())
        if meshes
        else jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    )
    place = lambda leaf: jax.ShapeDtypeStruct(
        leaf.shape, leaf.dtype, sharding=leaf.sharding or replicated
    )
    return jax.tree.map(place, abstract_state)
