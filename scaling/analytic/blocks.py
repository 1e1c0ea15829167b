"""The blocks of a step in closed form: what a device does, in order.

    our trainer      microbatches (forward, backward), sums of gradients, optimiser; with stages
                     every stage computes in every tick (`scaling.models.pipeline`)
    other software   a stage's microbatches one after the other, and before them the bubble: what
                     the other stages do with one microbatch while this one waits

The bubble of S stages that take t each, with V virtual stages, is (S - 1) t / V (arXiv 2104.04473,
section 2.2). zero_bubble computes gradients of weights in it (ZB-H1, arXiv 2401.10241, section
3.1): what is left is a forward and a backward pass less twice the gradients of weights, whose
products are those of a forward pass, so a forward pass and the backward pass of attention's core.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.layer import Layer
from scaling.analytic.memory import buffers, trained_in_layers
from scaling.analytic.saved import saved_bytes
from scaling.analytic.schedule import Traffic, traffic_of
from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.analytic.table import transfers
from scaling.analytic.weights import ATTENTION, MLP, TABLES
from scaling.program.ir import (
    Block,
    Buffer,
    Kernel,
    Loop,
    Number,
    Operation,
    Program,
    as_float,
)
from scaling.run.parallelism.pipeline import recomputes


@dataclass(frozen=True)
class Step:
    """A step as blocks of operations."""

    step: StepSizes
    flash: float

    def program(self) -> Program:
        """Return the Program of the whole step."""
        step = self.step
        schedule = self.in_microbatches()
        if step.runs_in_ticks:
            schedule = self.in_turn() if step.is_1f1b else self.in_ticks()
        return Program(
            step.run.name,
            "analytic",
            step.shape.sizes,
            schedule=_tidy((*schedule, *kernels.update(step))),
            buffers=tuple(self.buffers.values()),
            is_xla=step.is_own_trainer,
        )

    @cached_property
    def traffic(self) -> Traffic:
        """The transfers of the table, as collectives by place."""
        return traffic_of(self.step, as_compiled(self.step, transfers(self.step)))

    @cached_property
    def buffers(self) -> dict[str, Buffer]:
        """The memory of the step."""
        return buffers(self.step, self.flash > 0)

    def layers(self, edge: bool = False) -> list[Layer]:
        """Return one layer of each kind that the model has."""
        step = self.step
        return [Layer(step, self.traffic, self.flash, moe, n, edge) for moe, n in step.layer_kinds]

    def in_microbatches(self) -> list[Operation]:
        """Return the microbatches in turn; other software communicates once beside the last one."""
        M, traits = self.step.microbatches, self.step.traits
        first = self._once("start", traits.hidden_weights)
        last = self._once("end", traits.hidden_weights)
        if self.step.is_own_trainer:
            every = [self._loop("microbatches", M, self.microbatch())]
        else:
            every = [
                self._loop("microbatches", M - 1, self.microbatch()),
                *self.microbatch(edge=True),
            ]
        return [*first, *(self.bubble() if "stage" in self.step.active_axes else []), *every, *last]

    def microbatch(self, edge: bool = False) -> list[Operation]:
        """Return the forward and backward pass of one microbatch on the fullest stage."""
        step = self.step
        hidden = float(step.traits.hides_pipeline and step.virtual_stages > 1)
        send = lambda place: self.traffic.at_place(place, step.microbatches, hidden)
        embed, embed_back = self.embed()
        head = self.head() if has_head(step) else []
        ahead = self._over_layers("forward", Layer.forward, edge=edge)
        back = self._over_layers("backward", Layer.backward, edge=edge)
        return [
            *self.fills(1),
            *self.traffic.at_place("forward embed weights", step.microbatches).exposed,
            *embed,
            *send("forward tick").wrap(ahead),
            self._loop("loss", 1, head),
            *send("backward tick").wrap(back[::-1]),
            self._loop("look-ups backward", 1, embed_back),
            kernels.accumulation(step),
        ]

    def fills(self, times: Number) -> list[Operation]:
        """Return the zeros of the trainer's stacks of `times` microbatches' saved activations."""
        step = self.step
        if not step.is_own_trainer:
            return []
        saved = sum(saved_bytes(step, moe) * step.stored(n) for moe, n in step.layer_kinds)
        return [kernels.zero_stacks(step, saved * times, trained_in_layers(step))]

    def _over_layers(
        self,
        name: str,
        of_layer: Callable[[Layer], list[Operation]],
        parts: int = 1,
        times: Number = 1,
        edge: bool = False,
    ) -> list[Operation]:
        """A loop over the layers of each kind on a device, or over one of `parts` of them."""
        return [
            self._loop(
                f"{name} {'layers with experts' if layer.moe else 'layers'}",
                self.step.stored(layer.layers) // parts * times,
                of_layer(layer),
            )
            for layer in self.layers(edge)
        ]

    def bubble(self) -> list[Operation]:
        """Return what the other stages do with one microbatch while this one waits."""
        step, layer = self.step, self.layers()[-1]
        others = step.config.n_layers - step.stored(step.config.n_layers)
        trips = as_float(np.rint(others / step.virtual_stages))
        core = kernels.attention(step, "backward", self.flash)
        back = core if step.run.pipeline.schedule == "zero_bubble" else layer.backward()
        found = [self._loop("bubble", trips, [*layer.forward(), *back], trips)]
        hops = [
            self.traffic.at_place(f"{way} tick", step.iterations) for way in ("forward", "backward")
        ]
        found.append(
            self._loop("pipeline fill", step.shape.stage - 1, [*hops[0].exposed, *hops[1].exposed])
        )
        if not has_head(step):
            found.append(self._loop("bubble of the head", 1, self.head(), 1))
        return found

    def in_ticks(self) -> list[Operation]:
        """Our trainer's gpipe and circular pipelines: all ticks forward, the head of each
        microbatch, all ticks backward."""
        step = self.step
        M, T, idle = step.microbatches, step.iterations, step.shape.stage - 1
        tick = lambda place: self.traffic.at_place(place, T, 0.0).exposed
        once = lambda place: self.traffic.at_place(place, 1).exposed
        V = step.virtual_stages
        ahead = self._over_layers("forward", Layer.forward, V)
        twice = self._over_layers("again", Layer.again, V, step.recompute)
        back = self._over_layers("backward", Layer.backward, V)
        again = recomputes(step.run)
        embed, embed_back = self.embed()
        stacks = self.fills(T / V) if not again else []
        stacks_of_tick = self.fills(1 / V) if again else []
        backward = [
            *stacks_of_tick,
            *twice,
            *back,
            *tick("backward tick"),
            kernels.accumulation(step),
        ]
        return [
            *self._once("start", 0.0),
            *stacks,
            *once("forward embed weights"),
            self._loop("embedding", M, embed),
            self._loop("forward ticks", T, [*tick("forward tick"), *ahead], idle),
            *once("forward outputs"),
            self._loop("loss", M, self.head()),
            *once("backward outputs"),
            self._loop("backward ticks", T, backward, idle),
            self._loop("embedding backward", M, embed_back),
            *self._once("end", 0.0),
        ]

    def in_turn(self) -> list[Operation]:
        """Return our trainer's 1F1B: ticks forward, with head and backward pass, backward."""
        step = self.step
        M, T, idle = step.microbatches, step.iterations, step.shape.stage - 1
        hop = {way: self.traffic.at_place(f"{way} tick", T, 1.0) for way in ("forward", "backward")}
        alone = lambda place, runs: self.traffic.at_place(place, runs).exposed
        saved = sum(saved_bytes(step, moe) * step.stored(n) for moe, n in step.layer_kinds)
        embed, embed_back = self.embed()
        forward = [
            *alone("forward embed weights", T),
            *embed,
            *self.fills(1),
            *self._over_layers("forward", Layer.forward),
            kernels.stack_copies(step, "slot", "forward", saved),
        ]
        backward = [
            kernels.stack_copies(step, "slot", "backward", saved),
            *self._over_layers("backward", Layer.backward),
            self._loop("look-ups in turn", 1, embed_back),
            kernels.accumulation(step),
        ]
        steady = [
            *hop["backward"].issued,
            *forward,
            *hop["backward"].waits,
            *hop["forward"].issued,
            *alone("forward outputs", M),
            self._loop("loss", 1, self.head()),
            *alone("backward outputs", M),
            *backward,
            *hop["forward"].waits,
        ]
        fill = [*forward, *hop["forward"].issued, *hop["forward"].waits]
        drain = [*hop["backward"].issued, *hop["backward"].waits, *backward]
        return [
            *self._once("start", 0.0),
            self._loop("fill", idle, fill, idle),
            self._loop("steady", M, steady),
            self._loop("drain", idle, drain, idle),
            *self._once("end", 0.0),
        ]

    def embed(self) -> tuple[list[Operation], list[Operation]]:
        """Return the look-up of one microbatch's tokens, and the gradient of the table."""
        step, runs, traits = self.step, self.step.embeddings, self.step.traits
        ahead, back = kernels.embedding(step)
        alone = lambda place: self.traffic.at_place(place, runs).exposed
        gradients = self.traffic.at_place("backward embed gradients", runs, traits.hidden_weights)
        backward = [*alone("backward embed"), *gradients.wrap(back, first=False)]
        return [*ahead, *alone("forward embed")], backward

    def head(self) -> list[Operation]:
        """Return final norm, logits and loss of one microbatch, by chunks, with their gradients."""
        step, M, traits = self.step, self.step.microbatches, self.step.traits
        before, (chunk, logits, *rest), after = kernels.head(step)
        weights = self.traffic.at_place("forward head weights", M, traits.hidden_weights)
        gradients = self.traffic.at_place("backward head gradients", M, traits.hidden_weights)
        alone = lambda place: self.traffic.at_place(place, M).exposed
        statistics = self.traffic.at_place("forward loss", M * step.loss_chunks).exposed
        return [
            *weights.wrap(before),
            *alone("forward head"),
            self._loop("chunks", step.loss_chunks, [chunk, logits, *statistics, *rest]),
            *alone("backward head"),
            *gradients.wrap(after, first=False),
            *alone("backward head vectors"),
        ]

    def _once(self, place: str, hidden: float) -> list[Operation]:
        """Transfers of a whole step: the trainer's of equal layers in one call, as it stacks them.

        Those that run beside a microbatch are left to its layers.
        """
        own_trainer = self.step.is_own_trainer
        parts = ("", " embed", " head", *((f" {ATTENTION}", f" {MLP}") if own_trainer else ()))
        runs = None if own_trainer else 1
        at = lambda part, moe: self.traffic.at_place(f"{place}{part}", runs, 0.0, moe)
        return [call for part in parts for moe in (False, True) for call in at(part, moe).exposed]

    def _loop(
        self, name: str, trips: Number, body: Sequence[Operation], bubble: Number = 0
    ) -> Operation:
        """A loop that uses the buffers which its name says."""
        at = self.buffers_at
        find = lambda table: tuple(at[b] for b in buffers_of_loop(name, table) if b in at)
        return Loop(
            name,
            reads=find(READS),
            writes=find(WRITES),
            body=tuple(body),
            trips=trips,
            bubble_trips=bubble,
        )

    @cached_property
    def buffers_at(self) -> dict[str, int]:
        """Index of each buffer by its name."""
        return {name: i for i, name in enumerate(self.buffers)}


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
    "loss": "logits, gradients of logits, gathered head, turned head, gathered weights, gradients, "
    "sums of table gradients, gradients of logits in turn, gradients of the head, "
    "gradients of the head in turn",
    "look-ups": "gradients of the token table",
    "backward": "copy of a stack, gradients, gathered weights, backward of a layer, "
    "turned weights, activations of a tick, saved of a tick, outputs of ticks, sums of ticks, "
    "gradients of a tick",
}


