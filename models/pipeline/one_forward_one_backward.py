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
with all forward passes first, but a stage keeps what it saves of 2 P - 1 microbatches at most
(PipeDream-Flush, arXiv 2006.09503, section 3.2, in lockstep: there P, without a common clock).

    over stage   in each iteration                            of
    forward      permute to the next stage                    fill, steady
    head         reduce-scatter of outputs, all-gather back   steady
    backward     permute to the previous one                  steady, drain

Both permutes run beside other work of the iteration. The gradient is put together here: jax
differentiates one pass of all stages at a time. What passes do without a microbatch is not used,
and they run backward on gradients of zero.
"""

# Dims: M microbatches, P stages, L layers of a stage, B batch, S sequence, D model, K slots

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.execution import spec_of
from scaling.models.partial_sums import zeros_like
from scaling.models.pipeline.schedule import DRAIN, FILL, slot_count
from scaling.models.pipeline.shard_map import STAGE, on_shards
from scaling.models.sharding import axes_of

Weights = Any


@dataclass(frozen=True)
class OneForwardOneBackward:
    """The weights, and what a microbatch passes; streams are [P, B, S, D], sharded over `stage`.

    Gradients are summed in the format of the weights, and stay partial sums over devices that these
    are marked `reduced` over.
    """

    stages: int
    microbatches: int
    tables: Weights
    layers: Weights  # [L, P, ...]
    # tables, number of a microbatch -> its stream on stage 0, zeros on the others
    embed: Callable[[Weights, jax.Array], jax.Array]
    # layers, stream -> stream, and aux: what layers return beside it, [L, P, ...]
    run: Callable[[Weights, jax.Array], tuple[jax.Array, Any]]
    # tables, stream, number -> what is minimised, what is reported
    head: Callable[[Weights, jax.Array, jax.Array], tuple[jax.Array, Any]]
    # stream, shift -> what the stage so many before has; zeros where there is none
    hop: Callable[[jax.Array, int], jax.Array]
    balance: Callable[[Any], jax.Array]  # aux of a microbatch -> what is minimised as well

    def sums_and_gradients(self) -> tuple[Any, Any, tuple[Weights, Weights]]:
        """Sums over microbatches of both results of `head`, and of aux; the gradients."""
        stages, number = self.stages, jnp.int32(0)
        idle = jnp.zeros_like(self.embed(self.tables, number))
        _, aux, saved = jax.eval_shape(lambda x: self.forward(x, number)[:3], idle)
        count = slot_count(stages, self.microbatches)
        empty = lambda leaf: jnp.zeros(
            (count, *leaf.shape), leaf.dtype, out_sharding=_slot_spec(leaf)
        )
        ahead = idle, [empty(leaf) for leaf in saved], jax.tree.map(zeros_like, aux)
        values = jax.eval_shape(self.head, self.tables, idle, number)
        back = idle, jax.tree.map(_zero_gradient, (self.tables, self.layers))
        carry = ahead, back, jax.tree.map(zeros_like, values)
        first, last = stages - 1, stages - 1 + self.microbatches
        with jax.named_scope(FILL):
            ahead, _ = jax.lax.scan(self.fill, ahead, jnp.arange(first))
        carry, _ = jax.lax.scan(self.steady, (ahead, *carry[1:]), jnp.arange(first, last))
        (_, slots, aux), back, values = carry
        with jax.named_scope(DRAIN):
            back, _ = jax.lax.scan(partial(self.drain, slots), back, jnp.arange(last, last + first))
        return values, aux, back[1]

    def fill(self, ahead: tuple, iteration: jax.Array) -> tuple[tuple, None]:
        """Forward alone."""
        arrived, slots, sums = ahead
        y_PBSD, aux, saved, _ = self.forward(arrived, iteration)
        slots = self.write(slots, saved, iteration)
        return (self.hop(y_PBSD, 1), slots, _add(sums, aux)), None

    def steady(self, carry: tuple, iteration: jax.Array) -> tuple[tuple, None]:
        """Forward, head, backward."""
        (arrived, slots, sums), (dx_PBSD, gradients), values = carry
        dy_PBSD = self.hop(dx_PBSD, -1)
        y_PBSD, aux, saved, run_back = self.forward(arrived, iteration)
        slots = self.write(slots, saved, iteration)
        ahead = self.hop(y_PBSD, 1), slots, _add(sums, aux)
        differentiate = jax.value_and_grad(self.head, argnums=(0, 1), has_aux=True)
        number = iteration - self.stages + 1
        value, (dtables, dy_last) = differentiate(self.tables, y_PBSD, number)
        dx_PBSD, terms = self.backward(run_back, slots, dy_PBSD + dy_last, iteration)
        with jax.named_scope("gradients"):
            tables, layers = _add(gradients, terms)
            back = dx_PBSD, (_add(tables, dtables), layers)
        return (ahead, back, _add(values, value)), None

    def drain(self, slots: list, back: tuple, iteration: jax.Array) -> tuple[tuple, None]:
        """Backward alone."""
        dx_PBSD, gradients = back
        dy_PBSD = self.hop(dx_PBSD, -1)
        *_, run_back = self.forward(dy_PBSD, iteration)  # for its form: nothing of it is computed
        dx_PBSD, terms = self.backward(run_back, slots, dy_PBSD, iteration)
        with jax.named_scope("gradients"):
            return (dx_PBSD, _add(gradients, terms)), None

    def forward(self, arrived: jax.Array, iteration: jax.Array) -> tuple:
        """The stream behind each stage; aux; what is saved of it, and the backward pass.

        The latter takes what was saved of microbatches, the gradient of the stream, their numbers.
        Not saved is what every iteration has the same: weights, what is `reduced` like them, and
        what all stages share.
        """
        number = jnp.minimum(iteration, self.microbatches - 1)
        x_PBSD = arrived + self.embed(self.tables, number)
        (y_PBSD, aux), back = jax.vjp(self.run, self.layers, x_PBSD)
        leaves, tree = jax.tree.flatten(back)
        weights = {id(leaf) for leaf in jax.tree.leaves(self.layers)}
        same = lambda x: id(x) in weights or spec_of(x).reduced or STAGE not in axes_of(x)
        at = [i for i, x in enumerate(leaves) if not same(x)]

        def run_back(saved: list[jax.Array], dy_PBSD: jax.Array, number_P: jax.Array) -> tuple:
            full = dict(enumerate(leaves)) | dict(zip(at, saved, strict=True))
            daux = jax.grad(self.balance)(jax.tree.map(jnp.zeros_like, aux))
            gradients = dy_PBSD, self.only_busy(daux, number_P)
            return jax.tree.unflatten(tree, full.values())(gradients)

        busy = self.only_busy(aux, iteration - self.stage_P)
        return y_PBSD, busy, [leaves[i] for i in at], run_back

    def backward(
        self, run_back: Callable, slots: list, dy_PBSD: jax.Array, iteration: jax.Array
    ) -> tuple[jax.Array, tuple[Weights, Weights]]:
        """The gradient of each stage's input, and those of tables and layers."""
        delay = 2 * self.stages - 2
        number_P = iteration - delay + self.stage_P
        saved = [_read_slot(slots_K, number_P, self.microbatches) for slots_K in slots]
        dlayers, dx_PBSD = run_back(saved, dy_PBSD, number_P)
        number = jnp.clip(iteration - delay, 0, self.microbatches - 1)
        _, embed_back = jax.vjp(lambda tables: self.embed(tables, number), self.tables)
        return dx_PBSD, (*embed_back(dx_PBSD), dlayers)

    def write(self, slots: list, saved: list, iteration: jax.Array) -> list:
        """The slots with what a forward pass has saved."""
        put = partial(
            _write_slot, number_P=iteration - self.stage_P, microbatches=self.microbatches
        )
        return [put(slots_K, leaf) for slots_K, leaf in zip(slots, saved, strict=True)]

    @property
    def stage_P(self) -> jax.Array:
        """The number of each stage."""
        return reshard(jnp.arange(self.stages), P(STAGE))

    def only_busy(self, aux: Any, number_P: jax.Array) -> Any:
        """`aux` of stages whose microbatch has a number that there is, zero of the others."""
        is_busy_P = (number_P >= 0) & (number_P < self.microbatches)
        mask = lambda x_LP: jnp.where(is_busy_P.reshape(-1, *[1] * (x_LP.ndim - 2)), x_LP, 0)
        return jax.tree.map(mask, aux)


