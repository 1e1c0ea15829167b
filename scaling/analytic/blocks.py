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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.adapters import adapter_elements
from scaling.analytic.layer import Layer
from scaling.analytic.memory import buffers, shards
from scaling.analytic.saved import saved_bytes
from scaling.analytic.schedule import Traffic, traffic_of
from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.analytic.table import transfers
from scaling.analytic.weights import ATTENTION, MLP, TABLES, weights_of
from scaling.meshes.mesh_batch import AxisSize
from scaling.program.ir import (
    Block,
    Buffer,
    Kernel,
    Loop,
    Number,
    Operation,
    Origin,
    Program,
    as_float,
)
from scaling.run.parallelism.pipeline import recomputes


@dataclass(frozen=True)
class Step:
    """The blocks of a step."""

    step: StepSizes
    flash: float

    def program(self) -> Program:
        """The whole step."""
        step = self.step
        schedule = self.in_microbatches()
        if step.ticks:
            schedule = self.in_turn() if step.in_turn else self.in_ticks()
        return Program(
            *(step.run.name, "analytic", step.shape.sizes),
            schedule=_tidy((*schedule, *kernels.update(step))),
            buffers=tuple(self.buffers.values()),
            is_xla=step.habits.is_ours,
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
        """One of each kind."""
        step = self.step
        return [Layer(step, self.traffic, self.flash, moe, n, edge) for moe, n in step.layer_kinds]

    def in_microbatches(self) -> list[Operation]:
        """Microbatches one after the other; beside the last, what others communicate once."""
        M, habits = self.step.microbatches, self.step.habits
        first = self._once("start", habits.hidden_weights)
        last = self._once("end", habits.hidden_weights)
        if habits.is_ours:
            every = [self._loop("microbatches", M, self.microbatch())]
        else:
            every = [
                self._loop("microbatches", M - 1, self.microbatch()),
                *self.microbatch(edge=True),
            ]
        return [*first, *(self.bubble() if "stage" in self.step.cut else []), *every, *last]

    def microbatch(self, edge: bool = False) -> list[Operation]:
        """Forward and backward of one microbatch on the fullest stage."""
        step = self.step
        hidden = float(step.habits.hides_pipeline and step.virtual_stages > 1)
        send = lambda place: self.traffic.at(place, step.microbatches, hidden)
        embed, embed_back = self.embed()
        head = self.head() if has_head(step) else []
        every = self.layers(edge)
        ahead = [self._loop(f"forward {_kind(x)}", self.count(x), x.forward()) for x in every]
        back = [self._loop(f"backward {_kind(x)}", self.count(x), x.backward()) for x in every]
        return [
            *self.fills(1),
            *self.traffic.at("forward embed weights", step.microbatches).exposed,
            *embed,
            *send("forward tick").around(ahead),
            self._loop("loss", 1, head),
            *send("backward tick").around(back[::-1]),
            self._loop("look-ups backward", 1, embed_back),
            kernels.accumulation(step),
        ]

    def fills(self, times: Number) -> list[Operation]:
        """The stacks of `times` microbatches' saved activations, in the trainer's program."""
        step = self.step
        if not step.habits.is_ours:
            return []
        saved = sum(saved_bytes(step, moe) * step.stored(n) for moe, n in step.layer_kinds)
        of_layers = sum(w.elements * w.stored for w in weights_of(step) if w.in_layer)
        own = of_layers / shards(step, 2) if step.trains_all else adapter_elements(step)
        return [kernels.fills(step, saved * times, own)]

    def count(self, layer: Layer) -> AxisSize:
        """Layers of such a kind on the device."""
        return self.step.stored(layer.layers)

    def bubble(self) -> list[Operation]:
        """What the other stages do with one microbatch while this one has no work."""
        step, layer = self.step, self.layers()[-1]
        others = step.config.n_layers - step.stored(step.config.n_layers)
        trips = as_float(np.rint(others / step.virtual_stages))
        core = kernels.attention(step, "backward", self.flash)
        back = core if step.run.pipeline.schedule == "zero_bubble" else layer.backward()
        found = [self._loop("bubble", trips, [*layer.forward(), *back], trips)]
        hops = [self.traffic.at(f"{way} tick", step.iterations) for way in ("forward", "backward")]
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
        part = lambda layer: self.count(layer) // step.virtual_stages
        tick = lambda place: self.traffic.at(place, T, 0.0).exposed
        once = lambda place: self.traffic.at(place, 1).exposed
        ahead = [self._loop(f"forward {_kind(x)}", part(x), x.forward()) for x in self.layers()]
        twice = [
            self._loop(f"again {_kind(x)}", part(x) * step.recompute, x.again())
            for x in self.layers()
        ]
        back = [self._loop(f"backward {_kind(x)}", part(x), x.backward()) for x in self.layers()]
        again = recomputes(step.run)
        embed, embed_back = self.embed()
        return [
            *self._once("start", 0.0),
            *([] if again else self.fills(T / step.virtual_stages)),
            *once("forward embed weights"),
            self._loop("embedding", M, embed),
            self._loop("forward ticks", T, [*tick("forward tick"), *ahead], idle),
            *once("forward outputs"),
            self._loop("loss", M, self.head()),
            *once("backward outputs"),
            self._loop(
                "backward ticks",
                T,
                [
                    *(self.fills(1 / step.virtual_stages) if again else []),
                    *(*twice, *back, *tick("backward tick")),
                    kernels.accumulation(step),
                ],
                idle,
            ),
            self._loop("embedding backward", M, embed_back),
            *self._once("end", 0.0),
        ]

    def in_turn(self) -> list[Operation]:
        """Our trainer's 1F1B: ticks forward, those with head and backward pass, ticks backward."""
        step = self.step
        M, T, idle = step.microbatches, step.iterations, step.shape.stage - 1
        hop = {way: self.traffic.at(f"{way} tick", T, 1.0) for way in ("forward", "backward")}
        alone = lambda place, runs: self.traffic.at(place, runs).exposed
        saved = sum(saved_bytes(step, moe) * step.stored(n) for moe, n in step.layer_kinds)
        embed, embed_back = self.embed()
        forward = [
            *alone("forward embed weights", T),
            *embed,
            *self.fills(1),
            *(self._loop(f"forward {_kind(x)}", self.count(x), x.forward()) for x in self.layers()),
            kernels.copies(step, "slot", "forward", saved),
        ]
        backward = [
            kernels.copies(step, "slot", "backward", saved),
            *(
                self._loop(f"backward {_kind(x)}", self.count(x), x.backward())
                for x in self.layers()
            ),
            self._loop("look-ups in turn", 1, embed_back),
            kernels.accumulation(step),
        ]
        steady = [
            *(*hop["backward"].issued, *forward, *hop["backward"].waits, *hop["forward"].issued),
            *alone("forward outputs", M),
            self._loop("loss", 1, self.head()),
            *(*alone("backward outputs", M), *backward, *hop["forward"].waits),
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
        """Looking the tokens of one microbatch up, and the table's gradient."""
        step, runs, habits = self.step, self.step.embeddings, self.step.habits
        ahead, back = kernels.embedding(step)
        alone = lambda place: self.traffic.at(place, runs).exposed
        gradients = self.traffic.at("backward embed gradients", runs, habits.hidden_weights)
        backward = [*alone("backward embed"), *gradients.around(back, first=False)]
        return [*ahead, *alone("forward embed")], backward

    def head(self) -> list[Operation]:
        """Final norm, logits and loss of one microbatch, chunk by chunk, and their gradients."""
        step, M, habits = self.step, self.step.microbatches, self.step.habits
        before, (chunk, logits, *rest), after = kernels.head(step)
        weights = self.traffic.at("forward head weights", M, habits.hidden_weights)
        gradients = self.traffic.at("backward head gradients", M, habits.hidden_weights)
        alone = lambda place: self.traffic.at(place, M).exposed
        statistics = self.traffic.at("forward loss", M * step.loss_chunks).exposed
        return [
            *weights.around(before),
            *alone("forward head"),
            self._loop("chunks", step.loss_chunks, [chunk, logits, *statistics, *rest]),
            *alone("backward head"),
            *gradients.around(after, first=False),
            *alone("backward head vectors"),
        ]

    def _once(self, place: str, hidden: float) -> list[Operation]:
        """Transfers of a whole step: the trainer's of equal layers in one call, as it stacks them.

        Those that run beside a microbatch are left to its layers.
        """
        ours, found = self.step.habits.is_ours, list[Operation]()
        for part in ("", " embed", " head", *((f" {ATTENTION}", f" {MLP}") if ours else ())):
            for moe in (False, True):
                found += self.traffic.at(f"{place}{part}", None if ours else 1, 0.0, moe).exposed
        return found

    def _loop(
        self, name: str, trips: Number, body: Sequence[Operation], bubble: Number = 0
    ) -> Operation:
        """A loop that uses the buffers which its name says."""
        uses = [words for words in USES if name.startswith(words)]
        at = self.buffers_at
        find = lambda which: tuple(at[b] for words in uses for b in USES[words][which] if b in at)
        return Loop(name, Origin(), find(0), find(1), (), tuple(body), trips, bubble)

    @cached_property
    def buffers_at(self) -> dict[str, int]:
        """Index of each buffer by its name."""
        return {name: i for i, name in enumerate(self.buffers)}


# Buffers that loops read and write, by the beginning of their names.
USES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "forward": (
        (),
        (
            *("activations", "streams of ticks", "gathered weights", "sums of gradients"),
            *("turned weights", "turned tables", "made by a tick", "offloaded"),
        ),
    ),
    "loss": (
        ("activations", "streams of ticks", "turned weights", "sums of gradients"),
        (
            *("logits", "gradients of logits", "gathered head", "turned head", "gathered weights"),
            *("gradients", "sums of table gradients"),
            *("gradients of logits in turn", "gradients of the head"),
            "gradients of the head in turn",
        ),
    ),
    "look-ups": (("gradients", "gradients of the head"), ("gradients of the token table",)),
    "look-ups in turn": (
        ("activations", "turned weights", "turned tables", "sums of ticks", "gradients of a tick"),
        (),
    ),
    "backward": (
        (
            *("activations", "streams of ticks", "sums of gradients", "sums of table gradients"),
            *("gradients of the head in turn", "offloaded"),
        ),
        (
            "copy of a stack",
            *("gradients", "gathered weights", "backward of a layer", "turned weights"),
            *("activations of a tick", "saved of a tick", "outputs of ticks"),
            *("sums of ticks", "gradients of a tick"),
        ),
    ),
}


def _kind(layer: Layer) -> str:
    return "layers with experts" if layer.moe else "layers"


def as_compiled(step: StepSizes, lines: Iterable[Transfer]) -> Iterator[Transfer]:
    """The transfers, as XLA makes the trainer's.

    It adds the two gradients of a tied table before it sums them over replicas, and sums in float32
    (`scaling.comparing.discrepancy`).
    """
    tied = step.config.tied_embeddings and step.habits.is_ours
    wider = (FLOAT32 / step.reduced_bytes) ** (1 - step.is_sum)
    for line in lines:
        if tied and line.what == TABLES and line.kind == "all-reduce":
            line = replace(line, bytes=line.bytes * wider)
        yield line


def has_head(step: StepSizes) -> bool:
    """True if the fullest stage has the output head: stages are equal, so it is the last one."""
    return bool(np.all(step.config.n_layers % step.shape.stage == 0))


def _tidy(block: Block) -> Block:
    """The block without operations that no configuration runs."""
    found: list[Operation] = []
    for op in block:
        if isinstance(op, Loop):
            op = replace(op, body=_tidy(op.body))
            if not op.body or not np.any(op.trips):
                continue
        elif isinstance(op, Kernel):
            if not (np.any(op.flops) or np.any(op.bytes)):
                continue
        found.append(op)
    return tuple(found)
