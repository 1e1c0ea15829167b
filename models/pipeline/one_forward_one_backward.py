"""1F1B: in each iteration a stage runs one microbatch forward and another one backward.

    P = 3 stages, M = 4 microbatches a, b, c, d; the microbatch of each stage

    iteration           0  1 | 2  3  4  5 | 6  7
    forward   stage 0   a  b | c  d  .  . |
              stage 1   .  a | b  c  d  . |
              stage 2   .  . | a  b  c  d |
    backward  stage 2        | a  b  c  d | .  .
              stage 1        | .  a  b  c | d  .
              stage 0        | .  .  a  b | c  d
                        fill     steady     drain

A microbatch that leaves the last stage passes the output head, which all stages share, and begins
its way back in the same iteration. A step takes M + P - 1 times a forward and a backward pass, as
with all forward passes first, but a stage keeps what it saved of 2 P - 1 microbatches at most
(PipeDream-Flush, arXiv 2006.09503, section 3.2, in lockstep: there P, without a common clock).

With V virtual stages a pass is through one part of a stage's layers, in the order of
`scaling.models.pipeline.schedule`; backward in the same order of microbatches, from the last part
on. From the last stage they go on to the first one's next part, and backward the other way around:

    fill     V P - 1 iterations       of M V + P - 1 passes each way every stage is idle in P - 1,
    steady   M V - (V - 1) P          which are V times shorter than a whole stage's
    drain    V P - 1

In laps of V P iterations microbatches leave the last stage in P, the "ends": there alone is a head,
is the stream of an arriving microbatch embedded for the next iteration, and does the gradient of
the iteration before reach the token table.

    over stage   in each iteration                            of
    forward      permute to the next stage                    fill, steady
    head         reduce-scatter of outputs, all-gather back   steady, ends
    backward     permute to the previous one                  steady, drain

Both permutes run beside other work of the iteration. The gradient is put together here: jax
differentiates one pass of all stages at a time. What passes do without a microbatch is not used,
and they run backward on gradients of zero.
"""

# Dims: M microbatches, P stages, L layers of a part, V virtual stages, B batch, S sequence,
#       D model, K slots

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.execution import axes_of, spec_of
from scaling.models.partial_sums import zeros_like
from scaling.models.pipeline.schedule import DRAIN, FILL, PipelineSchedule, slot_count
from scaling.models.pipeline.shard_map import STAGE, on_shards

Weights = Any


