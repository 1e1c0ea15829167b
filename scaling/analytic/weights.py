"""Communication of matrices and tables: the weights of `scaling.analytic.table`, and those of
`scaling.analytic.experts`.

Over the axes that shard them (fsdp, expert and context; of routed experts fsdp and context; of
other software fsdp alone), by ZeRO stage (arXiv 1910.02054, section 5):

    W L + E + P: matrices of all layers, tables (a tied one once), position table

    stage  kind             elements       why
    3      as in the table
    2      all-gather       W L + E + P    once per step, in compute format
    2      reduce-scatter   as in stage 3  a device has room for shards of gradients only
    1      all-gather       W L + E + P    once per step, in compute format
    1      reduce-scatter   W L + E + P    after the last microbatch; float32 if it is a sum
    0      all-reduce       W L + E + P    likewise: each is one more axis of replicas

In a pipeline a device has the layers of its stage, L / S, and gradients are sums over ticks, so
float32 always. Gradients of weights that meet each tensor device's own tokens (a table, positions,
routers, matrices of latents) are all-reduced over tensor before they are scattered: unsharded, in
each microbatch, for each use. Routers are float32. The shards of gradients are summed over the
other replicas as in stage 3.

Other software sums gradients over devices in `precision.reduce`, over tensor once per step, and may
gather matrices of layers in fp8; it gathers tables once per microbatch. Its first stage has the
token table, its last the head; a tied table's gradients are summed over both. Some all-reduce the
gradients of ZeRO-1 after the last microbatch, and gather after the update (`zero_1`). Two
devices of DualPipe hold the same two stages, and send each other their gradients; where ZeRO shares
out the optimizer's state each updates a half and sends that, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.matrices import BYTES, OF_LATENTS, Stack, block_stacks
from scaling.program.ir import CollectiveKind, Number

OF_EXPERTS = tuple(axis for axis in REPLICAS if axis != "expert")  # replicas of a routed expert
MATRICES = "matrices of a layer"
EXPANDING = "matrices of a layer that take latents"  # where other axes shard latents
TABLES = "token table and head"  # `what` of their lines
POSITIONS = "position table"
LATENTS = "matrices of a layer that make latents"
EXPERTS = "routed experts of a layer"
ROUTER = "router of a layer"
ATTENTION, MLP = "attention", "mlp"  # parts of a layer whose weights are due together


@dataclass(frozen=True)
class Weights:
    """Equal weights of which each is gathered in one call: some of a layer's matrices, a table."""

    what: str
    part: str  # of a layer, or "embed", "head"
    elements: Number  # of one on a device, whole over `axes`
    itemsize: int
    stored: Number  # how many a device has
    runs: Number  # per step, of the layer or the table, forward and backward
    gathers: Number  # per step, for products forward; those of a layer backward, too
    axes: tuple[str, ...]  # that shard it
    shards: Number  # along them
    replicas: tuple[str, ...]
    over_tensor: bool = False  # each tensor device's tokens make a part of the gradient
    moe: bool = False

    @property
    def in_layer(self) -> bool:
        """True for matrices of layers."""
        return self.part in (ATTENTION, MLP)


@lru_cache(maxsize=8)
def weights_of(step: StepSizes) -> tuple[Weights, ...]:
    """All matrices and tables of a device."""
    return *_of_layers(step), *_of_tables(step)


