"""The layers as a pipeline over the mesh axis `stage`, inside one step: `models.pipeline.schedule`
says when.

    enter    every stage looks up the tokens of all microbatches; only the first uses them
    run      a scan over the ticks: hand on (one collective-permute), then every stage its part
    leave    what the last stage has made is shared out over all stages, along the sequence, so
             that all of them multiply by the output head

    over stage    forward                      backward
    each tick     permute to the next stage    permute to the one before
    once          reduce-scatter of what the   all-gather of its gradient
                  last stage has made

Stages compute under a `vmap`, so that a block is written for one stage; what crosses stages is a
`shard_map` over all axes. In idle ticks stages compute on what nobody reads.
"""

# Dims: M microbatches, T ticks, P stages, R rounds, L layers of a part, B batch, S sequence,
#       D model

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec, reshard

from scaling.meshes.rules import REPLICAS
from scaling.models.execution import Execution
from scaling.models.pipeline.schedule import Ticks, layer_order
from scaling.models.pipeline.shard_map import AXIS, spelled_out, with_stages
from scaling.models.zero import float32_accumulators, with_float32_grads

Layer = Callable[[jax.Array, Any], tuple[jax.Array, Any]]  # the body of a scan over layers
Spec = PartitionSpec


def embedding_execution(execution: Execution) -> Execution:
    """The embedding's: each stage has the whole batch, as if it were its own."""
    table = dict(execution.rules.table)
    table["batch"] = AXIS, *table["batch"]
    return replace(execution, rules=replace(execution.rules, table=table))


def head_execution(execution: Execution) -> Execution:
    """The head's: stages share out the part of a sequence that `context` gives them."""
    table = dict(execution.rules.table)
    inner = [axis for axis in table["residual"] if axis not in table["sequence"]]
    table["sequence"] = *table["sequence"], AXIS
    table["residual"] = *table["sequence"], *inner
    return replace(execution, rules=replace(execution.rules, table=table))


def stacked_keys(execution: Execution, keys: jax.Array) -> jax.Array:
    """The random key of each row of the stored stack, from those of the layers in order."""
    rules = execution.rules
    if not rules.axes("layers"):
        return keys
    order = layer_order(len(keys), rules.mesh.stage, execution.virtual_stages)
    return reshard(keys[order], execution.spec("layers"))


def entered(
    execution: Execution, ticks: Ticks, embed: Callable, tokens_MBS: jax.Array
) -> jax.Array:
    """The embedded microbatches at the ticks in which they enter: [T, P, B, S, D].

    Args:
        embed: tokens [P B, S] to the residual stream, under `embedding_execution`.
        tokens_MBS: the same on all stages.
    """
    entry, group = embedding_execution(execution), ticks.group
    copied = jax.shard_map(
        lambda tokens_mbs: jax.lax.pcast(tokens_mbs, AXIS, to="varying"),
        in_specs=execution.spec(None, "batch", "sequence"),
        out_specs=entry.spec(None, "batch", "sequence"),
    )

    def at_ticks(x_mbsD: jax.Array) -> jax.Array:
        x = x_mbsD.reshape(-1, 1, group, *x_mbsD.shape[1:])
        x = _repeated(x, 1, ticks.rounds - 1).reshape(-1, *x_mbsD.shape[1:])
        return _repeated(x, 0, ticks.stages - 1)[:, None]

    spread = jax.shard_map(
        at_ticks,
        in_specs=entry.spec(None, "batch", "residual", None),
        out_specs=_stacked(execution, None, AXIS),
    )
    return spread(jax.lax.map(embed, copied(tokens_MBS)))