def _add(total: Any, term: Any) -> Any:
    return jax.tree.map(jnp.add, total, term)


def _zero_gradient(weight: jax.Array) -> jax.Array:
    spec = spec_of(weight)
    out = P(*spec.partitions, unreduced=spec.reduced)
    return jnp.zeros(weight.shape, weight.dtype, out_sharding=out)


# A ring of slots on each stage holds what a microbatch's forward pass saves until its backward
# pass. Stages are at different microbatches at a time, so each reads and writes another slot: code
# of one device, in a `shard_map` over all axes.


def _write_slot(
    slots_K: jax.Array, leaf: jax.Array, number_P: jax.Array, microbatches: int
) -> jax.Array:
    """The slots with `leaf`, of the microbatch of this number on each stage.

    What an idle pass saves, before the first microbatch and after the last, goes where nothing is
    read any more (`slot_count`).
    """

    def write(slots_K: jax.Array, leaf: jax.Array, number_1: jax.Array) -> jax.Array:
        slot = jnp.clip(number_1[0], 0, microbatches) % len(slots_K)
        return jax.lax.dynamic_update_index_in_dim(slots_K, leaf, slot, 0)

    specs = _slot_spec(leaf), spec_of(leaf), P(STAGE)
    return on_shards(write, specs, specs[0], slots_K, leaf, number_P)


def _read_slot(slots_K: jax.Array, number_P: jax.Array, microbatches: int) -> jax.Array:
    """Each stage's slot of the microbatch that it is at, without the dimension of slots.

    An idle stage reads the slot of the nearest microbatch, so that it computes on finite numbers.
    """

    def read(slots_K: jax.Array, number_1: jax.Array) -> jax.Array:
        return slots_K[jnp.clip(number_1[0], 0, microbatches - 1) % len(slots_K)]

    spec = spec_of(slots_K)
    return on_shards(read, (spec, P(STAGE)), P(*spec.partitions[1:]), slots_K, number_P)


def _slot_spec(leaf: jax.Array) -> P:
    return P(None, *spec_of(leaf).partitions)
