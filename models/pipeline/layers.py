"""The layers as a pipeline over the mesh axis `stage`, inside one step.

    embed      every stage embeds the tokens of all microbatches; only the first uses them
    run        a scan over the iterations of `models.pipeline.schedule`: one collective-permute to
               the next stage, then each stage runs its part
    collect    the last stage's outputs are scattered over all stages, along the sequence, so that
               all of them multiply by the output head

    over stage       forward                     backward
    each iteration   permute to the next stage   permute to the previous one
    once             reduce-scatter of outputs   all-gather of their gradient

Stages compute under a `vmap`, so that a block is written for one stage; what crosses stages is a
`shard_map` over all axes. In idle iterations stages compute on values that nothing reads.
"""

# Dims: M microbatches, T iterations, P stages, V virtual stages, L layers of a part, B batch,
#       S sequence, D model; b, s: one device's shard of B, S

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import chex
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution, spec_of
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.models.pipeline.shard_map import STAGE, custom_vmap_rule, on_shards, stacked_spec
from scaling.models.zero import float32_accumulators, with_float32_grads

Layer = Callable[[jax.Array, Any], tuple[jax.Array, Any]]  # the body of a scan over layers


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


def embed_microbatches(
    execution: Execution, schedule: PipelineSchedule, embed: Callable, tokens_MBS: jax.Array
) -> jax.Array:
    """The embedded microbatches at the iterations in which they enter: [T, P, B, S, D].

    `embed` takes tokens [P B, S] to the residual stream, under `embedding_execution`; `tokens_MBS`
    are the same on all stages.
    """
    chex.assert_rank(tokens_MBS, 3)
    entry, group = embedding_execution(execution), schedule.group

    def at_iterations(x_mbsD: jax.Array) -> jax.Array:
        x = x_mbsD.reshape(-1, 1, group, *x_mbsD.shape[1:])
        x = _repeat_last(x, 1, schedule.virtual_stages - 1).reshape(-1, *x_mbsD.shape[1:])
        return _repeat_last(x, 0, schedule.stages - 1)[:, None]

    x_MBSD = jax.lax.map(embed, _copied(execution, tokens_MBS))
    spec = entry.spec(None, "stream", "residual", None)
    return on_shards(at_iterations, spec, _stream_spec(execution, None, STAGE), x_MBSD)


def embed_microbatch(execution: Execution, embed: Callable, tokens_BS: jax.Array) -> jax.Array:
    """The embedded tokens on the first stage, zeros on the others: [P, B, S, D]."""
    entry = embedding_execution(execution)
    x_BSD = embed(_copied(execution, tokens_BS), entry)
    first = lambda x_bsD: jnp.where(jax.lax.axis_index(STAGE) == 0, x_bsD, 0)[None]
    spec = entry.spec("stream", "residual", None)
    return on_shards(first, spec, _stream_spec(execution, STAGE), x_BSD)


def _copied(execution: Execution, tokens: jax.Array) -> jax.Array:
    """Tokens [B, S] or [M, B, S], the same on all stages, as each stage's own."""
    dims = (*[None] * (tokens.ndim - 2), "batch", "sequence")
    copy = lambda tokens_bs: jax.lax.pcast(tokens_bs, STAGE, to="varying")
    out = embedding_execution(execution).spec(*dims)
    return on_shards(copy, execution.spec(*dims), out, tokens)


def hand_over(execution: Execution, x_PBSD: jax.Array, shift: int) -> jax.Array:
    """Each stage gets the array of the stage `shift` before it; zeros where there is none."""
    stages = range(execution.rules.mesh.stage)
    pairs = [(i, i + shift) for i in stages if i + shift in stages]
    spec = _stream_spec(execution, STAGE)
    return on_shards(lambda x_1bsD: jax.lax.ppermute(x_1bsD, STAGE, pairs), spec, spec, x_PBSD)