def run(
    execution: Execution, ticks: Ticks, layer: Layer, layers: Any, x_TPBSD: jax.Array
) -> tuple[jax.Array, Any]:
    """What each stage has made in each tick, [T, P, B, S, D], and what its layers said besides.

    That is a tree of sums over microbatches, [P, R L, ...], or None.

    Args:
        layer: one layer, for a scan over those of a part.
        layers: the stored stack (`models.pipeline.schedule.layer_order`), cut over `stage`; and the
        same as
            `scaling.models.zero.all_gather_params` made it, or None.
        x_TPBSD: what enters, of stage 0.
    """
    parts = jax.tree.map(lambda x: _parts(ticks, x), layers)
    stages = reshard(jnp.arange(ticks.stages), execution.spec("layers"))
    on_stages = jax.vmap(functools.partial(_stage, execution, ticks, layer), (0, 0, 1), (1, 0))
    return on_stages(stages, parts, x_TPBSD)


def _stage(
    execution: Execution,
    ticks: Ticks,
    layer: Layer,
    stage: jax.Array,
    parts: Any,
    x_TBSD: jax.Array,
) -> tuple[jax.Array, Any]:
    """What one stage makes; `parts` are its stacks [R, L, ...]."""
    parts = float32_accumulators(execution, REPLICAS, *parts)

    def work(x_BSD: jax.Array, tick: jax.Array, parts: Any) -> tuple[jax.Array, Any]:
        number = ticks.round_of(tick, stage)
        part = jax.tree.map(lambda x: _of_round(x, number), parts)
        # Here, not layer by layer, or the gradients of a part would be float32 twice.
        return jax.lax.scan(layer, x_BSD, with_float32_grads(*part))

    if execution.recompute_stages:
        work = jax.checkpoint(work, prevent_cse=False)

    def step(y_BSD: jax.Array, now: tuple) -> tuple[jax.Array, tuple]:
        x_BSD, tick, enters = now
        with jax.named_scope("hand_on"):
            x_BSD = _hand_on(execution, ticks)(y_BSD, x_BSD, enters)
        y_BSD, said = work(x_BSD, tick, parts)
        return y_BSD, (y_BSD, said)

    numbers = jnp.arange(ticks.total)
    inputs = x_TBSD, numbers, jnp.asarray(ticks.enters)
    _, (y_TBSD, said) = jax.lax.scan(step, x_TBSD[0], inputs)
    return y_TBSD, jax.tree.map(lambda x: _sum(x, ticks.works(numbers, stage)), said)


def _sum(x_TL: jax.Array, works_T: jax.Array) -> jax.Array:
    """Over the ticks in which a stage works."""
    return jnp.where(works_T.reshape(-1, *[1] * (x_TL.ndim - 1)), x_TL, 0).sum(axis=0)


def left(execution: Execution, ticks: Ticks, y_TPBSD: jax.Array) -> jax.Array:
    """What the last stage has made of the microbatches, under `head_execution`: [M, B, S, D]."""

    def share_out(y_T1bsD: jax.Array) -> jax.Array:
        y = y_T1bsD[ticks.stages - 1 :, 0]
        y = y.reshape(-1, ticks.rounds, ticks.group, *y.shape[1:])[:, -1]
        y_mbsD = y.reshape(-1, *y.shape[2:])
        last = jax.lax.axis_index(AXIS) == ticks.stages - 1
        y_mbsD = jnp.where(last, y_mbsD, 0)
        return jax.lax.psum_scatter(y_mbsD, AXIS, scatter_dimension=2, tiled=True)

    leave = jax.shard_map(
        share_out,
        in_specs=_stacked(execution, None, AXIS),
        out_specs=head_execution(execution).spec(None, "batch", "residual", None),
    )
    return leave(y_TPBSD)


