"""The arrays of a training state by name: how they are saved, restored and shown.

params/layers/attention/query_DNK      optimizer/1/0/mu/layers/attention/query_DNK      step
"""

from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def leaf_names(tree: Any) -> list[str]:
    """The path of every leaf of a pytree in flattening order: `params/final_norm/scale`."""
    paths = [path for path, _ in jax.tree.leaves_with_path(tree)]
    names = (jax.tree_util.keystr(path, simple=True, separator="/") for path in paths)
    return ["/".join(part for part in name.split("/") if part != "value") for name in names]


def to_dict(state: Any) -> dict[str, jax.Array]:
    """The state as a flat dictionary of arrays by name."""
    return dict(zip(leaf_names(state), jax.tree.leaves(state), strict=True))


def from_dict(like: Tree, arrays: dict[str, Any]) -> Tree:
    """The state with the structure of `like` and the leaves of `arrays`."""
    leaves = [arrays[name] for name in leaf_names(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)