def run_pipeline(
    execution: Execution, schedule: PipelineSchedule, layer: Layer, layers: Any, x_TPBSD: jax.Array
) -> tuple[jax.Array, Any]:
    """The output of each stage in each iteration, [T, P, B, S, D], and what its layers return too.

    The latter is a tree of sums over microbatches, [V L, P, ...], or None.

    Saved for the backward pass: what `layer`'s remat keeps, in every iteration; of a circular
    schedule the input of each iteration only.

    Args:
        layer: one layer, for a scan over those of a part.
        layers: the stored stack (`models.pipeline.schedule.layer_order`), sharded over `stage`; and
            the same as `scaling.models.zero.all_gather_params` returns it, or None.
        x_TPBSD: the inputs of stage 0.
    """
    chex.assert_shape(x_TPBSD, (schedule.iterations, schedule.stages, None, None, None))
    parts = jax.tree.map(lambda x: by_stage(schedule, x), layers)
    stages = reshard(jnp.arange(schedule.stages), execution.spec("layers"))
    one_stage = functools.partial(_stage, execution, schedule, layer)
    return jax.vmap(one_stage, (0, 0, 1), (1, 1))(stages, parts, x_TPBSD)


def _stage(
    execution: Execution,
    schedule: PipelineSchedule,
    layer: Layer,
    stage: jax.Array,
    parts: Any,
    x_TBSD: jax.Array,
) -> tuple[jax.Array, Any]:
    """The outputs of one stage; `parts` are its stacks [V, L, ...]."""
    parts = float32_accumulators(execution, REPLICAS, *parts)

    def run_part(x_BSD: jax.Array, iteration: jax.Array, parts: Any) -> tuple[jax.Array, Any]:
        number = schedule.virtual_stage_at(iteration, stage)
        part = jax.tree.map(lambda x: _select_virtual_stage(x, number), parts)
        # Here, not layer by layer, or the gradients of a part would be float32 twice.
        return jax.lax.scan(layer, x_BSD, with_float32_grads(*part))

    if execution.schedule == "circular":
        run_part = jax.checkpoint(run_part, prevent_cse=False)

    def step(y_BSD: jax.Array, inputs: tuple) -> tuple[jax.Array, tuple]:
        x_BSD, iteration, enters = inputs
        with jax.named_scope("hand_on"):
            x_BSD = _shift_to_next_stage(execution, schedule)(y_BSD, x_BSD, enters)
        y_BSD, aux = run_part(x_BSD, iteration, parts)
        return y_BSD, (y_BSD, aux)

    iterations = jnp.arange(schedule.iterations)
    inputs = x_TBSD, iterations, jnp.asarray(schedule.enters)
    _, (y_TBSD, aux) = jax.lax.scan(step, x_TBSD[0], inputs)
    number_T1 = schedule.virtual_stage_at(iterations, stage)[:, None]
    runs_TV = number_T1 == jnp.arange(schedule.virtual_stages)
    runs_TV &= schedule.is_busy(iterations, stage)[:, None]
    return y_TBSD, jax.tree.map(lambda x_TL: _sum_where(runs_TV, x_TL), aux)


def _sum_where(runs_TV: jax.Array, x_TL: jax.Array) -> jax.Array:
    """The sums over the iterations in which a stage runs each virtual stage: [V L, ...]."""
    mask = runs_TV.reshape(*runs_TV.shape, *[1] * (x_TL.ndim - 1))
    x_VL = jnp.where(mask, x_TL[:, None], 0).sum(axis=0)
    return x_VL.reshape(-1, *x_VL.shape[2:])


def last_outputs(schedule: PipelineSchedule, y_TPBSD: jax.Array) -> jax.Array:
    """Results of all stages, in the iterations in which the last stage returns a microbatch."""
    y = y_TPBSD[schedule.stages - 1 :]
    y = y.reshape(-1, schedule.virtual_stages, schedule.group, *y.shape[1:])[:, -1]
    return y.reshape(schedule.microbatches, *y.shape[2:])