def buffers_of_loop(loop: str, table: Mapping[str, str]) -> list[str]:
    """Names of the buffers that READS or WRITES has for a loop."""
    texts = [text for beginning, text in table.items() if loop.startswith(beginning)]
    return [name for text in texts for name in text.split(", ")]


def as_compiled(step: StepSizes, lines: Iterable[Transfer]) -> Iterator[Transfer]:
    """Yield the transfers as XLA makes the trainer's.

    It adds the two gradients of a tied table before it sums them over replicas, and sums in float32
    (`scaling.comparing.discrepancy`).
    """
    tied = step.config.tied_embeddings and step.is_own_trainer
    wider = (FLOAT32 / step.arising_itemsize) ** (1 - step.is_sum)
    for line in lines:
        if tied and line.what == TABLES and line.kind == "all-reduce":
            line = replace(line, bytes=line.bytes * wider)
        yield line


def has_head(step: StepSizes) -> bool:
    """True if the fullest stage has the output head: stages are equal, so it is the last one."""
    return bool(np.all(step.config.n_layers % step.shape.stage == 0))


def _tidy(block: Block) -> Block:
    """Return the block without operations that no configuration runs."""
    found: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            op = replace(op, body=_tidy(op.body))
            if not op.body or not np.any(op.trips):
                continue
        elif isinstance(op, Kernel) and not (np.any(op.flops) or np.any(op.bytes)):
            continue
        found.append(op)
    return tuple(found)
