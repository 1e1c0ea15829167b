"""A parameter as a stack of matrices, for optimisers that look at rows and columns.

query_DNK, stacked over layers   [L, D, N, K]     stack (0,)      rows (1,)    columns (2, 3)
experts' up_DF                   [L, E, D, F]     stack (0, 1)    rows (2,)    columns (3,)
a scale                          [L, D]           stack (0,)      rows ()      columns (1,)
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx

from scaling.meshes.rules import GATHERED
from scaling.models.initializers import is_matrix, is_variable

STACKED = ("expert", "experts")  # logical dimensions that number matrices


class Axes(NamedTuple):
    """Positions of a parameter's dimensions. Rows run along d_model, or a latent."""

    stack: tuple[int, ...]
    rows: tuple[int, ...]  # (): a vector
    columns: tuple[int, ...]

    @property
    def matrix(self) -> tuple[int, ...]:
        """All dimensions of one matrix or vector."""
        return self.rows + self.columns

    def as_matrices(self, x: jax.Array) -> jax.Array:
        """The values of a parameter as [*stack, R, C], or [*stack, C] of vectors."""
        stack, rows, columns = (tuple(x.shape[i] for i in part) for part in self)
        shape = (*stack, *([math.prod(rows)] if rows else []), math.prod(columns))
        return x.transpose(self.stack + self.matrix).reshape(shape)

    def from_matrices(self, x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """The inverse of `as_matrices`: values of `shape`."""
        order = self.stack + self.matrix
        back = sorted(range(len(shape)), key=lambda i: order[i])
        return x.reshape([shape[i] for i in order]).transpose(back)


def matrix_axes_of(param: nnx.Variable) -> Axes:
    """The axes of a parameter with logical dimensions `param.dims`.

    Layers are stacked along leading dimensions that `dims` does not name.
    """
    first = param[...].ndim - len(param.dims)
    named = {first + i: dim for i, dim in enumerate(param.dims)}
    stack = (*range(first), *(i for i, dim in named.items() if dim in STACKED))
    rows = tuple(i for i, dim in named.items() if dim in GATHERED) if is_matrix(param) else ()
    rest = tuple(i for i in named if i not in (*stack, *rows))
    return Axes(stack, rows, rest)


def map_params(function: Callable[..., tuple], params: Any, *trees: Any) -> tuple[Any, ...]:
    """`function(parameter, entry, ...)` for each parameter and its entry of each tree.

    Masked parameters (`optax.MaskedNode`) are passed over. Returns a tree in the structure of
    `params` for each element of the tuples that `function` returns.
    """
    holders = jax.tree.leaves(params, is_leaf=is_variable)
    structure: Any = jax.tree.structure(params)
    entries = [structure.flatten_up_to(tree) for tree in trees]
    results = [function(*each) for each in zip(holders, *entries, strict=True)]
    return tuple(structure.unflatten(part) for part in zip(*results, strict=True))
