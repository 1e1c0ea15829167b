"""Adafactor (arXiv 1804.04235, algorithm 4): the mean square of a matrix's entries as a product of
those of its rows and of its columns, so that the state takes next to no memory.

    row   <- b row   + (1 - b) mean over columns of (g^2 + epsilon)       b = 1 - t^-decay_rate
    column likewise over rows
    u     =  g / sqrt(row column / mean(row))
    step  =  u / max(1, rms(u))

The arithmetic is optax's on one matrix. Each parameter becomes a stack of matrices, d_model (or a
latent) by all other dimensions, one per layer and expert: optax alone would factor the two longest
dimensions of the stack. There is no momentum, and the rate is not relative to the size of a
parameter, so that it means what it does in AdamW.

On a mesh rows are sharded like d_model and columns like the other dimension. The means of rows are
one all-reduce over `tensor`, of [L, D/shards]; those of columns one over the axes that
shard D, of [L, F/tensor].
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from scaling.training.optim.matrix_axes import map_params, matrix_axes_of

LARGEST_RMS = 1.0  # of a step before the rate: d of algorithm 4
# The stack's dims of the state of one parameter; its matrices share the count of steps.
STATE_AXES = (optax.FactoredState(count=None, v_row=0, v_col=0, v=0), optax.EmptyState())


def scale_by_adafactor(decay_rate: float, epsilon: float) -> optax.GradientTransformation:
    """Gradients over their root mean square; no matrix's step is larger than 1 in the mean.

    The state has an `optax.FactoredState` in place of each parameter, without the placeholders of
    one number that optax keeps for the means that a matrix or vector does not have.
    """
    factored = optax.scale_by_factored_rms(
        decay_rate=decay_rate, min_dim_size_to_factor=1, epsilon=epsilon
    )
    one_matrix = optax.chain(factored, optax.clip_by_block_rms(LARGEST_RMS))

    def init_one(x: jax.Array) -> tuple:
        state, empty = one_matrix.init(x)
        unused = {"v": None} if x.ndim > 1 else {"v_row": None, "v_col": None}
        return state._replace(**unused), empty

    def update_one(gradient: jax.Array, states: tuple, x: jax.Array) -> tuple[jax.Array, tuple]:
        state, empty = states
        filled = optax.FactoredState(*(jnp.zeros(1) if n is None else n for n in state))
        step, (new, empty) = one_matrix.update(gradient, (filled, empty), x)
        kept = (None if old is None else n for old, n in zip(state, new, strict=True))
        return step, (optax.FactoredState(*kept), empty)

    def init(params: Any) -> Any:
        def one(param: nnx.Variable, x: jax.Array) -> tuple:
            axes, stacked = matrix_axes_of(param), init_one
            for _ in axes.stack:
                stacked = jax.vmap(stacked, out_axes=STATE_AXES)
            return (stacked(axes.as_matrices(x)),)

        return map_params(one, params, params)[0]

    def update(gradients: Any, states: Any, params: Any = None) -> tuple[Any, Any]:
        def one(param: nnx.Variable, gradient: jax.Array, state: Any) -> tuple:
            axes, stacked = matrix_axes_of(param), update_one
            for _ in axes.stack:
                stacked = jax.vmap(stacked, (0, STATE_AXES, 0), (0, STATE_AXES))
            matrices = axes.as_matrices(gradient)
            steps, state = stacked(matrices, state, matrices)
            return axes.from_matrices(steps, gradient.shape), state

        steps, states = map_params(one, params, gradients, states)
        return steps, states

    return optax.GradientTransformation(init, update)
