"""The blocks of a step in closed form: what a device does, in order.

    our trainer      microbatches (forward, backward), sums of gradients, optimiser; with stages
                     every stage computes in every tick (`scaling.models.pipeline`)
    other software   a stage's microbatches one after the other, and before them the bubble: what
                     the other stages do with one microbatch while this one waits

The bubble of S stages that take t each, with V virtual stages, is (S - 1) t / V (arXiv 2104.04473,
section 2.2). zero_bubble computes gradients of weights in it (ZB-H1, arXiv 2401.10241, section
3.1): what is left is a forward and a backward pass less twice the gradients of weights, whose
products are those of a forward pass, so a forward pass and the backward pass of attention's core.
DualPipe, whose microbatches enter at both ends, has (S / 2 - 1) (F&B + B - 3 W) for a forward and a
backward pass side by side, one backward pass and three gradients of weights (arXiv 2412.19437,
table 2): a forward pass, one of its products, and twice the backward pass of attention's core.

Pairs (`StepSizes.pairs`): the layers of one microbatch go forward beside those of another backward;
what both exchange with their experts is in flight for as long. A few microbatches have none beside.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.attention import core_kernels
from scaling.analytic.layer import Layer
from scaling.analytic.memory import buffers
from scaling.analytic.products import of_inputs
from scaling.analytic.schedule import Traffic
from scaling.analytic.step import StepSizes, Transfer
from scaling.analytic.table import transfers
from scaling.program.ir import (
    Block,
    Buffer,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    as_float,
    some,
)


@dataclass(frozen=True)
class Blocks:
    """A step of other software as blocks of operations; `XlaBlocks` are the trainer's."""

    step: StepSizes
    mark: str = ""  # of its layers
    layer: ClassVar[type[Layer]] = Layer
    once_parts: ClassVar[tuple[str, ...]] = "", " embed", " head"  # of places, due once per step
    once_runs: ClassVar[int | None] = 1  # None: equal ones are one call

    def program(self) -> Program:
        """The Program of the whole step."""
        step = self.step
        return Program(
            step.run.name,
            "analytic",
            step.shape.sizes,
            schedule=_tidy((*self.schedule(), *kernels.update(step))),
            buffers=tuple(self.buffers.values()),
            is_xla=step.is_own_trainer,
        )

    @cached_property
    def traffic(self) -> Traffic:
        """The transfers of the table, as collectives by place."""
        return Traffic(self.step, self.transfers())

    def transfers(self) -> Iterable[Transfer]:
        """The transfers of the table as they are made."""
        return transfers(self.step)

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """The memory of the step."""
        return buffers(self.step)

    def layers(self, edge: bool = False, paired: bool = False) -> list[Layer]:
        """One layer of each kind that the model has."""
        kinds, mark = self.step.layer_kinds, self.mark
        made = partial(self.layer, self.step, self.traffic)
        return [made(moe, n, edge, mark, paired) for moe, n in kinds]

    @cached_property
    def kept(self) -> "Blocks | None":
        """The blocks of the layers that keep everything, where the others compute all again."""
        return replace(self, step=self.step.kept, mark=" kept") if self.step.is_partial else None

    def schedule(self) -> list[Operation]:
        """The microbatches in turn, after the bubble; beside the last ones it communicates once."""
        step, turns = self.step, self.step.takes_turns
        paired = self.microbatch(edge=True, paired=step.pairs)
        last = paired if turns else self.microbatch(edge=True)  # has none beside
        others = step.microbatches - step.edges
        unpaired = step.unpaired - step.pairs * (not turns)
        alone = np.minimum(unpaired, others)
        rest = unpaired - alone  # more than there are before the last ones
        heads = step.microbatches // 2 * step.stages.head
        return [
            *self.once("start"),
            *(self.bubble() if "stage" in step.active_axes else []),
            self.loop("microbatches with none beside", alone, self.microbatch()),
            # Half of DualPipe's microbatches end on a device that the others begin on.
            *([self.loop("loss", heads, self.head())] if step.is_dualpipe else []),
            self.loop("microbatches", others - alone, _without_once(paired)),
            *([self.loop("last with none beside", rest, self.microbatch(edge=True))] * step.pairs),
            *([self.loop("last microbatches", step.edges - rest, last)] if turns else last),
            *self.once("end"),
        ]

    def microbatch(self, edge: bool = False, paired: bool = False) -> list[Operation]:
        """The forward and backward pass of one microbatch on the fullest stage; `paired`: the
        backward pass of another in place of its own."""
        step = self.step
        hides = step.traits.hides_pipeline and step.virtual_stages > 1
        hidden = float(hides or (paired and step.is_dualpipe))
        send = lambda place: self.traffic.at_place(place, step.microbatches, hidden)
        ticks = send("forward tick"), send("backward tick")
        embed, embed_back = self.embed()
        loss = self.loop("loss", step.stages.head * (not step.is_dualpipe), self.head())
        if paired:
            both = self.over_layers("backward and forward", self.layer.both, edge=edge, paired=True)
            layers = [*ticks[0].merged(ticks[1]).wrap(both), loss]
        else:
            ahead = self.over_layers("forward", self.layer.forward, edge=edge)
            back = self.over_layers("backward", self.layer.backward, edge=edge)
            layers = [*ticks[0].wrap(ahead), loss, *ticks[1].wrap(back[::-1])]
        return [
            *self.alone("forward embed weights", step.microbatches),
            *embed,
            *layers,
            self.loop("look-ups backward", 1, embed_back),
        ]

    def over_layers(
        self,
        name: str,
        of_layer: Callable[..., list[Operation]],
        parts: int = 1,
        edge: bool = False,
        paired: bool = False,
    ) -> list[Operation]:
        """A loop over the layers of each kind on a device, or over one of `parts` of them."""
        step, found = self.step, []
        for i, layer in enumerate(self.layers(edge, paired)):
            title = f"{name} {'layers with experts' if layer.moe else 'layers'}"
            again = step.again(layer.layers)
            found.append(self.loop(title, again // parts, of_layer(layer)))
            if self.kept:
                others = step.worked(layer.layers) - again
                body = of_layer(self.kept.layers(edge, paired)[i])
                found.append(self.loop(f"{title} kept", others, body))
        return found

    def bubble(self) -> list[Operation]:
        """Return the operations of one microbatch on the other stages, for which this one waits."""
        step, layer = self.step, self.layers()[-1]
        own = step.worked(step.config.n_layers)
        others: Number = step.config.n_layers - own
        if step.is_dualpipe:
            others = (step.shape.stage / 2 - 1) * own
        trips = as_float(np.rint(others / step.virtual_stages))
        elsewhere = 1 - step.stages.head
        core = core_kernels(step, "backward")

        def body(of: Layer) -> list[Operation]:
            if step.is_dualpipe:
                products = [of_inputs(step, product) for product in of.products]
                return [*of.forward(), *products, *core, *core]
            is_zero = step.run.pipeline.schedule == "zero_bubble"
            return [*of.forward(), *(core if is_zero else of.backward())]

        kept: list[Operation] = []
        if self.kept:
            again = np.ceil((step.stages.all_again - step.stages.again) / step.virtual_stages)
            again = np.where(np.isfinite(step.grid.again), np.minimum(again, trips), trips)
            rest, trips = trips - again, as_float(again)
            kept = [self.loop("bubble kept", rest, body(self.kept.layers()[-1]), rest)]
        hops = [self.alone(f"{way} tick", step.iterations) for way in ("forward", "backward")]
        return [
            self.loop("bubble", trips, body(layer), trips),
            *kept,
            self.loop("pipeline fill", step.shape.stage - 1, [*hops[0], *hops[1]]),
            self.loop("bubble of the head", elsewhere, self.head(), elsewhere),
        ]

    def embed(self) -> tuple[list[Operation], list[Operation]]:
        """The look-up of one microbatch's tokens, and the gradient of the table."""
        step, runs, hidden = self.step, self.step.embeddings, self.step.traits.hidden_weights
        ahead, back = kernels.embedding(step)
        gradients = self.traffic.at_place("backward embed gradients", runs, hidden)
        backward = [*self.alone("backward embed", runs), *gradients.wrap([back], first=False)]
        return [ahead, *self.alone("forward embed", runs)], backward

    def head(self) -> list[Operation]:
        """Final norm, logits and loss of one microbatch, by chunks, with their gradients."""
        step, M, hidden = self.step, self.step.microbatches, self.step.traits.hidden_weights
        before, (chunk, logits, *rest), after = kernels.head(step)
        statistics = self.alone("forward loss", M * step.loss_chunks)
        return [
            *self.traffic.at_place("forward head weights", M, hidden).wrap(before),
            *self.alone("forward head", M),
            self.loop("chunks", step.loss_chunks, [chunk, logits, *statistics, *rest]),
            *self.alone("backward head", M),
            *self.traffic.at_place("backward head gradients", M, hidden).wrap(after, first=False),
            *self.alone("backward head vectors", M),
        ]

    def once(self, place: str) -> list[Operation]:
        """Transfers of a whole step; those that run beside a microbatch are left to its layers."""
        every = [(f"{place}{part}", moe) for part in self.once_parts for moe in (False, True)]
        return [call for part, moe in every for call in self.alone(part, self.once_runs, moe)]

    def alone(self, place: str, runs: Number | None, moe: bool = False) -> list[Operation]:
        """The transfers of a place, with nothing beside them."""
        return self.traffic.at_place(place, runs, moe=moe).exposed

    def loop(
        self, name: str, trips: Number, body: Sequence[Operation], bubble: Number = 0
    ) -> Operation:
        """A loop that uses the buffers which its name says."""
        at = {buffer: i for i, buffer in enumerate(self.buffers)}
        find = lambda table: tuple(at[b] for b in buffers_of_loop(name, table) if b in at)
        return Loop(
            name,
            reads=find(READS),
            writes=find(WRITES),
            body=tuple(body),
            trips=trips,
            bubble_trips=bubble,
        )


# Buffers that loops read and write, by the beginnings of the loops' names.
READS = {
    "loss": "activations, streams of ticks, turned weights, sums of gradients",
    "look-ups": "gradients, gradients of the head",
    "look-ups in turn": "activations, turned weights, turned tables, sums of ticks, "
    "gradients of a tick",
    "backward": "activations, streams of ticks, sums of gradients, sums of table gradients, "
    "gradients of the head in turn, offloaded",
}
WRITES = {
    "forward": "activations, streams of ticks, gathered weights, sums of gradients, "
    "turned weights, turned tables, made by a tick, offloaded",
    "loss": "logits, logits of the teacher, gathered head of the teacher, "
    "gradients of logits, gathered head, turned head, gathered weights, gradients, "
    "sums of table gradients, gradients of logits in turn, gradients of the head, "
    "gradients of the head in turn",
    "look-ups": "gradients of the token table",
    "backward": "copy of a stack, gradients, gathered weights, backward of a layer, "
    "turned weights, activations of a tick, saved of a tick, outputs of ticks, sums of ticks, "
    "gradients of a tick, gradients of a microbatch, flattened weights, "
    "logits of the last stage",
}


def buffers_of_loop(loop: str, table: Mapping[str, str]) -> list[str]:
    """Names of the buffers that READS or WRITES has for a loop."""
    texts = [text for beginning, text in table.items() if loop.startswith(beginning)]
    return [name for text in texts for name in text.split(", ")]


def _without_once(block: Sequence[Operation]) -> list[Operation]:
    """Return the block without what is sent once per step, whose places begin so."""
    every = [op for op in block if not op.name.startswith(("start ", "end "))]
    inside = lambda op: replace(op, body=tuple(_without_once(op.body)))
    return [inside(op) if isinstance(op, Loop) else op for op in every]


def _tidy(block: Block) -> Block:
    """The block without operations that no configuration runs."""
    found: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            # The slowest stage may have no layers; those of the fullest one keep their memory.
            body = _tidy(op.body) if some(op.trips) or op.writes else ()
            if not body:
                continue
            op = replace(op, body=body)
        elif isinstance(op, Kernel) and not (some(op.flops) or some(op.bytes)):
            continue
        found.append(op)
    return tuple(found)
