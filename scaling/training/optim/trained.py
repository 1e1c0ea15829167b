"""Which parameters are trained: all, the adapters of LoRA, or those that name patterns leave.

    trained_mask(params, train)     a tree of booleans in place of the parameters; None: all
    trained_part(params, mask)      the model with None in place of frozen parameters
    joined(part, params)            the whole model again

Only the trained part is differentiated, so that no gradient of a frozen matrix is computed, and
only it has optimiser state. Patterns are of array names as `scaling sharding` prints them.
"""

import math
from fnmatch import fnmatchcase
from typing import Any

import jax
from flax import nnx

from scaling.meshes.errors import InputError, nearest
from scaling.models.initializers import is_matrix, is_variable
from scaling.models.zero import is_router
from scaling.run import Train
from scaling.training.weights.naming import leaf_names

ADAPTERS = "*/adapters/*"  # the arrays of LoRA


def trained_mask(params: Any, train: Train) -> Any | None:
    """True in place of each parameter that is trained, else False; None if all are.

    Raises:
        InputError: a pattern that no parameter matches, or nothing left to train.
    """
    if train.trains_all:
        return None
    names = leaf_names(params)
    chosen = matching(names, train.trainable, "trainable")
    frozen = matching(names, train.freeze, "freeze")
    if train.lora is not None:
        chosen |= matching(names, (ADAPTERS,), "lora")
    flags = [name not in frozen if train.freeze else name in chosen for name in names]
    if not any(flags):
        raise InputError(
            f"train.freeze={list(train.freeze)} freezes all {len(names)} arrays of parameters; "
            'leave some, as ["embedding/*"] does'
        )
    structure = jax.tree.structure(params, is_leaf=is_variable)
    return jax.tree.unflatten(structure, flags)


def trained_part(params: Any, mask: Any | None) -> Any:
    """The model with None in place of frozen parameters."""
    if mask is None:
        return params
    return jax.tree.map(lambda p, keep: p if keep else None, params, mask, is_leaf=is_variable)


def as_stored(params: Any, mask: Any | None, dtype: jax.typing.DTypeLike) -> Any:
    """The model with frozen matrices in the format `dtype`, but routers, which stay in float32."""
    if mask is None:
        return params

    def one(path: tuple, param: nnx.Variable, is_trained: bool) -> nnx.Variable:
        if is_trained or not is_matrix(param) or is_router(path):
            return param
        return param.replace(param[...].astype(dtype))

    return jax.tree.map_with_path(one, params, mask, is_leaf=is_variable)


def joined(part: Any, params: Any) -> Any:
    """The model `params` with the parameters that `part` has in place of its own."""
    is_leaf = lambda leaf: leaf is None or is_variable(leaf)
    return jax.tree.map(lambda new, p: p if new is None else new, part, params, is_leaf=is_leaf)


def trained_line(params: Any, train: Train) -> list[str]:
    """A line with the number of trained parameters, if some are frozen."""
    if train.trains_all:
        return []
    count = lambda tree: sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))
    part, whole = count(trained_part(params, trained_mask(params, train))), count(params)
    return [
        f"trained: {part:,} of {whole:,} parameters ({part / whole:.2%}); the others are frozen"
    ]


def matching(names: list[str], patterns: tuple[str, ...], key: str) -> set[str]:
    """The names that match patterns of `train.KEY`; InputError for one that matches none."""
    matching = {p: {name for name in names if fnmatchcase(name, p)} for p in patterns}
    for pattern in (p for p, matched in matching.items() if not matched):
        raise InputError(
            f"train.{key}: no parameter is called {pattern!r}; {nearest(pattern, names)}"
        )
    return set().union(*matching.values())
