"""The layers as a pipeline over the mesh axis `stage`: what crosses the stages.

    embed      every stage embeds the tokens of a microbatch; only the first uses them
    hand over  a permute of the stream to the next stage, of its gradient to the previous one
    collect    the last stage's output is reduce-scattered over all stages, along the sequence, so
               that all of them multiply by the output head

Stages compute under a `vmap`, so that a block is written for one stage; what crosses stages is a
`shard_map` over all axes.
"""

# Dims: M microbatches, P stages, L layers, B batch, S sequence, D model; b, s: one device's shard
#       of B, S

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from scaling.models.execution import Execution, spec_of
from scaling.models.pipeline.shard_map import STAGE, on_shards


def embedding_execution(execution: Execution) -> Execution:
    """The execution of the embedding: each stage has the whole batch, sharded as if its own."""
    table = dict(execution.rules.table)
    table |= {dim: (STAGE, *table[dim]) for dim in ("batch", "stream")}
    return replace(execution, rules=replace(execution.rules, table=table))


def head_execution(execution: Execution) -> Execution:
    """The execution of the output head: the sequence is sharded over `stage`, inside `context`."""
    table = dict(execution.rules.table)
    inner = [axis for axis in table["residual"] if axis not in table["sequence"]]
    table["sequence"] = *table["sequence"], STAGE
    table["residual"] = *table["sequence"], *inner
    return replace(execution, rules=replace(execution.rules, table=table))


def embed_microbatch(
    execution: Execution, embed: Callable, tokens_BS: jax.Array, positions_BS: Any = None
) -> jax.Array:
    """The embedded tokens on the first stage, zeros on the others: [P, B, S, D]."""
    entry, dims = embedding_execution(execution), ("batch", "sequence")
    copy = lambda x_bs: jax.lax.pcast(x_bs, STAGE, to="varying")
    copied = lambda x_BS: on_shards(copy, execution.spec(*dims), entry.spec(*dims), x_BS)
    tokens_BS, positions_BS = jax.tree.map(copied, (tokens_BS, positions_BS))
    x_BSD = embed(tokens_BS, entry, positions_BS)
    first = lambda x_bsD: jnp.where(jax.lax.axis_index(STAGE) == 0, x_bsD, 0)[None]
    spec = entry.spec("stream", "residual", None)
    return on_shards(first, spec, _stream_spec(execution, STAGE), x_BSD)


def microbatch_of_stages(execution: Execution, x_MBS: jax.Array, number_P: jax.Array) -> jax.Array:
    """What the microbatch of each stage has of an array that all stages have: [P, B, S]."""
    spec = execution.spec(None, "batch", "sequence")
    own = lambda x_Mbs, number_1: x_Mbs[number_1]
    return on_shards(own, (spec, P(STAGE)), P(STAGE, *spec[1:]), x_MBS, number_P)


def hand_over(execution: Execution, x_PBSD: jax.Array, shift: int, ring: bool) -> jax.Array:
    """Each stage gets the array of the stage `shift` before it.

    In a ring the last stage is before the first; else where there is none it gets zeros.
    """
    stages = execution.rules.mesh.stage
    pairs = [(i, (i + shift) % stages) for i in range(stages) if ring or 0 <= i + shift < stages]
    spec = _stream_spec(execution, STAGE)
    return on_shards(lambda x_1bsD: jax.lax.ppermute(x_1bsD, STAGE, pairs), spec, spec, x_PBSD)


def collect_output(execution: Execution, y_PBSD: jax.Array) -> jax.Array:
    """The last stage's output under `head_execution`: [B, S, D].

    Reduce-scattered over `stage` along the sequence.
    """

    def scatter(y_1bsD: jax.Array) -> jax.Array:
        is_last = jax.lax.axis_index(STAGE) == execution.rules.mesh.stage - 1
        y_bsD = jnp.where(is_last, y_1bsD[0], 0)
        return jax.lax.psum_scatter(y_bsD, STAGE, scatter_dimension=1, tiled=True)

    out = head_execution(execution).spec("stream", "residual", None)
    return on_shards(scatter, _stream_spec(execution, STAGE), out, y_PBSD)


def shard_targets(execution: Execution, targets_MBS: jax.Array) -> jax.Array:
    """The targets of the tokens that `collect_output` gives to each device, [M, B, S].

    Where `tensor` shards the sequence too, it does so outside `stage`: the tokens of one stage are
    one piece of each tensor device's.
    """
    rules, mesh = execution.rules, execution.rules.mesh
    axes, dim = rules.stream_cut
    inner = mesh.size(axes) if dim == 1 else 1

    def own(targets_mbs: jax.Array) -> jax.Array:
        m, b, s = targets_mbs.shape
        pieces = targets_mbs.reshape(m, b, inner, mesh.stage, -1)
        piece = jax.lax.dynamic_index_in_dim(pieces, jax.lax.axis_index(STAGE), 3, keepdims=False)
        return piece.reshape(m, b, s // mesh.stage)

    dims = (None, "batch", "sequence")
    out = head_execution(execution).spec(*dims)
    return on_shards(own, execution.spec(*dims), out, targets_MBS)


def stack_stages(x_L: jax.Array, rows: int) -> jax.Array:
    """A stored stack [P L, ...] as each stage's layers, [L, P, ...]; with `rows` of it in a pattern
    of layers [L / rows, rows, P, ...] (`scaling.models.pattern`)."""
    spec, lead = spec_of(x_L), (-1, rows) if rows else (-1,)
    nothing = [None] * len(lead)
    out = P(*nothing, *spec.partitions, unreduced=spec.unreduced, reduced=spec.reduced)
    return on_shards(lambda x_L: x_L.reshape(*lead, 1, *x_L.shape[1:]), spec, out, x_L)


def unstack_stages(x_LP: jax.Array) -> jax.Array:
    """An array as `stack_stages` returns it as a stored stack [P L, ...]."""
    spec = spec_of(x_LP)
    at = spec.partitions.index(STAGE)
    out = P(*spec.partitions[at:], unreduced=spec.unreduced, reduced=spec.reduced)
    return on_shards(lambda x_L1: x_L1.reshape(-1, *x_L1.shape[at + 1 :]), spec, out, x_LP)


def _stream_spec(execution: Execution, *leading: str | None) -> P:
    return P(*leading, *execution.spec("stream", "residual", None).partitions)