def left_targets(execution: Execution, targets_MBS: jax.Array) -> jax.Array:
    """The targets of the tokens that `left` leaves on each device, [M, B, S].

    Where `tensor` cuts a sequence too, it does so outside `stage`: the tokens of one stage are one
    piece of each tensor device's.
    """
    rules, mesh = execution.rules, execution.rules.mesh
    inner = mesh.size(a for a in rules.axes("residual") if a not in rules.axes("sequence"))

    def own(targets_mbs: jax.Array) -> jax.Array:
        m, b, s = targets_mbs.shape
        pieces = targets_mbs.reshape(m, b, inner, mesh.stage, -1)
        piece = jax.lax.dynamic_index_in_dim(pieces, jax.lax.axis_index(AXIS), 3, keepdims=False)
        return piece.reshape(m, b, s // mesh.stage)

    cut = jax.shard_map(
        own,
        in_specs=execution.spec(None, "batch", "sequence"),
        out_specs=head_execution(execution).spec(None, "batch", "sequence"),
    )
    return cut(targets_MBS)


def _hand_on(execution: Execution, ticks: Ticks) -> Callable:
    """Each stage's input of a tick: what the one before has made, or what enters."""
    ring = ticks.rounds > 1  # then the last stage's goes back to the first
    pairs = [(i, (i + 1) % ticks.stages) for i in range(ticks.stages - (not ring))]
    stream = _stacked(execution, AXIS)

    def local(y_1bsD: jax.Array, x_1bsD: jax.Array, enters: jax.Array) -> jax.Array:
        arrived = jax.lax.ppermute(y_1bsD, AXIS, pairs)
        first = jax.lax.axis_index(AXIS) == 0
        return jnp.where(first & (enters | (not ring)), x_1bsD, arrived)

    between = jax.shard_map(local, in_specs=(stream, stream, Spec()), out_specs=stream)
    return spelled_out(lambda y_BSD, x_BSD, enters: x_BSD, lambda _, *args: between(*args))


def _parts(ticks: Ticks, x: jax.Array) -> jax.Array:
    """A stored stack [P R L, ...] by stage and round, [P, R, L, ...]."""
    stored = jax.typeof(x).sharding.spec
    rest = Spec(
        None, None, *stored.partitions[1:], unreduced=stored.unreduced, reduced=stored.reduced
    )
    split = jax.shard_map(
        lambda x: x.reshape(1, ticks.rounds, -1, *x.shape[1:]),
        in_specs=stored,
        out_specs=with_stages(rest),
    )
    return split(x)


def as_stored(x_PL: jax.Array) -> jax.Array:
    """An array of each stage's layers, [P, L, ...], as a stored stack [P L, ...]."""
    spec = jax.typeof(x_PL).sharding.spec
    flat = jax.shard_map(lambda x_1L: x_1L[0], in_specs=spec, out_specs=_without(spec, 1))
    return flat(x_PL)


def _without(spec: Spec, dim: int) -> Spec:
    """The spec of an array without one of its dimensions."""
    return Spec(*spec.partitions[:dim], *spec.partitions[dim + 1 :])


def _of_round(x_RL: jax.Array, number: jax.Array) -> jax.Array:
    """One stage's part of a round, [L, ...].

    A sum of products with one and zeros: jax 0.10.2 cannot transpose a dynamic slice of a weight
    whose gradient stays partial. Not one product that is reduced: XLA makes a `dot` of that, whose
    results on CPU devices varied from one execution to the next.
    """
    like = Spec(reduced=jax.typeof(x_RL).sharding.spec.reduced)
    of_rank = [1] * (x_RL.ndim - 1)

    def share(round_: int) -> jax.Array:
        chosen = (number == round_).astype(x_RL.dtype).reshape(of_rank)
        return x_RL[round_] * reshard(chosen, like)

    rounds = x_RL.shape[0]
    return x_RL[0] if rounds == 1 else functools.reduce(jnp.add, map(share, range(rounds)))


def _stacked(execution: Execution, *stack: str | None) -> Spec:
    """The residual stream's spec under further dimensions, cut over these mesh axes."""
    return Spec(*stack, *execution.spec("batch", "residual", None).partitions)


def _repeated(x: jax.Array, axis: int, rows: int) -> jax.Array:
    """`x` with its last row so many times more: numbers as good as any for idle ticks."""
    return jnp.pad(x, [(0, rows if i == axis else 0) for i in range(x.ndim)], mode="edge")
