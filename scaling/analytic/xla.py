"""A step as XLA compiles the trainer's: its layers, and its pipelines.

Layers are the iterations of a loop: what they save is copied into stacks of all layers and out, and
gradients are summed in the next iteration. It waits for what tensor exchanges around products. With
stages every stage computes in every tick (`scaling.models.pipeline`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.attention import attention_kinds, core_kernels, zigzag_attention
from scaling.analytic.blocks import Blocks
from scaling.analytic.layer import ALL_RUN, GradientSums, Layer, Runs, marked
from scaling.analytic.memory import trained_elements
from scaling.analytic.products import forward
from scaling.analytic.reference import reference_step
from scaling.analytic.saved import READ_IN_PLACE, saved_bytes, saved_in_layers
from scaling.analytic.schedule import PHASES, ScheduledCollectives
from scaling.analytic.software import XLA
from scaling.analytic.step import FLOAT32, Transfer, as_int
from scaling.analytic.table import transfers
from scaling.analytic.weights import ATTENTION, MLP, TABLES
from scaling.program.ir import Kernel, Number, Operation, Origin


class XlaLayer(Layer):
    """One layer of the trainer's step."""

    def reference(self) -> list[Operation]:
        """The forward pass of a frozen model, of which nothing is kept."""
        return marked(self._named(self._forward("forward", 0)), self.mark)

    def _last_product(self, place: str, times: Number, runs: Runs = ALL_RUN) -> list[Operation]:
        """The last product with the copies of what the layer saves, made while it is summed."""
        step = self.step
        saved = saved_bytes(step, self.moe) * times
        saves = [kernels.stack_copies(step, f"{place} saves", "forward", saved)]
        down = [forward(step, p, PHASES[place]) for p in self._of(MLP, True)]
        out = self._sent(f"{place} mlp out").wrap(saves)
        return [*down, *self._experts(f"{place} experts back", out)]

    def _gradient_sums(self) -> GradientSums:
        """Scatters and sums of gradients, in one call where XLA joins them.

        It moves those of attention, and joined ones, into the next iteration
        (`scaling.compile.options`).
        """
        step, hidden = self.step, self.step.traits.hidden_weights
        mlp, attention = (self._sent(f"backward {p} gradients", hidden) for p in (MLP, ATTENTION))
        whole = kernels.layer_elements(step, self.moe) * step.itemsize
        most = np.where(
            np.greater(step.weight_shards, 1), XLA.combined * step.weight_shards, XLA.joined
        )
        joined, beside = np.less_equal(whole, most) * 1, ScheduledCollectives(mlp.beside)
        last, *entering = self._by_product(beside.masked(1 - joined))
        carried = attention.merged(beside.masked(joined, "joined")).merged(last)
        return GradientSums(entering, ScheduledCollectives(alone=mlp.alone), beside_core=carried)

    def _remat(self, weights: Mapping[str, ScheduledCollectives]) -> list[Operation]:
        """Nothing needs the last product but a norm behind it. Flash attention needs rotated
        queries and keys, which are made again with their products."""
        step, again = self.step, self.step.repeats_layer
        core = rotation = step.recomputes_some
        if step.flash:
            core = step.recomputes("values")
            rotation = self._recomputed(self._of(ATTENTION, False)[-1])
        runs = Runs(self._recomputed, core, rotation, again, again, again)
        ahead = self._to_last_product("remat", weights, runs)
        return [*ahead, *(self._last_product("remat", 0, runs) * step.config.has_post_norms)]

    def _attention(self, place: str, times: Number = 1) -> list[Operation]:
        step, phase = self.step, PHASES[place]
        if "context" not in step.active_axes:
            kept = 1 - step.recomputes("values") if place == "remat" else 0
            return [*core_kernels(step, phase, times, kept)]
        block: list[Operation] = []
        for mark, reach, layers in attention_kinds(step):
            where, runs = f"{place} attention{mark}", self.runs * layers
            calls: Number = 0
            if step.run.context.method == "ring":
                sent, calls = self.traffic.first_call(where, runs, self.moe)
            else:
                sent = self.traffic.at_place(where, runs, 1.0, self.moe)
            every = zigzag_attention(
                step, phase, reach, sent.spread(1 / layers), times * layers, calls
            )
            block += marked(every, mark)
        return block

    def _waited_for(self, place: str) -> ScheduledCollectives:
        return self._sent(place, 0.0)

    def _restored(self) -> list[Kernel]:
        saved = saved_bytes(self.step, self.moe, READ_IN_PLACE)
        return [kernels.stack_copies(self.step, "restores", "backward", saved)]

    def _sum_of_inputs(self, part: str) -> list[Kernel]:
        """The gradients of one input by its products, summed before tensor sums them."""
        step, products = self.step, len(self._of(part, False))
        if "tensor" not in step.active_axes or products < 2:
            return []
        moved, cut = (products + 1) * step.stream, as_int(np.greater(step.shape.tensor, 1))
        return [kernels.in_layers(step, f"{part} sum", "backward", part, moved, cut)]

    def _transposed(self, place: str) -> list[Kernel]:
        """The stream in the order in which tensor exchanges it: sequences inside of tokens.

        Nothing to do for one sequence, or as many as tensor cuts evenly (`scaling.meshes.rules`).
        Remat keeps what has been transposed.
        """
        step, (first, part, end) = self.step, place.split()
        if first == "remat" or not step.sequence_parallel:
            return []
        uneven = np.not_equal(step.sequences % step.shape.tensor, 0)
        several = 1 * (np.greater(step.sequences, 1) & uneven)
        name, moved = f"{part} {end} turned", 2 * step.stream
        return [kernels.in_layers(step, name, PHASES[first], part, moved, several, 0)]