def weight_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Matrices and tables: gathered, their gradients scattered and summed."""
    each, once, apart = step.is_zero_stage(3), step.is_zero_stage(1, 2), zero_1_apart(step)
    for w in weights_of(step):
        axes = step.axis_names(*w.axes)
        size = w.elements * (BYTES["fp8"] if w.in_layer and step.gathers_fp8 else w.itemsize)
        for place, calls in (
            (f"forward {w.part} weights", w.gathers * each),
            (f"backward {w.part} weights", w.gathers * each * w.in_layer),
            (f"start {w.part}", w.stored * once * (1 - apart)),
        ):
            yield Transfer(axes, "all-gather", size, calls, w.what, place, w.moe)
        every = f"{w.what} of {w.part}"  # in one call
        yield Transfer(axes, "all-gather", size * w.stored, apart, every, "end", w.moe)
        yield from _sums(step, w)


def _sums(step: StepSizes, w: Weights) -> Iterator[Transfer]:
    """Scatters over shards, sums over replicas, and over tensor where its devices' tokens differ.

    The trainer sums over tensor in each microbatch. If gradients are no sum of microbatches, that
    sum is joined with the one over replicas, and each layer sums its own; else they wait for the
    last microbatch.
    """

    def line(
        kind: CollectiveKind, axes: tuple[str, ...], size: Number, calls: Number, place: str
    ) -> Transfer:
        return Transfer(step.axis_names(*axes), kind, size, calls, w.what, place, w.moe)

    is_sum, stage = step.is_sum, step.is_zero_stage
    where, end = f"backward {w.part} gradients", f"end {w.part}"
    differ: Number = 1 * (w.over_tensor and step.sequence_parallel)
    if step.is_own_trainer:
        arises: Number = max(w.itemsize, step.arising_itemsize)
        itemsize: Number = np.where(is_sum, FLOAT32, arises)[()]
        each_time, in_loop = differ, (1 - is_sum) * w.in_layer * (1 - stage(1))
    else:
        arises = itemsize = step.gradient_itemsize
        each_time = in_loop = 0
    arising, summed = w.elements * arises, w.elements * itemsize
    shard = np.where(stage(0), 1, 1 / w.shards)[()]
    apart = each_time * (1 - stage(1))  # from the scatter
    joined = apart * (1 - is_sum)
    yield line("all-reduce", ("tensor",), arising, w.runs * stage(1) * each_time, where)
    all_reduced = zero_1_apart(step)
    yield line("reduce-scatter", w.axes, summed, w.stored * stage(1) * (1 - all_reduced), end)
    yield line("all-reduce", w.axes, summed * w.stored, all_reduced, "end")
    yield line("reduce-scatter", w.axes, arising, w.runs * stage(2, 3), where)
    for place, at_place in ((where, in_loop), (end, 1 - in_loop)):
        for tensor, with_tensor in (((), 1 - joined), (("tensor",), joined)):
            for shards, zero in ((w.axes, stage(0)), ((), stage(1, 2, 3))):
                axes, calls = (
                    (*w.replicas, *tensor, *shards),
                    w.stored * at_place * with_tensor * zero,
                )
                yield line("all-reduce", axes, summed * shard, calls, place)
    calls = w.runs * apart * is_sum * (w.stored > 0)
    yield line("all-reduce", ("tensor",), arising * shard, calls, where)
    if not step.is_own_trainer:
        yield line("all-reduce", ("tensor",), summed * shard, w.stored * differ, end)
        if w.part == "head" and step.config.tied_embeddings:
            yield line("all-reduce", ("stage",), summed, 1, end)
    if step.is_dualpipe:
        part, copies = shard / step.sharers, w.stored * (step.sharers - 1)
        yield line("permute", ("stage",), summed * part, w.stored, end)
        yield line("permute", ("stage",), w.elements * w.itemsize * part, copies, end)


def zero_1_apart(step: StepSizes) -> Number:
    """1 where ZeRO-1 all-reduces gradients and gathers weights in turn, beside nothing, else 0."""
    return step.is_zero_stage(1) * (step.traits.zero_1 == "all-reduce")


def _of_layers(step: StepSizes) -> Iterator[Weights]:
    """Matrices of layers, with the dense MLP and with experts."""
    for moe, layers in step.layer_kinds:
        passes = step.passes(layers)
        for (what, part), number in _elements(step, moe).items():
            itemsize = FLOAT32 if what == ROUTER and step.is_own_trainer else step.itemsize
            yield Weights(
                what,
                part,
                number,
                itemsize,
                step.stored(layers) * step.held,
                passes,
                passes,
                *_shared(step, what),
                over_tensor=what in (LATENTS, ROUTER),
                moe=moe,
            )


def shard_axes(step: StepSizes, experts: bool, of_latents: bool = False) -> tuple[str, ...]:
    """The axes that shard weights, of routed experts, which `expert` deals out, or others."""
    axes = step.latent_axes if of_latents else step.weight_axes
    return tuple(axis for axis in axes if axis != "expert" or not experts)


def _shared(step: StepSizes, what: str) -> tuple[tuple[str, ...], Number, tuple[str, ...]]:
    """The axes that shard such weights, their size, and the axes that copy the shards."""
    axes = shard_axes(step, what == EXPERTS, what == EXPANDING)
    copies = OF_EXPERTS if what == EXPERTS else REPLICAS
    return axes, step.shape.size(axes), tuple(axis for axis in copies if axis not in axes)


def _elements(step: StepSizes, moe: bool) -> dict[tuple[str, str], Number]:
    """Elements of a layer's matrices on a device by what they are and their part of the layer."""
    elements = dict[tuple[str, str], Number]()
    for stack in block_stacks(step.config, moe):
        what = ROUTER if stack.name == "router" else LATENTS
        if stack.over_tensor:
            what = EXPERTS if stack.experts else MATRICES
            if stack.name in OF_LATENTS and step.latent_axes != step.weight_axes:
                what = EXPANDING
        parts = -(-stack.experts // step.shape.expert) if stack.experts else 1
        key = what, part_of(stack)
        elements[key] = elements.get(key, 0) + parts * stack.size * step.share(stack)
    return elements


def part_of(stack: Stack) -> str:
    """The part of a layer whose weights are due together."""
    is_mlp = stack.name.endswith(("gate", "up", "down", "router"))
    return MLP if is_mlp else ATTENTION


def _of_tables(step: StepSizes) -> Iterator[Weights]:
    config, own_trainer = step.config, step.is_own_trainer
    M, runs = step.microbatches, step.embeddings
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    own_tokens, tied = not step.vocab_is_sharded, config.tied_embeddings
    axes, shards, replicas = _shared(step, TABLES)
    replicas = (*replicas, "stage") if own_trainer else replicas
    use = lambda what, part, elements, stored, runs, gathers, own: Weights(
        *(what, part, elements, step.itemsize, stored, runs, gathers, axes, shards, replicas, own)
    )
    if own_trainer or not (tied or "stage" in step.active_axes):
        yield use(TABLES, "embed", step.table, 1, runs, runs, own_tokens)
    yield use(TABLES, "head", step.table, 0 if tied and own_trainer else 1, M, M, own_tokens)
    yield use(POSITIONS, "embed", positions, 1, runs, runs, True)
