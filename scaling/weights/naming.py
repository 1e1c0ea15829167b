"""The arrays of a training state by name: how they are saved, restored and shown.

params/layers/attention/query_DNK      optimizer/1/0/mu/layers/attention/query_DNK      step
"""

from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf of a pytree in flattening order: `params/final_norm/scale`."""
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    return ["/".join(_name(key) for key in path if _name(key) != "value") for path in paths]


def to_dict(state: Any) -> dict[str, jax.Array]:
    """The state as a flat dictionary of arrays by name."""
    return dict(zip(leaf_names(state), jax.tree.leaves(state), strict=True))


def from_dict(like: Tree, arrays: dict[str, Any]) -> Tree:
    """The state with the structure of `like` and the leaves of `arrays`."""
    leaves = [arrays[name] for name in leaf_names(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _name(key: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
