"""One process stands for a job of many: what processes tell one another is answered at once.

All processes of a job run the same code up to the lowering of its step, so each would say what this
one says: a gather holds its value once per process, a barrier is passed, and the coordinator of
`jax.distributed` keeps what this process writes.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Shape = jax.ShapeDtypeStruct


class Coordinator:
    """The client of `jax.distributed`'s coordinator, as checkpoint managers call it."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def key_value_set(self, key: str, value: Any, *_: Any, **__: Any) -> None:
        """Keep a value."""
        self.kept[key] = value

    def key_value_try_get(self, key: str, *_: Any, **__: Any) -> Any:
        """The value of a key; as jax's own client raises where there is none."""
        if key not in self.kept:
            raise jax.errors.JaxRuntimeError(
                f"NOT_FOUND: {key}: another process of the job would write it, and inside "
                "sc.pretend only the first one runs"
            )
        return self.kept[key]

    def key_value_dir_get(self, start: str) -> list[tuple[str, Any]]:
        """Keys that start so, and their values."""
        return [(key, value) for key, value in self.kept.items() if key.startswith(start)]

    def key_value_delete(self, start: str) -> None:
        """Forget the keys that start so."""
        self.kept = {key: kept for key, kept in self.kept.items() if not key.startswith(start)}

    def wait_at_barrier(self, *_: Any, **__: Any) -> None:
        """Every process is here."""

    def shutdown(self) -> None:
        """Where a program ends inside of sc.pretend, as notebooks do."""

    def get_live_nodes(self, processes: Any) -> dict[int, int]:
        """All of them, none of which was started again."""
        return dict.fromkeys(processes, 0)

    key_value_set_bytes = key_value_set
    blocking_key_value_get = blocking_key_value_get_bytes = key_value_try_get


def answers(processes: int) -> dict[str, Callable[..., Any]]:
    """Name of a function of jax.experimental.multihost_utils -> what it is in such a job."""

    def gathered(value: Any, tiled: bool) -> Any:
        if isinstance(value, Shape):  # over all processes already
            return Shape(value.shape, value.dtype)
        own = np.asarray(value)
        own = own if tiled and own.ndim else own[None]
        return np.concatenate([own] * processes)

    return {
        "sync_global_devices": lambda name: None,
        "assert_equal": lambda tree, message="": None,
        "broadcast_one_to_all": lambda tree, is_source=None: jax.tree.map(
            lambda value: value if isinstance(value, Shape) else np.asarray(value), tree
        ),
        "process_allgather": lambda tree, tiled=False: jax.tree.map(
            lambda value: gathered(value, tiled), tree
        ),
        "reached_preemption_sync_point": lambda step: False,
        "host_local_array_to_global_array": _mapped(_to_global),
        "global_array_to_host_local_array": _mapped(_to_local),
    }


def _mapped(one: Callable[..., Shape]) -> Callable[..., Any]:
    """A function of one array, for trees of arrays; a spec may stand for a part of the tree."""

    def every(tree: Any, mesh: Mesh, specs: Any) -> Any:
        is_spec = lambda leaf: isinstance(leaf, PartitionSpec)
        each = jax.tree.broadcast(specs, tree, is_leaf=is_spec)
        return jax.tree.map(lambda value, spec: one(value, mesh, spec), tree, each)

    return every


def _to_global(value: Any, mesh: Mesh, spec: PartitionSpec) -> Shape:
    """The array of all processes of which each holds one such part."""
    shape = tuple(
        n * parts for n, parts in zip(value.shape, _parts(value, mesh, spec), strict=True)
    )
    return Shape(shape, _dtype(value), sharding=NamedSharding(mesh, spec))


def _to_local(value: Any, mesh: Mesh, spec: PartitionSpec) -> Shape:
    shape = (n // parts for n, parts in zip(value.shape, _parts(value, mesh, spec), strict=True))
    return Shape(tuple(shape), _dtype(value))


def _parts(value: Any, mesh: Mesh, spec: PartitionSpec) -> list[int]:
    """For each dim of an array, how many parts of processes it has."""
    parts = [1] * len(value.shape)
    for dim, axes in enumerate(spec):
        for axis in (axes,) if isinstance(axes, str) else axes or ():
            parts[dim] *= mesh.shape[axis] // mesh.local_mesh.shape[axis]
    return parts


def _dtype(value: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(value.dtype)
