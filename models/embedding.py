"""Token and position embeddings, looked up inside a `shard_map`.

The table is stored sharded over `tensor` along the vocabulary and along d_model as any weight. Each
device all-gathers its part of the vocabulary and looks up the tokens that fall into it;
the results are all-reduced over `tensor` (reduce-scattered, if sequence-parallel). The gradient is
reduce-scattered along d_model, its shard all-reduced over data.
"""

# Dims: B batch, S sequence, D model, V vocabulary, T position table

from functools import partial

import chex
import jax
import jax.numpy as jnp
from flax import nnx

from scaling.models.attention_kernels.zigzag import zigzag_positions
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution, spec_of
from scaling.models.initializers import matrix
from scaling.models.partial_sums import MARKED, all_gather_weight
from scaling.models.pipeline.shard_map import on_shards


class Embedding(nnx.Module):
    """tokens_BS int32 -> x_BSD in compute format, sharded like the residual stream."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        V, D, T = config.vocab_size, config.d_model, config.max_positions
        self.execution = execution
        self.scale = config.embedding_scaled_by
        keys = jax.random.split(key)
        self.table_VD = matrix(execution.rules, keys[0], (V, D), ("vocab", "embed"))
        learned = config.positions == "learned"
        self.positions_TD = (
            matrix(execution.rules, keys[1], (T, D), (None, "embed")) if learned else None
        )

    def __call__(
        self,
        tokens_BS: jax.Array,
        execution: Execution | None = None,
        positions_BS: jax.Array | None = None,
    ) -> jax.Array:
        """Tokens int32 [B, S] to vectors [B, S, D]; `positions_BS` None: 0, 1, ...

        `execution` replaces the module's own where the batch is sharded differently.
        """
        chex.assert_rank(tokens_BS, 2)
        execution = execution or self.execution
        tables = [self.table_VD[...]]
        if self.positions_TD is not None:
            tables += [self.positions_TD[...], *([] if positions_BS is None else [positions_BS])]
        specs = [execution.spec("batch", "sequence"), *map(spec_of, tables)]
        look_up, out = partial(_look_up, execution), execution.spec("stream", "residual", None)
        x_BSD = on_shards(look_up, tuple(specs), out, tokens_BS, *tables)
        return x_BSD if self.scale == 1 else x_BSD * jnp.asarray(self.scale, x_BSD.dtype)


def _look_up(
    execution: Execution, tokens_bS: jax.Array, table_vd: jax.Array, *learned: jax.Array
) -> jax.Array:
    """One device's shard: b of the B rows; v, d of the table; its part of the stream.

    `learned` are the table of positions and, where they are not 0, 1, ..., those of all tokens.
    """
    rules, vocab = execution.rules, execution.rules.axes("vocab")
    sharded, dim = rules.stream_cut
    token_axes = (*rules.axes("batch"), *rules.axes("sequence"), *sharded)
    gathered = lambda table, dims: all_gather_weight(
        execution, table, dims, token_axes, (*MARKED, "fsdp")
    )
    table_vD = gathered(table_vd, ("vocab", "embed"))
    if vocab:
        local = tokens_bS - jax.lax.axis_index(vocab) * table_vD.shape[0]
        inside = (local >= 0) & (local < table_vD.shape[0])
        x_bSD = jnp.where(inside[..., None], _rows(table_vD, jnp.where(inside, local, 0)), 0)
        if sharded:
            x_bsD = jax.lax.psum_scatter(x_bSD, sharded, scatter_dimension=dim, tiled=True)
        else:
            x_bsD = jax.lax.psum(x_bSD, vocab)
    else:
        x_bsD = _rows(table_vD, _own_part(tokens_bS, sharded, axis=dim))
    if learned:
        if len(learned) > 1:
            position_s = _own_part(learned[1], sharded, axis=dim)
        else:
            # of this device's tokens of a sequence, before `tensor` shards them
            axes = rules.axes("sequence")
            device = jax.lax.axis_index(axes) if axes else 0
            positions = zigzag_positions(device, rules.mesh.context, tokens_bS.shape[1])
            position_s = jnp.asarray(positions)
            position_s = _own_part(position_s, sharded, axis=0) if dim == 1 else position_s
        table_TD = gathered(learned[0], (None, "embed"))
        x_bsD = x_bsD + table_TD.astype(jnp.float32)[position_s]
    return x_bsD.astype(execution.dtype)


def _rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]`; the gradient of a row is summed over its tokens in float32.

    In bfloat16 a sum stands still once it is 256 times what is added.
    """
    return table.astype(jnp.float32)[index].astype(table.dtype)


def _own_part(x: jax.Array, axes: tuple[str, ...], axis: int) -> jax.Array:
    """This device's equal part of `x` along `axis`, if sharded over the mesh axes `axes`."""
    if not axes:
        return x
    part = x.shape[axis] // jax.lax.axis_size(axes)
    return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(axes) * part, part, axis)
