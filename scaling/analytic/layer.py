"""The kernels and collectives of one layer in order.

    forward    norm (in) q k v, attention, o (out)   norm (in) gate up, down (out)
    backward   the reverse: gradients of inputs, then those of weights, whose sums go out

In brackets what tensor exchanges. Weights over fsdp are fetched before the products ahead of them;
gradients are scattered beside the products after them, by the trainer in part beside the attention
of the next layer (`scaling.analytic.xla`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.adapters import adapter_kernels
from scaling.analytic.attention import attention_kinds, core_kernels
from scaling.analytic.experts import rows_again
from scaling.analytic.products import LayerProduct, forward, of_inputs, of_weights, step_products
from scaling.analytic.saved import REMAT, host_copies, returning, waits
from scaling.analytic.schedule import (
    EXCHANGES,
    NO_COLLECTIVES,
    PHASES,
    ScheduledCollectives,
    Traffic,
)
from scaling.analytic.step import StepSizes
from scaling.analytic.weights import ATTENTION, MLP
from scaling.program.ir import Kernel, Loop, Number, Operation


@dataclass(frozen=True)
class Runs:
    """Parts of a forward pass: 1 where a configuration runs them, 0 where it does not."""

    product: Callable[[LayerProduct], Number] = lambda product: 1
    core: Number = 1  # of the attention
    rotation: Number = 1
    others: Number = 1  # rows of experts
    norms: Number = 1
    activation: Number = 1


ALL_RUN = Runs()


def marked(block: Sequence[Operation], mark: str) -> list[Operation]:
    """The block with `mark` behind all names, of waits and collectives too."""
    if not mark:
        return list(block)
    inner = lambda op: (
        replace(op, body=tuple(marked(op.body, mark))) if isinstance(op, Loop) else op
    )
    return [replace(inner(op), name=f"{op.name}{mark}") for op in block]


@dataclass(frozen=True)
class GradientSums:
    """Scatters and sums of a layer's gradients, by what they run beside in its backward pass."""

    of_entering: Sequence[
        ScheduledCollectives
    ]  # of each matrix of the MLP but the last, to the end
    alone: ScheduledCollectives  # nothing runs beside these
    of_last: ScheduledCollectives = NO_COLLECTIVES  # of the MLP's last matrix, likewise
    of_attention: ScheduledCollectives = NO_COLLECTIVES  # beside the norm and sums at the end
    beside_core: ScheduledCollectives = NO_COLLECTIVES  # of the layer before, beside the core
    queued: ScheduledCollectives = NO_COLLECTIVES  # of the layer before, beside all of this one


