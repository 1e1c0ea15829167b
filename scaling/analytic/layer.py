"""The kernels and collectives of one layer in order.

    forward    norm (in) q k v, attention, o (out)   norm (in) gate up, down (out)
    backward   the reverse: gradients of inputs, then those of weights, whose sums go out

In brackets what tensor exchanges. Weights over fsdp are fetched before the products ahead of them;
gradients are scattered beside the products after them, by the trainer in part beside the attention
of the next layer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import MappingProxyType

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.adapters import adapter_kernels
from scaling.analytic.experts import rows_again
from scaling.analytic.products import Product, forward, layer_products, of_inputs, of_weights
from scaling.analytic.saved import (
    READ_IN_PLACE,
    REMAT,
    leaving,
    returning,
    saved_bytes,
    waits,
)
from scaling.analytic.schedule import NO_COLLECTIVES, PHASES, ScheduledCollectives, Traffic
from scaling.analytic.step import StepSizes
from scaling.analytic.weight_kernels import (
    casts,
    gradient_sums,
    layer_elements,
    quantized,
    widened,
)
from scaling.analytic.weights import ATTENTION, MLP
from scaling.analytic.xla_choices import XLA
from scaling.analytic.zigzag import zigzag_attention
from scaling.program.ir import Kernel, Loop, Number, Operation, Phase

RING = "ring"


@dataclass(frozen=True)
class Layer:
    """One layer of a step, with experts or without; `runs` times per step, forward and backward."""

    step: StepSizes
    traffic: Traffic
    flash: float  # see `analytic_program`
    moe: bool
    layers: int
    edge: bool = False  # in the microbatch beside which weights are gathered and gradients summed

    @property
    def runs(self) -> Number:
        """Passes of a device through such layers."""
        return self.step.passes(self.layers)

    def forward(self) -> list[Operation]:
        """The forward pass."""
        return self._named(self._forward("forward", "forward"))

    def again(self) -> list[Operation]:
        """The forward pass of a pipeline's tick that runs again."""
        return self._named(self._forward("remat", "again"), "again ")

    def backward(self) -> list[Operation]:
        """What remat computes again, and the backward pass."""
        return self._named(self._backward())

    @cached_property
    def products(self) -> list[Product]:
        """The products of weights."""
        return layer_products(self.step, self.moe)

    def _of(self, part: str, last: bool) -> list[Product]:
        """The products of a part: its last one, or those before."""
        return [p for p in self.products if p.part == part and p.is_last == last]

    def _sent(self, place: str, hidden: float | None = None) -> ScheduledCollectives:
        """The collectives of a place; `hidden` None: as over tensor."""
        share = self.step.traits.hidden_tensor if hidden is None else hidden
        return self.traffic.at_place(place, self.runs, share, self.moe)

    def _with_once(self, place: str, once: str) -> ScheduledCollectives:
        """What weights send at a place, with a layer's part of what moves once per step."""
        share, runs = self.step.traits.hidden_weights, self.step.stored(self.layers)
        sent = self._sent(place, share)
        if not self.edge:
            return sent
        return sent.merged(self.traffic.at_place(once, runs, share, self.moe))

    def _named(self, block: list[Operation], before: str = "") -> list[Operation]:
        """The block with kernels that no other block has the names of."""
        after = " of experts" * self.moe

        def named(op: Operation) -> Operation:
            if isinstance(op, Loop):
                return replace(op, body=tuple(map(named, op.body)))
            waited_for = not isinstance(op, Kernel) or op.asynchronous  # by its name
            return op if waited_for else replace(op, name=f"{before}{op.name}{after}")

        return [named(op) for op in block]

    def _forward(self, phase: Phase, place: str) -> list[Operation]:
        step, moe = self.step, self.moe
        weights = {
            part: self._with_once(f"{place} {part} weights", f"start {part}")
            for part in (ATTENTION, MLP)
        }
        # A tick that runs again saves its activations the second time only.
        times = 1 if place == "again" else 1 - step.recompute
        copies = leaving(step, moe, place, times)
        ahead = self._to_last_product(phase, place, weights, offloads=copies)
        if place == "again" and step.one_layer:
            return [*ahead, *waits(copies)]
        down = [forward(step, p, phase) for p in self._of(MLP, True)]
        back = self._experts(f"{place} experts back", phase)
        if step.is_own_trainer:  # copies what it saves while results are summed
            saved = saved_bytes(step, moe) * times
            saves = [kernels.stack_copies(step, f"{place} saves", "forward", saved)]
            out = [*down, *back, *self._sent(f"{place} mlp out").wrap(saves)]
        else:
            out = [*self._leaving(f"{place} mlp out", down), *back]
        return [*ahead, *adapter_kernels(step, moe, phase), *out, *waits(copies)]

    def _to_last_product(
        self,
        phase: Phase,
        place: str,
        weights: Mapping[str, ScheduledCollectives],
        times: Callable[[Product], Number] = lambda product: 1,
        core: Number = 1,
        others: Number = 1,
        offloads: Mapping[str, Kernel] = MappingProxyType({}),
    ) -> list[Operation]:
        """The forward pass but its last product; weights are fetched one product ahead.

        Args:
            weights: fetched for attention and for MLP.
            times: 0 for a product that does not run, else 1; `core` says so of the attention's
                core, `others` of norms, activation and the exchange of experts.
            offloads: copies to the host of what a part saves.
        """
        step, moe, own_trainer = self.step, self.moe, self.step.is_own_trainer
        run = lambda products: [forward(step, p, phase, times(p)) for p in products]
        norm = lambda part: kernels.norm(step, f"{part} norm", phase, part, others)
        cast = lambda part: casts(step, moe, part, phase) if phase == "forward" else []
        offload = lambda part: [offloads[part]] if part in offloads else []
        # Flash attention of the trainer needs rotated queries and keys, which remat makes again
        # with their products.
        rotated = times(self._of(ATTENTION, False)[-1]) if own_trainer and self.flash else core
        rows = rows_again(step) if phase == "remat" else others
        first, *fetched = self._by_product(weights[MLP])
        mlp: list[Operation] = []
        for product, ahead in zip(run(self._of(MLP, False)), fetched, strict=True):
            mlp += [*ahead.issued, product, *ahead.waits]
        return [
            *weights[ATTENTION].issued,
            norm(ATTENTION),
            *(quantized(step, self.products, phase) if phase == "forward" else []),
            *cast(ATTENTION),
            *weights[ATTENTION].waits,
            *self._entering(f"{place} attention in", run(self._of(ATTENTION, False))),
            kernels.rotation(step, phase, rotated),
            *self._attention(place, phase, core),
            *offload(ATTENTION),
            *first.issued,
            *self._leaving(f"{place} attention out", run(self._of(ATTENTION, True))),
            norm(MLP),
            *cast(MLP),
            *first.waits,
            *self._sent(f"{place} router", 0.0).exposed,
            *self._experts(f"{place} experts out", phase, rows),
            *self._entering(f"{place} mlp in", mlp),
            *offload(MLP),
            kernels.activation(step, moe, phase, others),
        ]

    def _by_product(self, sent: ScheduledCollectives) -> list[ScheduledCollectives]:
        """What is sent for the weights of the MLP, for each of its products."""
        count = len(self._of(MLP, False)) + 1
        return sent.split(count, layer_elements(self.step, self.moe, MLP) * self.step.itemsize)

    def _backward(self) -> list[Operation]:
        step, moe = self.step, self.moe
        inputs = lambda part, last: [of_inputs(step, p) for p in self._of(part, last)]
        weights = lambda part, last: [of_weights(step, p) for p in self._of(part, last)]
        norm = lambda part: kernels.norm(step, f"{part} norm", "backward", part)
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
        core = self._attention("backward", "backward")
        # Saved activations out of the stacks of all layers, by the trainer's scan.
        saved = saved_bytes(step, moe, READ_IN_PLACE)
        restores = kernels.stack_copies(step, "restores", "backward", saved)
        return [
            *from_host.values(),
            *first.issued,
            *casts(step, moe, MLP, "backward"),
            *casts(step, moe, ATTENTION, "backward"),
            *quantized(step, self.products, "backward"),
            *([restores] if step.is_own_trainer else []),
            *waits(from_host, REMAT),
            *self._remat({p: sent.masked(again[p], "again") for p, sent in fetched.items()}),
            *self._experts("backward experts back", "backward"),
            *self._entering("backward mlp out", mlp),
            *kernels.sum_of_inputs(step, MLP, len(entering)),
            *self._transposed("backward mlp in"),
            *self._sent("backward mlp in").wrap(weights(MLP, True), first=False),
            *sums.of_last.issued,
            *self._experts("backward experts out", "backward"),
            *self._sent("backward router", 0.0).exposed,
            norm(MLP),
            *self._transposed("backward attention out"),
            *self._sent("backward attention out").wrap(of_entering),
            *later[ATTENTION].waits,
            *inputs(ATTENTION, True),
            *waits(from_host, ATTENTION),
            *sums.beside_core.issued,
            *core,
            kernels.rotation(step, "backward"),
            *inputs(ATTENTION, False),
            *kernels.sum_of_inputs(step, ATTENTION, len(self._of(ATTENTION, False))),
            *self._transposed("backward attention in"),
            *self._sent("backward attention in").wrap(weights(ATTENTION, False), first=False),
            *weights(ATTENTION, True),
            *adapter_kernels(step, moe, "backward"),
            *widened(step, moe),
            *sums.beside_core.waits,
            *(wait for sent in (sums.of_last, *sums.of_entering) for wait in sent.waits),
            *sums.of_attention.wrap([norm(ATTENTION), gradient_sums(step, moe)], first=False),
            *sums.alone.exposed,
            *self._sent("backward vectors", 0.0).exposed,
        ]

    def _gradient_sums(self) -> "GradientSums":
        """The scatters and sums of gradients, in one call where XLA joins them."""
        step = self.step
        mlp = self._with_once("backward mlp gradients", "end mlp")
        attention = self._with_once("backward attention gradients", "end attention")
        hidden = ScheduledCollectives(beside=mlp.beside)
        alone = ScheduledCollectives(alone=mlp.alone)
        if not step.is_own_trainer:
            last, *entering = self._by_product(hidden)
            return GradientSums(last, entering, attention, NO_COLLECTIVES, alone)
        whole = layer_elements(step, self.moe) * step.itemsize
        most = np.where(step.shape.fsdp > 1, XLA.combined * step.shape.fsdp, XLA.joined)
        joined = np.less_equal(whole, most) * 1
        last, *entering = self._by_product(hidden.masked(1 - joined))
        # XLA moves these into the next iteration (scaling.compile.options).
        carried = attention.merged(hidden.masked(joined, "joined")).merged(last)
        return GradientSums(NO_COLLECTIVES, entering, NO_COLLECTIVES, carried, alone)

    def _remat(self, weights: Mapping[str, ScheduledCollectives]) -> list[Operation]:
        """What is computed again before the backward pass, by the policy of each configuration."""
        step, again = self.step, self.step.repeats_layer
        own_trainer = step.is_own_trainer
        core = step.recomputes("values") if own_trainer and self.flash else step.recomputes_some
        times = lambda product: product.recomputed
        found = self._to_last_product("remat", "remat", weights, times, core, again)
        if own_trainer:  # nothing needs the last product
            return found
        down = [forward(step, p, "remat", p.recomputed) for p in self._of(MLP, True)]
        back = self._experts("remat experts back", "remat", again)
        return [*found, *self._leaving("remat mlp out", down), *back]

    def _fetched_again(self, part: str) -> Number:
        """1 where remat multiplies by all weights of a part, but for the layer's last."""
        own = self._of(part, False) + (self._of(part, True) if part == ATTENTION else [])
        return reduce(np.minimum, (product.recomputed for product in own))

    def _attention(self, place: str, phase: Phase, times: Number = 1) -> list[Operation]:
        """The attention's core, with the exchange of keys and values over context."""
        step, is_ring = self.step, self.step.run.context.method == RING
        where, own_trainer = f"{place} attention", self.step.is_own_trainer
        if not (own_trainer and "context" in step.active_axes):
            kept = 1 - step.recomputes("values") if place == "remat" and own_trainer else 0
            core = kernels.attention(step, phase, self.flash, times, kept)
            return self._sent(where, 1.0 if is_ring else 0.0).wrap(core)
        if not is_ring:
            return zigzag_attention(step, phase, self.flash, self._sent(where, 1.0), times)
        sent, calls = self.traffic.first_call(where, self.runs, self.moe)
        return zigzag_attention(step, phase, self.flash, sent, times, calls)

    def _entering(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """Products with what tensor gathers before them."""
        return self._waited_for(place).wrap([*self._transposed(place), *products])

    def _leaving(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """Products with what tensor sums after them."""
        return self._waited_for(place).wrap([*products, *self._transposed(place)], first=False)

    def _waited_for(self, place: str) -> ScheduledCollectives:
        """The collectives of a place that the trainer waits for, while others overlap some."""
        return self._sent(place, 0.0 if self.step.is_own_trainer else None)

    def _transposed(self, place: str) -> list[Kernel]:
        """The stream that tensor exchanges at a place, transposed; remat keeps it."""
        first, part, end = place.split()
        if first == "remat":
            return []
        return kernels.transposed_stream(self.step, f"{part} {end}", PHASES[first], part)

    def _experts(self, place: str, phase: Phase, times: Number = 1) -> list[Operation]:
        """Rows sorted by expert, or put back, and exchanged."""
        if not self.moe:
            return []
        name = "dispatch" if place.endswith("out") else "combine"
        sorted_rows = kernels.dispatch(self.step, name, phase, times)
        return [sorted_rows, *self._sent(place, 0.0).exposed]


@dataclass(frozen=True)
class GradientSums:
    """Scatters and sums of a layer's gradients, by what they run beside in its backward pass."""

    of_last: ScheduledCollectives  # of the MLP's last matrix, from its product to the end
    of_entering: Sequence[ScheduledCollectives]  # of each other matrix of the MLP, likewise
    of_attention: ScheduledCollectives  # beside the norm and the sums at the end
    beside_core: ScheduledCollectives  # of the layer before, beside the attention's core
    alone: ScheduledCollectives  # nothing runs beside these