@dataclass(frozen=True)
class OneForwardOneBackward:
    """The weights, and what a microbatch passes; streams are [P, B, S, D], sharded over `stage`.

    Gradients are summed in float32, and stay partial sums over devices that the weights are marked
    `reduced` over.
    """

    schedule: PipelineSchedule
    tables: Weights
    layers: Weights  # [V L, P, ...], or [V L / p, p, P, ...] of p layers in each pattern
    # tables, number of a microbatch -> its stream on stage 0, zeros on the others
    embed: Callable[[Weights, jax.Array], jax.Array]
    # layers of a part, stream, microbatch of each stage [P] -> stream, and aux: what layers return
    # beside it, [L, P, ...]
    run: Callable[[Weights, jax.Array, jax.Array], tuple[jax.Array, Any]]
    # tables, stream, number -> what is minimised, what is reported
    head: Callable[[Weights, jax.Array, jax.Array], tuple[jax.Array, Any]]
    # stream, shift, whether the last stage precedes the first -> what the stage so many before has;
    # zeros where there is none
    hop: Callable[[jax.Array, int, bool], jax.Array]
    balance: Callable[[Any], jax.Array]  # aux of a pass -> what is minimised as well

    def each(self) -> Any:
        """Return the results of `head` for all microbatches [M, ...], without gradients."""

        def zeros(leaf: Any) -> jax.Array:
            shape = self.schedule.microbatches, *leaf.shape
            return jnp.zeros(shape, leaf.dtype, out_sharding=_slot_spec(leaf))

        def put(values: Any, value: Any, number: jax.Array) -> Any:
            at = partial(jax.lax.dynamic_update_index_in_dim, index=number, axis=0)
            return jax.tree.map(at, values, value)

        return self._run_ahead(zeros, put)

    def sums(self) -> Any:
        """Sums over microbatches of what `head` returns, without gradients."""
        return self._run_ahead(zeros_like, lambda values, value, _: _add(values, value))

    def _run_ahead(self, zeros: Callable, put: Callable) -> Any:
        """Values of microbatches, forward alone: `put(values, value of one, its number)`."""

        def turn(ends: bool, carry: tuple, iteration: jax.Array) -> tuple[tuple, None]:
            arrived, values = carry
            index_P = self.ahead_P(iteration)
            number_P = self.schedule.microbatch_of(index_P)
            y_PBSD, _ = self.run(self.part(self.layers, index_P), arrived, number_P)
            if ends and values is not None:
                number = self.schedule.microbatch_of(iteration - self.schedule.stages + 1)
                values = put(values, self.head(self.tables, y_PBSD, number), number)
            return (self.pass_on(ends, y_PBSD, iteration), values), None

        arrived, _ = self.filled(turn, (self.embed(self.tables, jnp.int32(0)), None))
        values = jax.eval_shape(self.head, self.tables, arrived, jnp.int32(0))
        return self.laps(turn, (arrived, jax.tree.map(zeros, values)))[1]

    def sums_and_gradients(self) -> tuple[Any, Any, tuple[Weights, Weights]]:
        """Sums over microbatches of both results of `head`, and of aux; the gradients."""
        schedule, first = self.schedule, jnp.int32(0)
        arrived = self.embed(self.tables, first)
        of_part = lambda x: self.forward(self.ahead_P(first), x)[:3]
        _, aux, saved = jax.eval_shape(of_part, arrived)
        count = slot_count(schedule.lap, schedule.passes)
        empty = lambda leaf: jnp.zeros(
            (count, *leaf.shape), leaf.dtype, out_sharding=_slot_spec(leaf)
        )
        rows = lambda leaf: leaf.update(
            shape=(schedule.virtual_stages * leaf.shape[0], *leaf.shape[1:])
        )
        sums = jax.tree.map(lambda leaf: zeros_like(rows(leaf)), aux)
        values = jax.eval_shape(self.head, self.tables, arrived, first)
        back = jnp.zeros_like(arrived), jax.tree.map(_no_gradient, (self.tables, self.layers))
        values = jax.tree.map(zeros_like, values)
        ahead = self.filled(self.fill, (arrived, [empty(leaf) for leaf in saved], sums))
        (_, slots, aux), back, values = self.laps(self.steady, (ahead, back, values))
        dx_PBSD, (tables, layers) = self.drained(partial(self.drain, slots), back)
        tables = self.with_look_up(tables, dx_PBSD, jnp.int32(schedule.turns))
        return values, aux, (tables, layers)

    def filled(self, turn: Callable, carry: Any) -> Any:
        """What `turn(ends, carry, iteration)` makes of the carry in the fill."""
        ends, fill = self.schedule.stages - 1, self.schedule.lap - 1
        with jax.named_scope(FILL):
            carry = _scan(turn, True, carry, 0, ends)
        return _scan(turn, False, carry, ends, fill - ends)

    def laps(self, turn: Callable, carry: Any) -> Any:
        """Run the steady iterations; the last lap stops after its first P iterations."""
        schedule = self.schedule
        ends, lap, first = schedule.stages, schedule.lap, schedule.lap - 1
        if schedule.virtual_stages == 1:
            return _scan(turn, True, carry, first, schedule.microbatches)

        def one(carry: Any, start: jax.Array) -> tuple[Any, None]:
            carry = _scan(turn, True, carry, start, ends)
            return _scan(turn, False, carry, start + ends, lap - ends), None

        whole = schedule.microbatches // ends - 1
        carry, _ = jax.lax.scan(one, carry, first + lap * jnp.arange(whole))
        return _scan(turn, True, carry, first + lap * whole, ends)

    def drained(self, turn: Callable, carry: Any) -> Any:
        """Run `turn` in the iterations of the drain."""
        ends, drain, first = (
            self.schedule.stages - 1,
            self.schedule.lap - 1,
            self.schedule.iterations,
        )
        carry = _scan(turn, False, carry, first, drain - ends)
        with jax.named_scope(DRAIN):
            return _scan(turn, True, carry, first + drain - ends, ends)

    def fill(self, ends: bool, ahead: tuple, iteration: jax.Array) -> tuple[tuple, None]:
        """Forward alone."""
        arrived, slots, sums = ahead
        index_P = self.ahead_P(iteration)
        y_PBSD, aux, saved, _ = self.forward(index_P, arrived)
        slots, sums = self.kept(slots, saved, index_P), self.with_aux(sums, aux, index_P)
        return (self.pass_on(ends, y_PBSD, iteration), slots, sums), None

    def steady(self, ends: bool, carry: tuple, iteration: jax.Array) -> tuple[tuple, None]:
        """Forward, head, backward."""
        (arrived, slots, sums), (dx_PBSD, (tables, layers)), values = carry
        dy_PBSD, index_P = self.hop(dx_PBSD, -1, not ends), self.ahead_P(iteration)
        if ends:
            tables = self.with_look_up(tables, dx_PBSD, iteration)
        y_PBSD, aux, saved, run_back = self.forward(index_P, arrived)
        slots, sums = self.kept(slots, saved, index_P), self.with_aux(sums, aux, index_P)
        ahead = self.pass_on(ends, y_PBSD, iteration), slots, sums
        if ends:
            differentiate = jax.value_and_grad(self.head, argnums=(0, 1), has_aux=True)
            number = self.schedule.microbatch_of(iteration - self.schedule.stages + 1)
            value, (dtables, dy_last) = differentiate(self.tables, y_PBSD, number)
            dy_PBSD = dy_PBSD + dy_last
            with jax.named_scope("gradients"):
                tables, values = _add(tables, dtables), _add(values, value)
        back = self.backward(run_back, slots, (dy_PBSD, (tables, layers)), iteration)
        return (ahead, back, values), None

    def drain(
        self, slots: list, ends: bool, back: tuple, iteration: jax.Array
    ) -> tuple[tuple, None]:
        """Backward alone."""
        dx_PBSD, (tables, layers) = back
        if ends:
            tables = self.with_look_up(tables, dx_PBSD, iteration)
        back = self.hop(dx_PBSD, -1, not ends), (tables, layers)
        return self.backward(None, slots, back, iteration), None

    def pass_on(self, ends: bool, y_PBSD: jax.Array, iteration: jax.Array) -> jax.Array:
        """The input of each stage in the next iteration."""
        arrived = self.hop(y_PBSD, 1, not ends)
        if not ends:
            return arrived
        number = self.schedule.microbatch_of(iteration + 1)
        return arrived + self.embed(self.tables, number)

    def with_look_up(self, tables: Weights, dx_PBSD: jax.Array, iteration: jax.Array) -> Weights:
        """Add the gradient of the look-up whose backward pass just reached stage 0."""
        number = self.schedule.microbatch_of(
            iteration - 1 - self.schedule.turns + self.schedule.passes
        )
        _, embed_back = jax.vjp(lambda tables: self.embed(tables, number), self.tables)
        with jax.named_scope("gradients"):
            return _add(tables, *embed_back(dx_PBSD))

    def forward(self, index_P: jax.Array, arrived: jax.Array) -> tuple:
        """The stream behind each stage; aux; what is saved of it, and the backward pass.

        The latter takes what was saved of microbatches, the gradient of the stream, and which
        passes are busy. Not saved is what follows from the weights, and what all stages share.
        """
        layers, number_P = self.part(self.layers, index_P), self.schedule.microbatch_of(index_P)
        run = lambda layers, x_PBSD: self.run(layers, x_PBSD, number_P)
        (y_PBSD, aux), back = jax.vjp(run, layers, arrived)
        leaves, tree = jax.tree.flatten(back)
        weights = {id(leaf) for leaf in jax.tree.leaves(layers)}
        same = lambda x: id(x) in weights or spec_of(x).reduced or STAGE not in axes_of(x)
        at = [i for i, x in enumerate(leaves) if not same(x)]

        def run_back(saved: list[jax.Array], dy_PBSD: jax.Array, busy_P: jax.Array) -> tuple:
            full = dict(enumerate(leaves)) | dict(zip(at, saved, strict=True))
            daux = jax.grad(self.balance)(jax.tree.map(jnp.zeros_like, aux))
            return jax.tree.unflatten(tree, full.values())((dy_PBSD, _where(busy_P, daux)))

        return y_PBSD, aux, [leaves[i] for i in at], run_back

    def backward(
        self, run_back: Callable | None, slots: list, back: tuple, iteration: jax.Array
    ) -> tuple:
        """The gradient of each stage's input, and the sums of those of weights.

        `run_back` is that of a forward pass with the same weights.
        """
        dy_PBSD, (tables, layers) = back
        schedule = self.schedule
        index_P = iteration - schedule.turns + schedule.passes + self.stage_P
        busy_P = schedule.is_busy(index_P)
        index_P = schedule.forward_of(jnp.clip(index_P, 0, schedule.passes - 1))
        if run_back is None or schedule.virtual_stages > 1:
            # Traced for the structure of its backward pass; XLA drops the forward one.
            *_, run_back = self.forward(index_P, dy_PBSD)
        saved = [_read_slot(slots_K, index_P) for slots_K in slots]
        term, dx_PBSD = run_back(saved, dy_PBSD, busy_P)
        with jax.named_scope("gradients"):
            return dx_PBSD, (tables, self.with_part(layers, term, index_P))

    @property
    def stage_P(self) -> jax.Array:
        """The number of each stage."""
        return reshard(jnp.arange(self.schedule.stages), P(STAGE))

    def ahead_P(self, iteration: jax.Array) -> jax.Array:
        """Which forward pass each stage runs; before the first and after the last it is idle."""
        return iteration - self.stage_P

    def with_aux(self, sums: Any, aux: Any, index_P: jax.Array) -> Any:
        """Sums of aux with those of these passes."""
        return self.with_part(sums, _where(self.schedule.is_busy(index_P), aux), index_P)

    def kept(self, slots: list, saved: list, index_P: jax.Array) -> list:
        """The slots with what these passes have saved.

        What an idle pass saves, before the first microbatch and after the last, goes where nothing
        is read any more (`slot_count`).
        """
        put = partial(_write_slot, index_P=jnp.clip(index_P, 0, self.schedule.passes))
        return [put(slots_K, leaf) for slots_K, leaf in zip(slots, saved, strict=True)]

    # Stages are at different passes at a time, so each takes another part of its layers, and
    # another of a ring of slots: code of one device, in a `shard_map` over all axes.

    def part(self, layers: Any, index_P: jax.Array) -> Any:
        """What each stage has of the part that a pass is through: [V L, P, ...] to [L, P, ...]."""
        parts = self.schedule.virtual_stages
        if parts == 1:
            return layers

        def own(x_V: jax.Array, number_1: jax.Array) -> jax.Array:
            size = len(x_V) // parts
            return jax.lax.dynamic_slice_in_dim(x_V, number_1[0] * size, size)

        number_P = self.schedule.virtual_stage_of(index_P)
        take = lambda x: on_shards(own, (spec_of(x), P(STAGE)), spec_of(x), x, number_P)
        return jax.tree.map(take, layers)

    def with_part(self, total: Any, term: Any, index_P: jax.Array) -> Any:
        """The total with a term added to the part that a pass is through."""
        if self.schedule.virtual_stages == 1:
            return _add(total, term)

        def added(x_V: jax.Array, x: jax.Array, number_1: jax.Array) -> jax.Array:
            start = number_1[0] * len(x)
            sum_ = jax.lax.dynamic_slice_in_dim(x_V, start, len(x)) + x
            return jax.lax.dynamic_update_slice_in_dim(x_V, sum_, start, 0)

        def add(x_V: jax.Array, x: jax.Array) -> jax.Array:
            specs = spec_of(x_V), spec_of(x), P(STAGE)
            # Unchecked: jax 0.10.2 has no dynamic slice of partial sums.
            f = jax.shard_map(added, in_specs=specs, out_specs=specs[0], check_vma=False)
            return f(x_V, x, self.schedule.virtual_stage_of(index_P))

        return jax.tree.map(add, total, term)


