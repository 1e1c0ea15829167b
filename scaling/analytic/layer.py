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
from scaling.analytic.host_copies import REMAT, leaving, returning, waits
from scaling.analytic.products import Product, forward, layer_products, of_inputs, of_weights
from scaling.analytic.saved import READ_IN_PLACE, saved_bytes
from scaling.analytic.schedule import ScheduledCollectives, Traffic
from scaling.analytic.step import FLOAT32, StepSizes
from scaling.analytic.weights import ATTENTION, MLP, weights_of
from scaling.analytic.xla_choices import XLA
from scaling.analytic.zigzag import zigzag_attention
from scaling.models.accounting.matrices import BYTES
from scaling.program.ir import Kernel, Loop, Number, Operation, Origin, Phase

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

    @cached_property
    def products(self) -> list[Product]:
        """The products of weights."""
        return layer_products(self.step, self.moe)

    def _of(self, part: str, last: bool) -> list[Product]:
        return [p for p in self.products if p.part == part and p.is_last == last]

    def sent(self, place: str, hidden: float | None = None) -> ScheduledCollectives:
        """The collectives of a place; `hidden` None: as over tensor."""
        share = self.step.traits.hidden_tensor if hidden is None else hidden
        return self.traffic.at_place(place, self.runs, share, self.moe)

    def _once(self, place: str, share: float) -> ScheduledCollectives:
        """A layer's part of what moves once per step."""
        runs = self.step.stored(self.layers)
        return (
            self.traffic.at_place(place, runs, share, self.moe)
            if self.edge
            else ScheduledCollectives((), ())
        )

    def forward(self) -> list[Operation]:
        """The forward pass."""
        return self._named(self._forward("forward", "forward"))

    def again(self) -> list[Operation]:
        """The forward pass of a pipeline's tick that runs again."""
        return self._named(self._forward("remat", "again"), "again ")

    def backward(self) -> list[Operation]:
        """What remat computes again, and the backward pass."""
        return self._named(self._backward())

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
        step, share = self.step, self.step.traits.hidden_weights
        weights = {
            part: self.sent(f"{place} {part} weights", share).merged(
                self._once(f"start {part}", share)
            )
            for part in (ATTENTION, MLP)
        }
        # Of a tick that runs again only the second time is saved.
        times = 1 if place == "again" else 1 - step.recompute
        saves = self._saves(place, times)
        copies = leaving(step, self.moe, place, times)
        ahead = self._ahead(phase, place, weights, offloads=copies)
        if place == "again" and step.one_layer:
            return [*ahead, *waits(copies)]
        low_rank = adapter_kernels(step, self.moe, phase)
        return [*ahead, *low_rank, *self._out(phase, place, saves), *waits(copies)]

    def _ahead(
        self,
        phase: Phase,
        place: str,
        weights: Mapping[str, ScheduledCollectives],
        times: Callable[[Product], Number] = lambda product: 1,
        core: Number = 1,
        norms: Number = 1,
        offloads: Mapping[str, Kernel] = MappingProxyType({}),
    ) -> list[Operation]:
        """Everything forward but the last product; weights are fetched one product ahead.

        `times` masks products, `core` the attention's core, and `norms` the other operations.
        `offloads` copy what a part saves to the host.
        """
        leaves = lambda part: [offloads[part]] if part in offloads else []
        step = self.step
        run = lambda products: [forward(step, p, phase, times(p)) for p in products]
        # Of the trainer's flash attention queries and keys are rotated where they are made again.
        rotates = step.traits.is_own_trainer and self.flash
        rows = rows_again(step) if phase == "remat" else norms
        turned = times(self._of(ATTENTION, False)[-1]) if rotates else core
        entering = run(self._of(MLP, False))
        first, *others, last = self._by_product(weights[MLP])
        mlp: list[Operation] = []
        for product, fetched in zip(entering, [*others, last], strict=True):
            mlp += [*fetched.issued, product, *fetched.waits]
        norm = lambda part: kernels.norm(step, f"{part} norm", phase, part, norms)
        return [
            *weights[ATTENTION].issued,
            norm(ATTENTION),
            *(self._quantized(phase) if phase == "forward" else []),
            *(self._casts(ATTENTION, phase) if phase == "forward" else []),
            *weights[ATTENTION].waits,
            *self._entering(f"{place} attention in", run(self._of(ATTENTION, False))),
            kernels.rotation(step, phase, turned),
            *self._attention(place, phase, core),
            *leaves(ATTENTION),
            *first.issued,
            *self._leaving(f"{place} attention out", run(self._of(ATTENTION, True))),
            norm(MLP),
            *(self._casts(MLP, phase) if phase == "forward" else []),
            *first.waits,
            *self._router(place, phase, rows),
            *self._entering(f"{place} mlp in", mlp),
            *leaves(MLP),
            kernels.activation(step, self.moe, phase, norms),
        ]

    def _by_product(self, sent: ScheduledCollectives) -> list[ScheduledCollectives]:
        """What is sent for the weights of the MLP, for each of its products."""
        products = self._of(MLP, False)
        return sent.split(len(products) + 1, self._elements(MLP) * self.step.itemsize)

    def _out(self, phase: Phase, place: str, beside: Sequence[Operation]) -> list[Operation]:
        """The last product; what the trainer saves is copied while results are summed."""
        down = [forward(self.step, p, phase) for p in self._of(MLP, True)]
        back = self._experts(f"{place} experts back", phase)
        if self.step.traits.is_own_trainer:
            return [*down, *back, *self.sent(f"{place} mlp out").wrap(beside)]
        return [*self._leaving(f"{place} mlp out", down), *back]

    def _backward(self) -> list[Operation]:
        step, traits = self.step, self.step.traits
        of = lambda part, last: self._of(part, last)
        inputs = lambda part, last: [of_inputs(step, p) for p in of(part, last)]
        weights = lambda part, last: [of_weights(step, p) for p in of(part, last)]
        norm = lambda part: kernels.norm(step, f"{part} norm", "backward", part)
        fetched = {
            part: self.sent(f"backward {part} weights", traits.hidden_weights)
            for part in (ATTENTION, MLP)
        }
        # Where all its products are computed again, that has fetched them already.
        again = {part: self._fetched_again(part) for part in fetched}
        later = {part: sent.masked(1 - again[part], "later") for part, sent in fetched.items()}
        entering = inputs(MLP, False)
        first, *others = self._by_product(later[MLP])
        mlp: list[Operation] = [*first.waits, *others[0].issued, *inputs(MLP, True)]
        fetches = returning(step, self.moe)
        mlp += waits(fetches, MLP)
        mlp.append(kernels.activation(step, self.moe, "backward"))
        for product, own, ahead in zip(
            entering, others, [*others[1:], later[ATTENTION]], strict=True
        ):
            mlp += [*own.waits, *ahead.issued, product]
        share = traits.hidden_weights
        summed, sums = (
            self.sent(f"backward {part} gradients", share).merged(self._once(f"end {part}", share))
            for part in (MLP, ATTENTION)
        )
        whole = sum(self._elements(part) for part in (ATTENTION, MLP)) * step.itemsize
        most = np.where(step.shape.fsdp > 1, XLA.combined * step.shape.fsdp, XLA.joined)
        joined = traits.is_own_trainer * np.less_equal(whole, most)
        late, summed = summed.exposed, ScheduledCollectives(summed.beside, ())
        whole_sum = summed.masked(joined, "joined")
        first_sum, *other_sums = self._by_product(summed.masked(1 - joined))
        core, ends = self._attention("backward", "backward"), list[Operation]()
        if (
            traits.is_own_trainer
        ):  # XLA moves these into the next iteration (scaling.compile.options)
            carried = sums.merged(whole_sum).merged(first_sum)
            core, ends = [*carried.issued, *core], carried.waits
            sums, first_sum = ScheduledCollectives((), ()), ScheduledCollectives((), ())
        of_entering: list[Operation] = []
        for product, own in zip(weights(MLP, False), other_sums, strict=True):
            of_entering += [product, *own.issued]
        ends += [wait for sent in (first_sum, *other_sums) for wait in sent.waits]
        return [
            *fetches.values(),
            *first.issued,
            *self._casts(MLP, "backward"),
            *self._casts(ATTENTION, "backward"),
            *self._quantized("backward"),
            *self._restores(),
            *waits(fetches, REMAT),
            *self._remat({p: sent.masked(again[p], "again") for p, sent in fetched.items()}),
            *self._experts("backward experts back", "backward"),
            *self._entering("backward mlp out", mlp),
            *kernels.sum_of_inputs(step, MLP, len(entering)),
            *self._turned("backward mlp in"),
            *self.sent("backward mlp in").wrap(weights(MLP, True), first=False),
            *first_sum.issued,
            *self._experts("backward experts out", "backward"),
            *self.sent("backward router", 0.0).exposed,
            norm(MLP),
            *self._turned("backward attention out"),
            *self.sent("backward attention out").wrap(of_entering),
            *later[ATTENTION].waits,
            *inputs(ATTENTION, True),
            *waits(fetches, ATTENTION),
            *core,
            kernels.rotation(step, "backward"),
            *inputs(ATTENTION, False),
            *kernels.sum_of_inputs(step, ATTENTION, len(of(ATTENTION, False))),
            *self._turned("backward attention in"),
            *self.sent("backward attention in").wrap(weights(ATTENTION, False), first=False),
            *weights(ATTENTION, True),
            *adapter_kernels(step, self.moe, "backward"),
            *self._widened(),
            *ends,
            *sums.wrap([norm(ATTENTION), *self._sums()], first=False),
            *late,
            *self.sent("backward vectors", 0.0).exposed,
        ]

    def _remat(self, weights: Mapping[str, ScheduledCollectives]) -> list[Operation]:
        """What is computed again before the backward pass, by the policy of each configuration."""
        step, ours, again = self.step, self.step.traits.is_own_trainer, self.step.repeats_layer
        core = step.recomputes("values") if ours and self.flash else step.recomputes_some
        found = self._ahead("remat", "remat", weights, lambda p: p.recomputed, core, again)
        if ours:
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
        where = f"{place} attention"
        if not (step.traits.is_own_trainer and "context" in step.active_axes):
            ours = place == "remat" and step.traits.is_own_trainer
            kept = 1 - step.recomputes("values") if ours else 0
            core = kernels.attention(step, phase, self.flash, times, kept)
            return self.sent(where, 1.0 if is_ring else 0.0).wrap(core)
        if not is_ring:
            return zigzag_attention(step, phase, self.flash, self.sent(where, 1.0), times)
        sent, calls = self.traffic.first_call(where, self.runs, self.moe)
        return zigzag_attention(step, phase, self.flash, sent, times, calls)

    def _entering(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """What tensor gathers before products: the trainer waits for it, others overlap some."""
        sent = self.sent(place, 0.0 if self.step.traits.is_own_trainer else None)
        return sent.wrap([*self._turned(place), *products])

    def _leaving(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """What tensor sums after products."""
        sent = self.sent(place, 0.0 if self.step.traits.is_own_trainer else None)
        return sent.wrap([*products, *self._turned(place)], first=False)

    def _turned(self, place: str) -> list[Kernel]:
        """What tensor exchanges at a place, turned around."""
        first, part, end = place.split()
        phase: Phase = "remat" if first in ("again", "remat") else "backward"
        phase = "forward" if first == "forward" else phase
        return (
            kernels.transposed_stream(self.step, f"{part} {end}", phase, part)
            if first != "remat"
            else []
        )

    def _router(self, place: str, phase: Phase, times: Number = 1) -> list[Operation]:
        """The router's exchange, and tokens on their way to their experts."""
        return [
            *self.sent(f"{place} router", 0.0).exposed,
            *self._experts(f"{place} experts out", phase, times),
        ]

    def _experts(self, place: str, phase: Phase, times: Number = 1) -> list[Operation]:
        """Rows sorted, and exchanged."""
        if not self.moe:
            return []
        name = "dispatch" if place.endswith("out") else "combine"
        return [
            kernels.dispatch(self.step, name, phase, times),
            *self.sent(place, 0.0).exposed,
        ]

    def _casts(self, part: str, phase: Phase) -> list[Operation]:
        """Stored weights in compute format, before they are gathered."""
        step = self.step
        precision = step.run.precision
        stored = precision.parameters if step.trains_all else precision.frozen
        if BYTES[stored] == step.itemsize:  # fp16 is written as bf16
            return []
        size = self._elements(part) * (FLOAT32 + step.itemsize)
        shards = step.is_zero_stage(3) / step.shape.fsdp + (1 - step.is_zero_stage(3))
        origin = Origin(phase, f"layers/{part}")
        return [kernels.fusion(step, f"{phase} {part} cast", origin, size * shards, operations=1)]

    def _quantized(self, phase: Phase) -> list[Kernel]:
        """Operands of 8-bit products, read in 16 bits and written in 8."""
        if self.step.run.precision.compute != "fp8":
            return []
        every = [p for p in self.products if not p.grouped]
        operands = sum(p.batch * p.inputs * (p.rows + p.outputs) for p in every)
        results = sum(p.batch * p.rows * p.outputs for p in every)
        moved = (operands + results * (phase == "backward")) * (self.step.itemsize + BYTES["fp8"])
        origin = Origin(phase, "layers/mlp")
        return [kernels.fusion(self.step, f"{phase} quantized", origin, moved)]

    def _widened(self) -> list[Operation]:
        """Gradients of weights in float32, before they are scattered: `precision.reduce`."""
        step = self.step
        if step.arising_itemsize == step.itemsize:
            return []
        scattered = step.is_zero_stage(3) * np.greater(step.shape.fsdp, 1)
        moved = sum(self._elements(part) for part in (ATTENTION, MLP)) * scattered
        moved = moved * (step.itemsize + step.arising_itemsize) * step.trains_all
        return [kernels.fusion(step, "backward widened", Origin("backward", "layers"), moved)]

    def _sums(self) -> list[Operation]:
        """Gradients of weights, into the arrays of all layers."""
        step = self.step
        shards = step.is_zero_stage(2, 3) / step.shape.fsdp + step.is_zero_stage(0, 1)
        moved = sum(self._elements(part) for part in (ATTENTION, MLP)) * shards
        passes = 1 if step.traits.is_own_trainer else 2  # others read the sum, too
        item = step.arising_itemsize + passes * step.summed_itemsize
        moved = moved * item * step.trains_all
        return [kernels.fusion(step, "backward gradients", Origin("backward", "layers"), moved)]

    def _elements(self, part: str) -> Number:
        """Weights of a part of this layer on a device, whole over fsdp."""
        own = (w for w in weights_of(self.step) if (w.part, w.moe) == (part, self.moe))
        return sum(w.elements for w in own)

    def _saves(self, place: str, times: Number) -> list[Operation]:
        """Saved activations into the stacks of all layers, by the trainer's scan."""
        if not self.step.traits.is_own_trainer:
            return []
        saved = saved_bytes(self.step, self.moe) * times
        return [kernels.stack_copies(self.step, f"{place} saves", "forward", saved)]

    def _restores(self) -> list[Operation]:
        if not self.step.traits.is_own_trainer:
            return []
        saved = saved_bytes(self.step, self.moe, READ_IN_PLACE)
        return [kernels.stack_copies(self.step, "restores", "backward", saved)]
