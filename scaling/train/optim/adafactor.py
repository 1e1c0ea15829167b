"""Adafactor (arXiv 1804.04235, algorithm 4): the mean square of a matrix's entries as a product of
those of its rows and of its columns, so that the state is as good as none.

    row   <- b row   + (1 - b) mean over columns of (g^2 + epsilon)       b = 1 - t^-decay_rate
    column likewise over rows
    u     =  g / sqrt(row column / mean(row))
    step  =  u / max(1, rms(u))

A matrix is d_model (or a latent) by all else, one for each layer and expert. The same on one matrix
is `optax.scale_by_factored_rms`; of a stack it would take the two longest dimensions for rows and
columns, whatever they are (heads apart from head_dim), and does not factor what is shorter than
128. There is no momentum, and the rate is not relative to the size of a parameter, so that it means
what it does in AdamW.

On a mesh rows are cut like d_model and columns like the other dimension. The means of rows are one
all-reduce over `tensor`, of [L, D/fsdp]; those of columns one over fsdp, of [L, F/tensor].
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from scaling.train.optim.matrix_axes import Axes, axes_of, map_params

LARGEST_RMS = 1.0  # of a step before the rate: d of algorithm 4
NONE = optax.MaskedNode()

Moments = tuple[Any, Any, Any]  # of rows, of columns, of a vector's entries; NONE or arrays


class AdafactorState(NamedTuple):
    """Mean squares; each parameter is in `rows` and `columns`, or (a vector) in `whole`."""

    steps: jax.Array  # int32 scalar: finished steps
    rows: Any
    columns: Any
    whole: Any


def scale_by_adafactor(decay_rate: float, epsilon: float) -> optax.GradientTransformation:
    """Gradients over their root mean square; no matrix's step is larger than 1 in the mean."""

    def init(params: Any) -> AdafactorState:
        moments = map_params(lambda param, x: _zeros(x, axes_of(param)), params, params)
        return AdafactorState(jnp.zeros((), jnp.int32), *moments)

    def update(
        gradients: Any, state: AdafactorState, params: Any = None
    ) -> tuple[Any, AdafactorState]:
        count = optax.safe_increment(state.steps)
        keep = 1 - count.astype(jnp.float32) ** -decay_rate

        def one(param: nnx.Variable, gradient: jax.Array, *old: Any) -> tuple:
            axes, square = axes_of(param), jnp.square(gradient) + epsilon
            new = _averaged(keep, (old[0], old[1], old[2]), _means(square, axes))
            return _clipped(_scaled(gradient, new, axes), axes), *new

        steps, *moments = map_params(one, params, gradients, *state[1:])
        return steps, AdafactorState(count, *moments)

    return optax.GradientTransformation(init, update)


def _means(square: jax.Array, axes: Axes) -> Moments:
    """Of the entries' squares: over each row and each column, or the squares of a vector."""
    if not axes.rows:
        return NONE, NONE, square
    return square.mean(axes.columns), square.mean(axes.rows), NONE


def _zeros(param: jax.Array, axes: Axes) -> Moments:
    """Moments of no gradient yet, each cut like the dimensions of the parameter that it keeps."""
    return jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda x: _means(x, axes), param))


def _averaged(keep: jax.Array, old: Moments, new: Moments) -> Moments:
    return jax.tree.map(lambda before, now: keep * before + (1 - keep) * now, old, new)


def _scaled(gradient: jax.Array, moments: Moments, axes: Axes) -> jax.Array:
    """The gradient over the root of its mean square."""
    rows, columns, whole = moments
    if not axes.rows:
        return gradient * jax.lax.rsqrt(whole)
    rows, columns = jnp.expand_dims(rows, axes.columns), jnp.expand_dims(columns, axes.rows)
    share = rows / rows.mean(axes.rows, keepdims=True)
    return gradient * jax.lax.rsqrt(share) * jax.lax.rsqrt(columns)


def _clipped(step: jax.Array, axes: Axes) -> jax.Array:
    """The step, smaller where its root mean square over a matrix is above LARGEST_RMS."""
    rms = jnp.sqrt(jnp.square(step).mean(axes.matrix, keepdims=True))
    return step / jnp.maximum(1, rms / LARGEST_RMS)
