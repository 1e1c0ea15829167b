"""Communication of matrices and tables: the weights of `scaling.analytic.table`, and those of
`scaling.analytic.experts`.

Over fsdp, by ZeRO stage (arXiv 1910.02054, section 5):

    W L + E + P: matrices of all layers, tables (a tied one once), position table

    stage  kind             elements       why
    3      as in the table
    2      all-gather       W L + E + P    once per step, in compute format
    2      reduce-scatter   as in stage 3  a device has room for shards of gradients only
    1      all-gather       W L + E + P    once per step, in compute format
    1      reduce-scatter   W L + E + P    after the last microbatch; float32 if it is a sum
    0      all-reduce       W L + E + P    likewise: fsdp is one more axis of replicas

In a pipeline a device has the layers of its stage, L / S, and gradients are sums over ticks, so
float32 always. Gradients of weights that meet each tensor device's own tokens (a table, positions,
routers, matrices of latents) are all-reduced over tensor before they are scattered: unsharded, in
each microbatch, for each use. Routers are float32. The shards of gradients are summed over the
other replicas as in stage 3.

Other software sums gradients in `precision.gradients`, and over tensor once per step; it gathers
tables once per microbatch. Its first stage has the token table, its last the head; a tied table's
gradients are summed over both.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaling.analytic.step import FLOAT32, StepSizes, Transfer, once_per_step
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.matrices import Stack, block_stacks
from scaling.program.ir import CollectiveKind, Number

OF_EXPERTS = tuple(axis for axis in REPLICAS if axis != "expert")  # replicas of a routed expert
MATRICES = "matrices of a layer"
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
    elements: Number  # of one on a device, unsharded over fsdp
    itemsize: int
    stored: Number  # how many a device has
    runs: Number  # per step, of the layer or the table, forward and backward
    gathers: Number  # per step, for products forward
    gathers_back: Number = 0  # and backward
    over_tensor: bool = False  # each tensor device's tokens make a part of the gradient
    replicas: tuple[str, ...] = REPLICAS
    moe: bool = False

    @property
    def in_layer(self) -> bool:
        """True for matrices of layers."""
        return self.part in (ATTENTION, MLP)


@once_per_step
def weights_of(step: StepSizes) -> tuple[Weights, ...]:
    """All matrices and tables of a device."""
    return *_of_layers(step), *_of_tables(step)


def weight_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Matrices and tables: gathered, their gradients scattered and summed."""
    yield from _gathered_again(step)
    for weights in weights_of(step):
        yield from _gathers(step, weights)
        yield from _sums(step, weights)


def _gathers(step: StepSizes, w: Weights) -> Iterator[Transfer]:
    size, each, once = w.elements * w.itemsize, step.is_zero_stage(3), step.is_zero_stage(1, 2)
    for place, calls in (
        (f"forward {w.part} weights", w.gathers * each),
        (f"backward {w.part} weights", w.gathers_back * each),
        (f"start {w.part}", w.stored * once),
    ):
        yield Transfer(step.axis_names("fsdp"), "all-gather", size, calls, w.what, place, w.moe)


def _sums(step: StepSizes, w: Weights) -> Iterator[Transfer]:
    """Scatters over fsdp, sums over replicas, and over tensor where its devices' tokens differ.

    The trainer sums over tensor in each microbatch. If gradients are no sum of microbatches, that
    sum is joined with the one over replicas.
    """

    def line(axes: str, kind: CollectiveKind, size: Number, calls: Number, place: str) -> Transfer:
        return Transfer(axes, kind, size, calls, w.what, place, w.moe)

    own_trainer, is_sum, is_stage_1 = step.is_own_trainer, step.is_sum, step.is_zero_stage(1)
    fsdp, tensor = step.axis_names("fsdp"), step.axis_names("tensor")
    where, end = f"backward {w.part} gradients", f"end {w.part}"
    arises = max(w.itemsize, step.arising_itemsize)  # of the trainer's gradient, where it arises
    in_sum = np.where(is_sum, FLOAT32, arises)[()] if own_trainer else step.gradient_itemsize
    summed, arising = w.elements * in_sum, w.elements * arises
    differ = w.over_tensor and step.sequence_parallel
    each_time = 1 * differ if own_trainer else 0
    yield line(tensor, "all-reduce", arising, w.runs * is_stage_1 * each_time, where)
    yield line(fsdp, "reduce-scatter", summed, w.stored * is_stage_1, end)
    scattered = w.runs * step.is_zero_stage(2, 3)
    yield line(fsdp, "reduce-scatter", arising if own_trainer else summed, scattered, where)
    shard = np.where(step.is_zero_stage(0), 1, 1 / step.shape.fsdp)[()]
    others = each_time * (1 - is_stage_1)
    # In one microbatch each layer sums its own; a sum over microbatches waits for the last.
    in_loop = (1 - is_sum) * w.in_layer * (1 - is_stage_1) * own_trainer
    for mask, place in ((in_loop, where), (1 - in_loop, end)):
        for together in (0, 1):  # with the sum over tensor
            joined = others * (1 - is_sum) if together else 1 - others * (1 - is_sum)
            axes = (*w.replicas, *("tensor",) * together)
            for zero, over in (
                (step.is_zero_stage(0), (*axes, "fsdp")),
                (step.is_zero_stage(1, 2, 3), axes),
            ):
                calls = w.stored * mask * joined * zero
                yield line(step.axis_names(*over), "all-reduce", summed * shard, calls, place)
    after = w.runs * others * is_sum * (w.stored > 0)
    yield line(tensor, "all-reduce", arising * shard, after, where)
    later = w.stored * (differ and not own_trainer)
    yield line(tensor, "all-reduce", summed * shard, later, end)
    if not own_trainer and w.part == "head" and step.config.tied_embeddings:
        yield Transfer(step.axis_names("stage"), "all-reduce", summed, 1, w.what, end)