class XlaBlocks(Blocks):
    """The trainer's step as blocks of operations."""

    layer: ClassVar[type[Layer]] = XlaLayer
    once_parts: ClassVar[tuple[str, ...]] = *Blocks.once_parts, f" {ATTENTION}", f" {MLP}"
    once_runs: ClassVar[int | None] = None  # it stacks equal layers

    def transfers(self) -> Iterator[Transfer]:
        """The transfers of the table as XLA makes them.

        It adds the two gradients of a tied table before it sums them over replicas, and sums in
        float32 (`scaling.comparing.discrepancy`).
        """
        step = self.step
        wider = (FLOAT32 / step.arising_itemsize) ** (1 - step.is_sum)
        for line in transfers(step):
            if step.config.tied_embeddings and line.what == TABLES and line.kind == "all-reduce":
                line = replace(line, bytes=line.bytes * wider)
            yield line

    def schedule(self) -> list[Operation]:
        """The microbatches in turn, or the ticks of a pipeline."""
        if not self.step.runs_in_ticks:
            every = [self.loop("microbatches", self.step.microbatches, self.microbatch())]
        else:
            every = self.in_turn()
        return [*self.once("start"), *every, *self.once("end")]

    def microbatch(self, edge: bool = False, paired: bool = False) -> list[Operation]:
        """The zeros of its stacks, and the sum of its gradients, before and after it."""
        beside = [*self.fills(), *self.reference()]
        return [*beside, *super().microbatch(edge), kernels.accumulation(self.step)]

    def reference(self) -> list[Operation]:
        """The frozen model of `train.loss` on a microbatch: its layers, and the log-probabilities
        of DPO, which the trained model has likewise; else the teacher's logits beside its own."""
        step, other = self.step, self.frozen
        if other is None:
            return []
        before = [*other.alone("forward embed weights", step.microbatches), *other.embed()[0]]
        return [
            *marked(before, other.mark),
            *other.over_layers("reference", XlaLayer.reference),
            *other.head_forward(),
            *self.again(),
        ]

    @cached_property
    def frozen(self) -> "XlaBlocks | None":
        """The blocks of the frozen model of `train.loss`."""
        step = reference_step(self.step)
        return XlaBlocks(step, " of the reference") if step else None

    def again(self) -> list[Operation]:
        """The log-probabilities of the trained model, in DPO."""
        return XlaBlocks(self.step, " again").head_forward() if self.step.run.train.pairs else []

    def reference_in_turn(self) -> list[Operation]:
        """The frozen model as a pipeline of its own, forward alone, before that of the step: its
        log-probabilities in DPO, else the streams of a teacher, whose logits are made beside the
        trained model's."""
        step, other, V = self.step, self.frozen, self.step.virtual_stages
        if other is None:
            return []
        M, idle, lap = step.microbatches, step.shape.stage - 1, step.shape.stage * (V - 1)
        own = lambda block: marked(block, other.mark)
        ahead = other.traffic.at_place("forward tick", step.iterations, 1.0)
        weights = other.alone("forward embed weights", step.embeddings)
        embedded, hop = own([*weights, *other.embed()[0]]), own(ahead.wrap([]))
        forward = other.over_layers("reference", XlaLayer.reference, V)
        head = other.head_forward() if step.run.train.pairs else []
        outputs = [*own(other.alone("forward outputs", M)), *head]
        last = [*forward, *own(ahead.issued), *outputs, *own(ahead.waits), *embedded]
        return [
            *embedded,
            self.loop("reference fill", idle, [*embedded, *forward, *hop], idle),
            self.loop("reference fill between", lap, [*forward, *hop]),
            self.loop("reference steady", M, last),
            self.loop("reference steady between", M * (V - 1) - lap, [*forward, *hop]),
        ]

    def head_forward(self) -> list[Operation]:
        """The logits of a microbatch, and what is summed of them, without gradients."""
        step, M = self.step, self.step.microbatches
        (norm, _), (chunk, logits, loss, *_), _ = kernels.head(step)
        statistics = self.alone("forward loss", M * step.loss_chunks)
        block = [
            *self.traffic.at_place("forward head weights", M, 1.0).wrap([norm]),
            *self.alone("forward head", M),
            self.loop("reference chunks", step.loss_chunks, [chunk, logits, *statistics, loss]),
        ]
        return marked(block, self.mark)

    def fills(self) -> list[Operation]:
        """Stacks of what a microbatch saves, and of its float32 gradients, filled with zeros; half
        of the saved ones under remat "selective" are copies of others."""
        step = self.step
        saved = saved_in_layers(step) * (1 + step.remat_is("selective") / 2)
        moved = (saved + FLOAT32 * trained_elements(step, 2, in_layers=True)) / step.parts
        return [kernels.fusion(step, "fills", Origin("forward", "layers"), moved, operations=0)]

    def in_turn(self) -> list[Operation]:
        """1F1B: ticks forward, with head and backward pass, backward; those in which microbatches
        come in and leave, and those of virtual stages between them."""
        step, V, pairs = self.step, self.step.virtual_stages, self.step.run.train.pairs
        M, T, idle = step.microbatches, step.iterations, step.shape.stage - 1
        ahead, back = (
            self.traffic.at_place(f"{way} tick", T, 1.0) for way in ("forward", "backward")
        )
        saved = saved_in_layers(step) / V
        embed, embed_back = self.embed()
        looked_up = [self.loop("look-ups in turn", 1, embed_back)]
        embedded = [*self.alone("forward embed weights", step.embeddings), *embed]
        forward = [
            *self.fills(),
            *self.over_layers("forward", XlaLayer.forward, V),
            kernels.stack_copies(step, "slot", "forward", saved),
        ]
        backward = [
            kernels.stack_copies(step, "slot", "backward", saved),
            *self.over_layers("backward", XlaLayer.backward, V),
        ]
        summed, between = kernels.accumulation(step), kernels.accumulation(step, tables=0)
        head = [
            *self.alone("forward outputs", M),
            *(self.again() if pairs or not self.frozen else self.frozen.head_forward()),
            self.loop("loss", 1, self.head()),
            *self.alone("backward outputs", M),
        ]
        steady = lambda head, sums: [
            *back.issued,
            *forward,
            *back.waits,
            *ahead.issued,
            *head,
            *backward,
            sums,
            *ahead.waits,
        ]
        lap = step.shape.stage * (V - 1)  # ticks between those of the ends
        return [
            *self.reference_in_turn(),
            *embedded,
            self.loop("fill", idle, [*embedded, *forward, *ahead.wrap([])], idle),
            self.loop("fill between", lap, [*forward, *ahead.wrap([])]),
            self.loop("steady", M, [*looked_up, *steady(head, summed), *embedded]),
            self.loop("steady between", M * (V - 1) - lap, steady([], between)),
            self.loop("drain between", lap, [*back.wrap([]), *backward, between]),
            self.loop("drain", idle, [*looked_up, *back.wrap([]), *backward, summed], idle),
            *looked_up,
        ]