def collect_outputs(execution: Execution, y_MPBSD: jax.Array) -> jax.Array:
    """The last stage's outputs of microbatches under `head_execution`: [M, B, S, D].

    Reduce-scattered over `stage` along the sequence.
    """

    def scatter(y_M1bsD: jax.Array) -> jax.Array:
        is_last = jax.lax.axis_index(STAGE) == execution.rules.mesh.stage - 1
        y_MbsD = jnp.where(is_last, y_M1bsD[:, 0], 0)
        return jax.lax.psum_scatter(y_MbsD, STAGE, scatter_dimension=2, tiled=True)

    out = head_execution(execution).spec(None, "stream", "residual", None)
    return on_shards(scatter, _stream_spec(execution, None, STAGE), out, y_MPBSD)


def shard_targets(execution: Execution, targets_MBS: jax.Array) -> jax.Array:
    """The targets of the tokens that `collect_outputs` gives to each device, [M, B, S].

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


def _shift_to_next_stage(execution: Execution, schedule: PipelineSchedule) -> Callable:
    """Each stage's input of an iteration: the previous stage's output, or a new microbatch."""
    ring = schedule.virtual_stages > 1  # then the last stage sends back to the first
    pairs = [(i, (i + 1) % schedule.stages) for i in range(schedule.stages - (not ring))]
    stream = _stream_spec(execution, STAGE)

    def local(y_1bsD: jax.Array, x_1bsD: jax.Array, enters: jax.Array) -> jax.Array:
        arrived = jax.lax.ppermute(y_1bsD, STAGE, pairs)
        first = jax.lax.axis_index(STAGE) == 0
        return jnp.where(first & (enters | (not ring)), x_1bsD, arrived)

    shift = jax.shard_map(local, in_specs=(stream, stream, P()), out_specs=stream)
    return custom_vmap_rule(lambda y_BSD, x_BSD, enters: x_BSD, lambda _, *args: shift(*args))


def by_stage(schedule: PipelineSchedule, x: jax.Array) -> jax.Array:
    """A stored stack [P V L, ...] by stage and virtual stage, [P, V, L, ...]."""
    stored = spec_of(x)
    rest = P(None, None, *stored.partitions[1:], unreduced=stored.unreduced, reduced=stored.reduced)
    split = lambda x: x.reshape(1, schedule.virtual_stages, -1, *x.shape[1:])
    return on_shards(split, stored, stacked_spec(rest), x)


def stack_stages(x_L: jax.Array) -> jax.Array:
    """A stored stack [P L, ...] as each stage's layers, [L, P, ...]."""
    spec = spec_of(x_L)
    return on_shards(lambda x_L: x_L[:, None], spec, P(None, *spec.partitions), x_L)


def unstack_stages(x_LP: jax.Array) -> jax.Array:
    """An array of each stage's layers, [L, P, ...], as a stored stack [P L, ...]."""
    spec = spec_of(x_LP)
    return on_shards(lambda x_L1: x_L1[:, 0], spec, P(*spec.partitions[1:]), x_LP)


def _select_virtual_stage(x_VL: jax.Array, number: jax.Array) -> jax.Array:
    """One stage's part of the virtual stage `number`, [L, ...].

    A sum of products with one and zeros: jax 0.10.2 cannot transpose a dynamic slice of a weight
    whose gradient stays partial. Not one product that is reduced: XLA makes a `dot` of that, whose
    results on CPU devices varied from one execution to the next.
    """
    like = P(reduced=spec_of(x_VL).reduced)
    ones = [1] * (x_VL.ndim - 1)

    def term(virtual_stage: int) -> jax.Array:
        is_selected = (number == virtual_stage).astype(x_VL.dtype).reshape(ones)
        return x_VL[virtual_stage] * reshard(is_selected, like)

    count = x_VL.shape[0]
    return x_VL[0] if count == 1 else functools.reduce(jnp.add, map(term, range(count)))


def _stream_spec(execution: Execution, *leading: str | None) -> P:
    """The residual stream's spec under leading dimensions sharded over these mesh axes."""
    return P(*leading, *execution.spec("stream", "residual", None).partitions)


def _repeat_last(x: jax.Array, axis: int, rows: int) -> jax.Array:
    """`x` with its last row repeated `rows` more times: the inputs of idle iterations."""
    return jnp.pad(x, [(0, rows if i == axis else 0) for i in range(x.ndim)], mode="edge")