def _scan(turn: Callable, ends: bool, carry: Any, first: Any, count: int) -> Any:
    """The carry after `turn(ends, carry, iteration)` in `count` iterations."""
    if not count:
        return carry
    return jax.lax.scan(partial(turn, ends), carry, first + jnp.arange(count))[0]


def _add(total: Any, term: Any) -> Any:
    return jax.tree.map(jnp.add, total, term)


def _where(busy_P: jax.Array, aux: Any) -> Any:
    """`aux` [L, P, ...] of busy stages, zero of the others."""
    mask = lambda x_LP: jnp.where(busy_P.reshape(-1, *[1] * (x_LP.ndim - 2)), x_LP, 0)
    return jax.tree.map(mask, aux)


def _no_gradient(weight: jax.Array) -> jax.Array:
    spec = spec_of(weight)
    out = P(*spec.partitions, unreduced=spec.reduced)
    return jnp.zeros(weight.shape, jnp.float32, out_sharding=out)


def _write_slot(slots_K: jax.Array, leaf: jax.Array, index_P: jax.Array) -> jax.Array:
    """The slots with `leaf`, of this pass of each stage."""

    def write(slots_K: jax.Array, leaf: jax.Array, index_1: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(slots_K, leaf, index_1[0] % len(slots_K), 0)

    specs = _slot_spec(leaf), spec_of(leaf), P(STAGE)
    return on_shards(write, specs, specs[0], slots_K, leaf, index_P)


def _read_slot(slots_K: jax.Array, index_P: jax.Array) -> jax.Array:
    """Each stage's slot of this pass, without the dimension of slots."""
    read = lambda slots_K, index_1: slots_K[index_1[0] % len(slots_K)]
    spec = spec_of(slots_K)
    return on_shards(read, (spec, P(STAGE)), P(*spec.partitions[1:]), slots_K, index_P)


def _slot_spec(leaf: jax.Array) -> P:
    return P(None, *spec_of(leaf).partitions)