def _of_layers(step: StepSizes) -> Iterator[Weights]:
    """Matrices of layers, with the dense MLP and with experts."""
    for moe, layers in step.layer_kinds:
        passes = step.passes(layers)
        for (what, part), number in _elements(step, moe).items():
            yield Weights(
                what,
                part,
                number,
                _itemsize(step, what),
                stored=step.stored(layers),
                runs=passes,
                gathers=passes,
                gathers_back=passes,
                over_tensor=what in (LATENTS, ROUTER),
                replicas=OF_EXPERTS if what == EXPERTS else REPLICAS,
                moe=moe,
            )


def _elements(step: StepSizes, moe: bool, last: bool = True) -> dict[tuple[str, str], Number]:
    """Elements of a layer's matrices on a device by what they are and their part of the layer, with
    the last ones or without."""
    elements = dict[tuple[str, str], Number]()
    for stack in block_stacks(step.config, moe):
        if last or not (stack.is_last and part_of(stack) == MLP):
            parts = -(-stack.experts // step.shape.expert) if stack.experts else 1
            key = _what(stack), part_of(stack)
            elements[key] = elements.get(key, 0) + parts * stack.size * step.share(stack)
    return elements


def _itemsize(step: StepSizes, what: str) -> int:
    return FLOAT32 if what == ROUTER and step.is_own_trainer else step.itemsize


def _what(stack: Stack) -> str:
    if stack.over_tensor:
        return EXPERTS if stack.experts else MATRICES
    return ROUTER if stack.name == "router" else LATENTS


def part_of(stack: Stack) -> str:
    """The part of a layer whose weights are due together."""
    is_mlp = stack.name.endswith(("gate", "up", "down", "router"))
    return MLP if is_mlp else ATTENTION


def _gathered_again(step: StepSizes) -> Iterator[Transfer]:
    """Layers in ticks that run again; of a part of one layer not the last product."""
    for moe, layers in step.layer_kinds:
        calls = step.recompute * step.passes(layers) * step.is_zero_stage(3)
        for (what, part), elements in _elements(step, moe, last=not step.one_layer).items():
            size, place = elements * _itemsize(step, what), f"again {part} weights"
            yield Transfer(step.axis_names("fsdp"), "all-gather", size, calls, what, place, moe)


def _of_tables(step: StepSizes) -> Iterator[Weights]:
    """Token table and head, and the position table."""
    config, M, own_trainer = step.config, step.microbatches, step.is_own_trainer
    table = step.head_rows * config.d_model
    positions = config.max_positions * config.d_model if config.positions == "learned" else 0
    own_tokens = not step.vocab_is_sharded
    replicas = (*REPLICAS, "stage") if own_trainer else REPLICAS
    looked_up = 1 if step.runs_in_ticks and not step.is_1f1b else step.embeddings
    tied, apart = config.tied_embeddings, "stage" in step.active_axes and not own_trainer
    use = lambda what, part, elements, stored, runs, gathers, own: Weights(
        what, part, elements, step.itemsize, stored, runs, gathers, 0, own, replicas
    )
    if own_trainer or not (tied or apart):
        yield use(TABLES, "embed", table, 1, step.embeddings, looked_up, own_tokens)
    yield use(TABLES, "head", table, 0 if tied and own_trainer else 1, M, M, own_tokens)
    yield use(POSITIONS, "embed", positions, 1, step.embeddings, looked_up, True)
