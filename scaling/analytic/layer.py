"""The kernels and collectives of one layer in order.

    forward    norm (in) q k v, attention, o (out)   norm (in) gate up, down (out)
    backward   the reverse: gradients of inputs, then those of weights, whose sums go out

In brackets what tensor exchanges. Weights over fsdp are fetched before the products ahead of them;
gradients are scattered beside the products after them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scaling.analytic import kernels
from scaling.analytic.memory import saved_bytes
from scaling.analytic.products import Product, forward, layer_products, of_inputs, of_weights
from scaling.analytic.schedule import Sent, Traffic
from scaling.analytic.step import FLOAT32, StepSizes
from scaling.analytic.weights import ATTENTION, MLP, weights_of
from scaling.models.accounting.matrices import BYTES
from scaling.program.ir import Kernel, Number, Operation, Origin, Phase

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

    def sent(self, place: str, hidden: float | None = None) -> Sent:
        """The collectives of a place; `hidden` None: as over tensor."""
        share = self.step.habits.hidden_tensor if hidden is None else hidden
        return self.traffic.at(place, self.runs, share, self.moe)

    def _once(self, place: str, share: float) -> Sent:
        """A layer's part of what moves once per step."""
        runs = self.step.stored(self.layers)
        return self.traffic.at(place, runs, share, self.moe) if self.edge else Sent((), ())

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
        new = lambda op: replace(op, name=f"{before}{op.name}{after}")
        return [new(op) if isinstance(op, Kernel) else op for op in block]

    def _forward(self, phase: Phase, place: str) -> list[Operation]:
        step, habits = self.step, self.step.habits
        run = lambda products: [forward(step, p, phase) for p in products]
        share = habits.hidden_weights
        ahead, behind = (
            self.sent(f"{place} {part} weights", share).also(self._once(f"start {part}", share))
            for part in (ATTENTION, MLP)
        )
        exchange = self.sent(f"{place} attention", 1.0 if self._is_ring else 0.0)
        out = run(self._of(ATTENTION, True))
        skips = place == "again" and step.one_layer and not self.moe
        saves = self._saves() if place == "forward" else []
        norm = lambda part: kernels.norm(step, f"{part} norm", phase, part)
        found: list[Operation] = [
            *ahead.exposed,
            *ahead.issued,
            norm(ATTENTION),
            *self._casts(ATTENTION, phase),
            *ahead.waits,
            *self._entering(f"{place} attention in", run(self._of(ATTENTION, False))),
            kernels.rotation(step, phase),
            *exchange.around(kernels.attention(step, phase, self.flash)),
            *behind.exposed,
            *behind.issued,
            *self._leaving(f"{place} attention out", out),
            norm(MLP),
            *self._casts(MLP, phase),
            *behind.waits,
            *self._router(place, phase),
            *self._entering(f"{place} mlp in", run(self._of(MLP, False))),
            kernels.activation(step, self.moe, phase),
        ]
        if skips:
            return found
        down = run(self._of(MLP, True))
        if habits.is_ours:  # what is saved is copied while results are summed
            sums = self.sent(f"{place} mlp out").around(saves)
            return [*found, *down, *self._experts_back(place, phase), *sums]
        return [
            *found,
            *self._leaving(f"{place} mlp out", down),
            *self._experts_back(place, phase),
        ]

    def _backward(self) -> list[Operation]:
        step, habits = self.step, self.step.habits
        mlp = self.sent(f"backward {MLP} weights", habits.hidden_weights)
        attention = self.sent(f"backward {ATTENTION} weights", habits.hidden_weights)
        share = habits.hidden_weights
        mlp_sums, sums = (
            self.sent(f"backward {part} gradients", share).also(self._once(f"end {part}", share))
            for part in (MLP, ATTENTION)
        )
        exchange = self.sent("backward attention", 1.0 if self._is_ring else 0.0)
        products = {
            (part, last): self._of(part, last)
            for part in (ATTENTION, MLP)
            for last in (False, True)
        }
        inputs = lambda *key: [of_inputs(step, p) for p in products[key]]
        weights = lambda *key: [of_weights(step, p) for p in products[key]]
        norm = lambda part: kernels.norm(step, f"{part} norm", "backward", part)
        core = kernels.attention(step, "backward", self.flash)
        return [
            *mlp.exposed,
            *mlp.issued,
            *attention.exposed,
            *attention.issued,
            *self._casts(MLP, "backward"),
            *self._casts(ATTENTION, "backward"),
            *self._restores(),
            *attention.waits,
            *self._remat(),
            *self._experts("backward experts back", "backward"),
            *self._entering("backward mlp out", [*mlp.waits, *inputs(MLP, True)]),
            kernels.activation(step, self.moe, "backward"),
            *inputs(MLP, False),
            *self.sent("backward mlp in").around(weights(MLP, True), first=False),
            *self._experts("backward experts out", "backward"),
            *self.sent("backward router", 0.0).exposed,
            norm(MLP),
            *self.sent("backward attention out").around(weights(MLP, False)),
            *mlp_sums.issued,
            *inputs(ATTENTION, True),
            *exchange.around(core),
            *mlp_sums.waits,
            *mlp_sums.exposed,
            kernels.rotation(step, "backward"),
            *inputs(ATTENTION, False),
            *self.sent("backward attention in").around(weights(ATTENTION, False), first=False),
            *weights(ATTENTION, True),
            *sums.around([norm(ATTENTION), *self._sums()], first=False),
            *self.sent("backward vectors", 0.0).exposed,
        ]

    def _remat(self) -> list[Operation]:
        """What is computed again before the backward pass, by the policy of each configuration."""
        step = self.step
        phase: Phase = "remat"
        ours = step.habits.is_ours
        again = step.again if ours else step.full
        core = step.full if ours and self.flash else step.again
        run = lambda part, last: [forward(step, p, "remat", p.again) for p in self._of(part, last)]
        exchange = self.sent("remat attention", 1.0 if self._is_ring else 0.0)
        found: list[Operation] = [
            kernels.norm(step, "attention norm", phase, ATTENTION, again),
            *self._entering("remat attention in", run(ATTENTION, False)),
            kernels.rotation(step, phase, step.full),
            *exchange.around(kernels.attention(step, phase, self.flash, core)),
            *self._leaving("remat attention out", run(ATTENTION, True)),
            kernels.norm(step, "mlp norm", phase, MLP, again),
            *self._router("remat", phase, again),
            *self._entering("remat mlp in", run(MLP, False)),
            kernels.activation(step, self.moe, phase, again),
            *self._leaving("remat mlp out", run(MLP, True)),
            *self._experts("remat experts back", phase, 0 if ours else again),
        ]
        return found

    @property
    def _is_ring(self) -> bool:
        return self.step.run.context.method == RING

    def _entering(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """What tensor gathers before products: the trainer waits for it, others overlap some."""
        sent = self.sent(place, 0.0 if self.step.habits.is_ours else None)
        return sent.around(products)

    def _leaving(self, place: str, products: Sequence[Operation]) -> list[Operation]:
        """What tensor sums after products."""
        sent = self.sent(place, 0.0 if self.step.habits.is_ours else None)
        return sent.around(products, first=False)

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

    def _experts_back(self, place: str, phase: Phase) -> list[Operation]:
        return self._experts(f"{place} experts back", phase)

    def _casts(self, part: str, phase: Phase) -> list[Operation]:
        """Stored weights in compute format, before they are gathered."""
        step = self.step
        if BYTES[step.run.precision.parameters] == step.itemsize:  # fp16 is written as bf16
            return []
        size = self._elements(part) * (FLOAT32 + step.itemsize)
        shards = step.zero(3) / step.shape.fsdp + (1 - step.zero(3))
        origin = Origin(phase, f"layers/{part}")
        return [kernels.fusion(step, f"{phase} {part} cast", origin, size * shards, operations=1)]

    def _sums(self) -> list[Operation]:
        """Gradients of weights, into the arrays of all layers."""
        step = self.step
        shards = step.zero(2, 3) / step.shape.fsdp + step.zero(0, 1)
        moved = sum(self._elements(part) for part in (ATTENTION, MLP)) * shards
        sums = FLOAT32 if step.habits.is_ours else 2 * BYTES[step.run.precision.gradients]
        moved = moved * (step.itemsize + sums)
        return [kernels.fusion(step, "backward gradients", Origin("backward", "layers"), moved)]

    def _elements(self, part: str) -> float:
        """Weights of a part of this layer on a device, whole over fsdp."""
        own = (w for w in weights_of(self.step) if (w.part, w.moe) == (part, self.moe))
        return sum(w.elements for w in own)

    def _saves(self) -> list[Operation]:
        """Saved activations into the stacks of all layers, by the trainer's scan."""
        if not self.step.habits.is_ours:
            return []
        return [kernels.copies(self.step, "saves", "forward", saved_bytes(self.step, self.moe))]

    def _restores(self) -> list[Operation]:
        if not self.step.habits.is_ours:
            return []
        return [kernels.copies(self.step, "restores", "backward", saved_bytes(self.step, self.moe))]
