"""Token and position embeddings, looked up inside a `shard_map`.

The table is stored cut over `tensor` along the vocabulary and over fsdp along d_model. Each device
gathers its part of the vocabulary over fsdp, looks up the tokens that fall into it, and the parts
are summed over `tensor` (scattered over the sequence, if sequence-parallel). The transpose of this
is the textbook gradient: reduce-scatter over fsdp, all-reduce of the shard over data.
"""

# Dims: B batch, S sequence, D model, V vocabulary, T position table

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from scaling.models.attention_kernels.zigzag import positions
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.initializers import matrix
from scaling.models.partial_sums import MARKED, differing


class Embedding(nnx.Module):
    """tokens_BS int32 -> x_BSD in compute format, cut like the residual stream."""

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        V, D, T = config.vocab_size, config.d_model, config.max_positions
        self.execution = execution
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
        start: jax.Array | None = None,
    ) -> jax.Array:
        """Tokens to vectors.

        Args:
            execution: another than its own, where the batch is cut otherwise.
            start: position of the first token, an int32 scalar; None: 0.
        """
        execution = execution or self.execution
        tables = [self.table_VD[...]]
        if self.positions_TD is not None:
            tables += [self.positions_TD[...], *([] if start is None else [start])]
        specs = [jax.typeof(table).sharding.spec for table in tables]
        look_up = jax.shard_map(
            functools.partial(self._local, execution),
            in_specs=(execution.spec("batch", "sequence"), *specs),
            out_specs=execution.spec("batch", "residual", None),
        )
        return look_up(tokens_BS, *tables)

    def _local(
        self, execution: Execution, tokens_bS: jax.Array, table_vd: jax.Array, *learned: jax.Array
    ) -> jax.Array:
        """One device's part: b of the B rows; v, d of the table; its cut of the sequence.

        `learned` are the table of positions and, where it is not 0, the first one's.
        """
        rules = execution.rules
        cut = tuple(a for a in rules.axes("residual") if a not in rules.axes("sequence"))
        vocab, tokens = rules.axes("vocab"), (*rules.axes("batch"), *rules.axes("sequence"))
        table_vD = self._whole(table_vd, tokens if vocab else (*tokens, *cut))
        if vocab:
            first = jax.lax.axis_index(vocab) * table_vD.shape[0]
            local = tokens_bS - first
            inside = (local >= 0) & (local < table_vD.shape[0])
            x_bSD = jnp.where(inside[..., None], _rows(table_vD, jnp.where(inside, local, 0)), 0)
            if cut:
                x_bsD = jax.lax.psum_scatter(x_bSD, cut, scatter_dimension=1, tiled=True)
            else:
                x_bsD = jax.lax.psum(x_bSD, vocab)
        else:
            x_bsD = _rows(table_vD, _own(tokens_bS, cut, axis=1))
        if learned:
            place_s = _own(self._positions(tokens_bS.shape[1]), cut, axis=0)
            place_s = place_s + learned[1] if len(learned) > 1 else place_s
            x_bsD = x_bsD + self._whole(learned[0], (*tokens, *cut)).astype(jnp.float32)[place_s]
        return x_bsD.astype(execution.dtype)

    def _positions(self, rows: int) -> jax.Array:
        """Of this device's `rows` tokens of a sequence, before `tensor` cuts them."""
        cut = self.execution.rules.axes("sequence")
        device = jax.lax.axis_index(cut) if cut else 0
        return jnp.asarray(positions(device, self.execution.rules.mesh.context, rows))

    def _whole(self, table: jax.Array, met: tuple[str, ...]) -> jax.Array:
        """A table in compute format, gathered along d_model.

        `met` are the mesh axes that cut what is looked up. Before the gather the table is declared
        different along them: so its gradient is reduced over them after the reduce-scatter, as a
        shard, not before it as a whole table.
        """
        execution = self.execution
        axes = () if execution.gathers_weights_once else execution.rules.axes("embed")
        replicas = [axis for axis in met if axis not in axes]
        table = differing(table.astype(execution.dtype), replicas, (*MARKED, "fsdp"))
        return jax.lax.all_gather(table, axes, axis=1, tiled=True) if axes else table


def _rows(table: jax.Array, index: jax.Array) -> jax.Array:
    """`table[index]`; the gradient adds up all places of a token, in float32.

    In bfloat16 a sum stands still once it is 256 times what is added.
    """
    return table.astype(jnp.float32)[index].astype(table.dtype)


def _own(x: jax.Array, axes: tuple[str, ...], axis: int) -> jax.Array:
    """This device's equal part of `x` along `axis`, when that is cut over the mesh axes `axes`."""
    if not axes:
        return x
    part = x.shape[axis] // jax.lax.axis_size(axes)
    return jax.lax.dynamic_slice_in_dim(x, jax.lax.axis_index(axes) * part, part, axis)