@dataclass(frozen=True)
class Layer:
    """One layer of a step, with experts or without; `runs` times per step, forward and backward.

    As other software runs it; `XlaLayer` is the trainer's.
    """

    step: StepSizes
    traffic: Traffic
    moe: bool
    layers: int
    edge: bool = False  # in the microbatch beside which weights are gathered and gradients summed
    mark: str = ""  # after the names of its operations, which others have as well
    paired: bool = False  # exchanged beside its passes for two microbatches, `both`

    @property
    def runs(self) -> Number:
        """Passes of a device through such layers."""
        return self.step.passes(self.layers)

    def forward(self) -> list[Operation]:
        """The forward pass."""
        return marked(self._named(self._forward("forward")), self.mark)

    def backward(self) -> list[Operation]:
        """What remat computes again, and the backward pass."""
        return marked(self._named(self._backward()), self.mark)

    def both(self) -> list[Operation]:
        """The forward pass of one microbatch, the backward pass of another, and beside them what
        both exchange with their experts; DeepEP's kernels hold cores all the while."""
        places = (f"{phase} {end}" for phase in PHASES for end in EXCHANGES)
        sent = reduce(ScheduledCollectives.merged, (self._sent(place, 1.0) for place in places))
        left = self.step.cores_left
        block = [
            replace(op, share=op.share * left)
            if isinstance(op, Kernel) and op.kind in ("matmul", "grouped", "attention")
            else op
            for op in (*self.forward(), *self.backward())
        ]
        sent = replace(sent, beside=tuple(replace(call, apart=True) for call in sent.beside))
        return marked(sent.wrap(block), " in a pair")

    @property
    def products(self) -> tuple[LayerProduct, ...]:
        """The products of weights."""
        return step_products(self.step, self.moe)

    def _of(self, part: str, last: bool) -> list[LayerProduct]:
        """The products of a part: its last one, or those before."""
        return [p for p in self.products if p.part == part and p.stack.is_last == last]

    def _sent(self, place: str, hidden: float | None = None) -> ScheduledCollectives:
        """The collectives of a place; `hidden` None: as over tensor."""
        share = self.step.traits.hidden_tensor if hidden is None else hidden
        return self.traffic.at_place(place, self.runs, share, self.moe)

    def _with_once(self, place: str, once: str) -> ScheduledCollectives:
        """What weights send at a place, with a layer's part of what moves once per step."""
        return self._sent(place, self.step.traits.hidden_weights).merged(self._once(once))

    def _once(self, place: str, hidden: Number = 1.0) -> ScheduledCollectives:
        """A layer's part of what moves once per step; of what can be hidden this share is."""
        step, share = self.step, self.step.traits.hidden_weights * hidden
        if not self.edge:
            return NO_COLLECTIVES
        if step.takes_turns:  # nothing is left to run beside the communication of the last
            share *= 1 - 1 / step.virtual_stages
        every = self.traffic.at_place(place, step.stored(self.layers), share, self.moe)
        return every.spread(step.edges)

    def _named(self, block: list[Operation], before: str = "") -> list[Operation]:
        """The block with kernels that no other block has the names of."""
        after = " of experts" * self.moe
        if not before and not after:
            return block

        def named(op: Operation) -> Operation:
            if isinstance(op, Loop):
                return replace(op, body=tuple(map(named, op.body)))
            waited_for = not isinstance(op, Kernel) or op.asynchronous  # by its name
            return op if waited_for else replace(op, name=f"{before}{op.name}{after}")

        return [named(op) for op in block]

    def _forward(self, place: str, times: Number = 1) -> list[Operation]:
        """A forward pass; `times`: 1 where it keeps what it saves."""
        step, moe = self.step, self.moe
        weights = {
            part: self._with_once(f"{place} {part} weights", f"start {part}")
            for part in (ATTENTION, MLP)
        }
        copies = host_copies(step, moe, f"{place} offload", "forward", times=times)
        ahead = self._to_last_product(place, weights, offloads=copies)
        last = self._last_product(place, times)
        adapters = adapter_kernels(step, moe, PHASES[place]) if last else ()
        return [*ahead, *adapters, *last, *waits(copies)]

    def _last_product(self, place: str, times: Number, runs: Runs = ALL_RUN) -> list[Operation]:
        """The product that writes into the stream; experts' results are sent back after it."""
        last = self._of(MLP, True)
        down = [forward(self.step, p, PHASES[place], runs.product(p)) for p in last]
        back = self._experts(f"{place} experts back", times=runs.others)
        return [*self._leaving(f"{place} mlp out", down), *back]

    def _to_last_product(
        self,
        place: str,
        weights: Mapping[str, ScheduledCollectives],
        runs: Runs = ALL_RUN,
        offloads: Mapping[str, Kernel] = MappingProxyType({}),
    ) -> list[Operation]:
        """The forward pass but its last product; weights are fetched one product ahead.

        Args:
            weights: fetched for attention and for MLP.
            runs: what of it runs.
            offloads: copies to the host of what a part saves.
        """
        step, moe, phase = self.step, self.moe, PHASES[place]
        run = lambda products: [forward(step, p, phase, runs.product(p)) for p in products]
        norm = lambda part: kernels.norm(step, phase, part, runs.norms)
        cast = lambda part: kernels.casts(step, moe, part, phase) if phase == "forward" else []
        offload = lambda part: [offloads[part]] if part in offloads else []
        rows = rows_again(step) if phase == "remat" else runs.others
        first, *fetched = self._by_product(weights[MLP])
        mlp: list[Operation] = []
        for product, ahead in zip(run(self._of(MLP, False)), fetched, strict=True):
            mlp += [*ahead.issued, product, *ahead.waits]
        return [
            *weights[ATTENTION].issued,
            norm(ATTENTION),
            *(kernels.quantized(step, self.products, phase) if phase == "forward" else []),
            *cast(ATTENTION),
            *weights[ATTENTION].waits,
            *self._entering(f"{place} attention in", run(self._of(ATTENTION, False))),
            kernels.rotation(step, phase, runs.rotation),
            *self._attention(place, runs.core),
            *offload(ATTENTION),
            *first.issued,
            *self._leaving(f"{place} attention out", run(self._of(ATTENTION, True))),
            norm(MLP),
            *self._sent(f"{place} router", 0.0).exposed,
            *self._experts(f"{place} experts out", cast(MLP), rows),
            *first.waits,
            *self._entering(f"{place} mlp in", mlp),
            *offload(MLP),
            kernels.activation(step, moe, phase, runs.activation),
        ]

    def _by_product(self, sent: ScheduledCollectives) -> list[ScheduledCollectives]:
        """What is sent for the weights of the MLP, for each of its products."""
        size = kernels.layer_elements(self.step, self.moe, MLP) * self.step.itemsize
        return sent.split(len(self._of(MLP, False)) + 1, size)

    def _backward(self) -> list[Operation]:
        step, moe = self.step, self.moe
        inputs = lambda part, last: [of_inputs(step, p) for p in self._of(part, last)]
        weights = lambda part, last: [of_weights(step, p) for p in self._of(part, last)]
        norm = lambda part: kernels.norm(step, "backward", part)
        fetched = {
            part: self._sent(f"backward {part} weights", step.traits.hidden_weights)
            for part in (ATTENTION, MLP)
        }
        # Remat that computes all products of a part again has fetched its weights already.
        again = {part: self._fetched_again(part) for part in fetched}
        later = {part: sent.masked(1 - again[part], "later") for part, sent in fetched.items()}
        from_host = returning(step, moe)
        first, *others = self._by_product(later[MLP])
        entering = inputs(MLP, False)
        mlp: list[Operation] = [
            *first.waits,
            *others[0].issued,
            *inputs(MLP, True),
            *waits(from_host, MLP),
            kernels.activation(step, moe, "backward"),
        ]
        for product, own, ahead in zip(
            entering, others, [*others[1:], later[ATTENTION]], strict=True
        ):
            mlp += [*own.waits, *ahead.issued, product]
        sums = self._gradient_sums()
        of_entering: list[Operation] = []
        for product, own in zip(weights(MLP, False), sums.of_entering, strict=True):
            of_entering += [product, *own.issued]
        return [
            *from_host.values(),
            *first.issued,
            *sums.queued.issued,
            *kernels.casts(step, moe, ATTENTION, "backward"),
            *kernels.quantized(step, self.products, "backward"),
            *waits(from_host, REMAT),
            *self._remat({p: sent.masked(again[p], "again") for p, sent in fetched.items()}),
            *self._experts(
                "backward experts back",
                [*kernels.casts(step, moe, MLP, "backward"), *self._restored()],
            ),
            *self._entering("backward mlp out", mlp),
            *self._sum_of_inputs(MLP),
            *self._transposed("backward mlp in"),
            *self._experts(
                "backward experts out",
                [
                    *self._sent("backward mlp in").wrap(weights(MLP, True), first=False),
                    *sums.of_last.issued,
                ],
                first=False,
            ),
            *self._sent("backward router", 0.0).exposed,
            norm(MLP),
            *self._transposed("backward attention out"),
            *self._sent("backward attention out").wrap(of_entering),
            *later[ATTENTION].waits,
            *inputs(ATTENTION, True),
            *waits(from_host, ATTENTION),
            *sums.beside_core.issued,
            *self._attention("backward"),
            kernels.rotation(step, "backward"),
            *inputs(ATTENTION, False),
            *self._sum_of_inputs(ATTENTION),
            *self._transposed("backward attention in"),
            *self._sent("backward attention in").wrap(weights(ATTENTION, False), first=False),
            *weights(ATTENTION, True),
            *adapter_kernels(step, moe, "backward"),
            *kernels.widened(step, moe),
            *sums.beside_core.waits,
            *(wait for sent in (sums.of_last, *sums.of_entering) for wait in sent.waits),
            *sums.of_attention.wrap(
                [norm(ATTENTION), kernels.gradient_sums(step, moe)], first=False
            ),
            *sums.queued.waits,
            *sums.alone.exposed,
            *self._sent("backward vectors", 0.0).exposed,
        ]

    def _gradient_sums(self) -> GradientSums:
        """Sums of each microbatch run beside their own layer. Those of a step run beside the layer
        that follows; after the last layer nothing follows."""
        step, share = self.step, self.step.traits.hidden_weights
        mlp, attention = (self._sent(f"backward {p} gradients", share) for p in (MLP, ATTENTION))
        after = 1.0 if step.takes_turns else 1 - 1 / np.maximum(step.worked(self.layers), 1)
        once = self._once("end mlp", after).merged(self._once("end attention", after))
        last, *entering = self._by_product(ScheduledCollectives(beside=mlp.beside))
        alone = ScheduledCollectives(alone=mlp.alone + once.alone)
        queued = ScheduledCollectives(beside=once.beside)
        return GradientSums(entering, alone, last, attention, queued=queued)

    def _remat(self, weights: Mapping[str, ScheduledCollectives]) -> list[Operation]:
        """What is computed again before the backward pass, by the policy of each configuration."""
        step, again = self.step, self.step.repeats_layer
        core, module = step.recomputes_core, step.recomputes_module
        rotation = np.maximum(core, module("mla_up_proj"))
        activation = again + module("moe_act") * self.moe
        runs = Runs(
            self._recomputed, core, rotation, again, again + module("layernorm"), activation
        )
        ahead = self._to_last_product("remat", weights, runs)
        return [*ahead, *self._last_product("remat", 0, runs)]

    def _recomputed(self, product: LayerProduct) -> Number:
        """1 where remat computes a product again."""
        return self.step.recomputes(product.stack.name)

    def _fetched_again(self, part: str) -> Number:
        """1 where remat multiplies by all weights of a part, but for the layer's last."""
        own = self._of(part, False) + (self._of(part, True) if part == ATTENTION else [])
        return reduce(np.minimum, map(self._recomputed, own))

    def _attention(self, place: str, times: Number = 1) -> list[Operation]:
        """The attention's core, with the exchange of keys and values over context."""
        hidden = float(self.step.run.context.method == "ring")
        core = core_kernels(self.step, PHASES[place], times)
        marks = (mark for mark, *_ in attention_kinds(self.step))
        sent = (self._sent(f"{place} attention{mark}", hidden) for mark in marks)
        return reduce(ScheduledCollectives.merged, sent).wrap(core)

    def _entering(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """Products with what tensor gathers before them."""
        return self._waited_for(place).wrap([*self._transposed(place), *products])

    def _leaving(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """Products with what tensor sums after them."""
        return self._waited_for(place).wrap([*products, *self._transposed(place)], first=False)

    def _waited_for(self, place: str) -> ScheduledCollectives:
        """The collectives over tensor that products need, or that need them."""
        return self._sent(place)

    def _experts(
        self, place: str, beside: Sequence[Operation] = (), times: Number = 1, first: bool = True
    ) -> list[Operation]:
        """Rows sorted by expert, or put back, and exchanged: by the trainer beside a block, by
        other software before it, or after it where `first` is False."""
        if not self.moe:
            return list(beside)
        phase, name = PHASES[place.split()[0]], "dispatch" if place.endswith("out") else "combine"
        sorted_rows = kernels.dispatch(self.step, name, phase, times)
        sent = self._sent(place, float(self.step.is_own_trainer))
        sent = NO_COLLECTIVES if self.paired else sent
        return [sorted_rows, *sent.wrap(beside, first)]

    # Fusions that XLA adds:

    def _restored(self) -> list[Kernel]:
        return []

    def _sum_of_inputs(self, part: str) -> list[Kernel]:
        return []

    def _transposed(self, place: str) -> list[Kernel]:
        return []
