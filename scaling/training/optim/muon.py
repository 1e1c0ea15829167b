"""Muon: the momentum of each matrix, made nearly orthogonal, is the step (K. Jordan's Muon;
arXiv 2502.16982 for its size).

    m <- beta m + (1 - beta) g                       Nesterov: looked at one step ahead
    X =  m / |m|,  five times:  A = X X^T,  X <- a X + (b A + c A A) X
    step = 0.2 sqrt(max(rows, columns)) X            as large as AdamW's, so rates mean the same

It is for the matrices of the layers; token table, positions, head and vectors have AdamW.

On a mesh a product X X^T would sum over sharded columns in each of five iterations. Instead the
stack of L matrices (of one stage, and of each expert) is redistributed: one all-to-all over each
axis that shards the matrices gives every device L / (shards x tensor) complete ones (rounded up:
with more devices than layers some have only zeros), and another one brings the steps back.
Elements, in the format of the products:

    all-to-all   tensor, shards  2 x each, of the parameter's part on one device (L rounded up)

Devices along `data` all do the same. The iteration is that of `optax.contrib.scale_by_muon` without
its momentum, for arrays that are not sharded.
"""

# Dims: S stages, L layers (and experts), R rows, C columns; R <= C while iterating

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.execution import DTYPES
from scaling.models.initializers import is_variable
from scaling.run.optimizers import MUON_ITERATIONS
from scaling.training.optim.matrix_axes import map_params, matrix_axes_of

UPDATE_RMS = 0.2  # of AdamW's steps (arXiv 2502.16982, section 2.2)


class MuonState(NamedTuple):
    """Momentum: one array for each matrix."""

    steps: jax.Array  # int32 scalar: finished steps
    momentum: Any


def by_kind(params: Any) -> Any:
    """In place of each parameter: "muon" for the matrices of the layers, "adamw" for the others."""

    def kind(param: nnx.Variable) -> str:
        axes = matrix_axes_of(param)
        return "muon" if axes.stack and axes.rows else "adamw"

    return jax.tree.map(kind, params, is_leaf=is_variable)


def scale_by_muon(beta: float, epsilon: float, products: str) -> optax.GradientTransformation:
    """Gradients to steps of root mean square 0.2 or so.

    `epsilon` is added to the norm that a matrix is divided by; `products` is the format of the
    matrix products, as `precision.between`.
    """

    def init(params: Any) -> MuonState:
        return MuonState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(gradients: Any, state: MuonState, params: Any = None) -> tuple[Any, MuonState]:
        momentum = optax.tree.update_moment(gradients, state.momentum, beta, 1)
        count = optax.safe_increment(state.steps)
        ahead = optax.tree.add(
            optax.tree.scale(beta, optax.tree.bias_correction(momentum, beta, count + 1)),
            optax.tree.scale(1 - beta, optax.tree.bias_correction(gradients, beta, count)),
        )

        def step(param: nnx.Variable, x: jax.Array) -> tuple[jax.Array]:
            """The step of one parameter, sharded like the parameter."""
            axes = matrix_axes_of(param)
            x_LRC = axes.as_matrices(x.astype(DTYPES[products]))
            y_LRC = _orthogonalized_on_mesh(x_LRC, epsilon, products)
            y = axes.from_matrices(y_LRC, x.shape).astype(x.dtype)
            return (y * (UPDATE_RMS * math.sqrt(max(x_LRC.shape[-2:]))),)

        (steps,) = map_params(step, params, ahead)
        return steps, MuonState(count, momentum)

    return optax.GradientTransformation(init, update)


def orthogonalized(x_LRC: jax.Array, epsilon: float, products: str) -> jax.Array:
    """Matrices with about the same singular vectors, and singular values of about 1.

    `x_LRC` are unsharded matrices, [..., R, C], in the format of the products. "fp32" multiplies in
    float32 proper, other formats as the device likes.
    """
    step = optax.contrib.scale_by_muon(
        ns_steps=MUON_ITERATIONS,
        beta=0.0,
        eps=epsilon,
        nesterov=False,
        weight_dimension_numbers=optax.contrib.MuonDimensionNumbers(-2, -1),
    )
    one_stack = lambda x_LRC: step.update(x_LRC, step.init(x_LRC))[0]
    for _ in x_LRC.shape[:-3]:  # it joins all dims before rows and columns, also sharded ones
        one_stack = jax.vmap(one_stack)
    with jax.default_matmul_precision("highest" if products == "fp32" else None):
        return one_stack(x_LRC)


def _orthogonalized_on_mesh(x_LRC: jax.Array, epsilon: float, products: str) -> jax.Array:
    """`orthogonalized`, with each stage's stack dealt out over the axes that shard the matrices."""
    first, *rest = jax.typeof(x_LRC).sharding.spec.partitions
    entries = [_axes(entry) for entry in (first, None, *rest)]
    path = [P(*entries)]  # to complete matrices; each step moves one dim's axes to the layers
    for dim in (-1, -2):
        if entries[dim]:
            entries[1], entries[dim] = entries[1] + entries[dim], ()
            path.append(P(*entries))
    if len(path) == 1:
        return orthogonalized(x_LRC, epsilon, products)
    shape, stages = x_LRC.shape, _size(first)
    x_SLRC = jax.lax.reshape(x_LRC, (stages, shape[0] // stages, *shape[1:]), out_sharding=path[0])
    layers, parts = x_SLRC.shape[1], _size(path[-1][1])
    x_SLRC = jnp.pad(x_SLRC, [(0, 0), (0, -layers % parts)] + [(0, 0)] * (x_SLRC.ndim - 2))
    for spec in path[1:]:
        x_SLRC = reshard(x_SLRC, spec)
    x_SLRC = orthogonalized(x_SLRC, epsilon, products)
    for spec in reversed(path[:-1]):
        x_SLRC = reshard(x_SLRC, spec)
    return jax.lax.reshape(x_SLRC[:, :layers], shape, out_sharding=P(first, *rest))


def _axes(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (entry,) if isinstance(entry, str) else tuple(entry or ())


def _size(entry: str | tuple[str, ...] | None) -> int:
    """Devices along the mesh axes of an entry."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes[axis] for axis in _axes(entry))
