"""Memory of a device: what is stored between steps, and what a step keeps and needs meanwhile.

    parameters       in their stored format; sharded from ZeRO stage 3 on
    optimizer state  moments, and a float32 copy of 16-bit parameters; sharded from stage 1 on
    gradients        sums of microbatches; sharded from stage 2 on
    activations      what remat keeps of each layer, of each microbatch in flight
    communication    weights gathered for products
    temporary        logits and their gradient; what one layer's backward pass needs

The trainer stores parameters and optimiser state sharded in every stage but 0, and its gradients
are float32 shards where a layer's are scattered (stage 3).

All software shards over all devices that hold the same weights and share the batch: context and
expert join fsdp, context alone for routed experts (`scaling.meshes.rules`; NVIDIA/Megatron-LM,
megatron/core/parallel_state.py: the distributed optimizer's group is data-parallel with
context-parallel; torchtitan's FSDP mesh is dp_shard with cp).
"""

from collections.abc import Iterator
from functools import reduce

import numpy as np

from scaling.analytic.adapters import adapter_elements
from scaling.analytic.experts import exchanged_rows
from scaling.analytic.reference import reference_step
from scaling.analytic.saved import (
    activations,
    kept_passes,
    kept_tensors,
    of_last_stage,
    offloaded_bytes,
)
from scaling.analytic.software import XLA
from scaling.analytic.step import FLOAT32, StepSizes
from scaling.analytic.weights import ATTENTION, EXPERTS, MLP, part_of, weights_of
from scaling.models.accounting.matrices import BYTES, block_stacks, expert_width
from scaling.program.ir import Buffer, Number
from scaling.run.reference import stores_reference

# Numbers that an optimiser keeps of each parameter (`scaling.run.optimizers`).
STATES = {"adamw": 2, "lion": 1, "adafactor": 0, "muon": 1}


def elements(step: StepSizes, in_layers: bool = False, first: int = 4) -> Number:
    """The parameters of a device, or those of its layers' matrices; divided by the shards of each
    where it is sharded, that is from ZeRO stage `first` on (4: none is)."""
    own = (w for w in weights_of(step) if w.in_layer or not in_layers)
    sharded = step.is_zero_stage(*range(first, 4))
    return sum(w.elements * w.stored * (1 - sharded + sharded / w.shards) for w in own)


def trained_elements(step: StepSizes, first: int, in_layers: bool = False) -> Number:
    """The `elements` that have gradients; of a run with adapters those of these."""
    return elements(step, in_layers, first) if step.trains_all else adapter_elements(step)


def sharded_elements(step: StepSizes, first: int) -> Number:
    """Parameters of a device of which ZeRO shards something from that stage on, each divided by the
    number of its shards."""
    if step.is_own_trainer:
        return elements(step, first=first)
    whole = np.equal(step.shape.fsdp, 1) & np.greater(step.shape.data, 1)  # replicas
    is_sharded = np.greater_equal(step.grid.zero_stage, first) & ~whole
    of_experts = step.shape.fsdp * step.shape.context  # devices that share them and the batch,
    holders = of_experts * step.shape.expert  # and all other weights, not counting `data`
    parts = lambda w: np.where(is_sharded, of_experts if w.what == EXPERTS else holders, 1)[()]
    return sum(w.elements * w.stored / parts(w) for w in weights_of(step))


def state_bytes(step: StepSizes) -> int:
    """Bytes that the optimizer keeps of a parameter: moments, a float32 copy, an average."""
    precision = step.run.precision
    copies = (precision.parameters != "fp32") + (step.run.train.ema is not None)
    moments = STATES.get(step.run.optimizer, 2) * BYTES[precision.optimizer_state]
    return moments + copies * FLOAT32


def stored_format(step: StepSizes) -> str:
    """The format in which the model's own parameters are stored."""
    precision = step.run.precision
    return precision.parameters if step.trains_all else precision.frozen


def buffers(step: StepSizes) -> dict[str, Buffer]:
    """The buffers of a step by name, at the stage that needs most memory."""
    first = 1 if step.is_own_trainer else 3  # stage from which parameters are sharded
    stored = sharded_elements(step, first) * BYTES[stored_format(step)]
    adapters = adapter_elements(step)
    trained = sharded_elements(step, 1) / step.sharers if step.trains_all else adapters
    state = trained * state_bytes(step)
    made = (
        Buffer("parameters", stored + FLOAT32 * adapters, "parameters", True),
        *_of_reference(step),
        Buffer("optimizer state", state, "optimizer_state", True),
        *(_of_own_trainer(step) if step.is_own_trainer else _of_others(step)),
        Buffer("activations", activations(step), "activations"),
        Buffer("offloaded", activations(step, offloaded_bytes), "pinned_host"),
        Buffer("backward of a layer", _working(step), "temporary"),
    )
    return {buffer.name: buffer for buffer in made}


def _of_reference(step: StepSizes) -> Iterator[Buffer]:
    """The frozen model of `train.loss`, where it is stored; of a teacher the logits, and the head
    that is gathered for them, stand beside the trained model's."""
    other = reference_step(step)
    if other is None:
        return
    if stores_reference(step.run):
        stored = sharded_elements(other, 1) * BYTES[step.run.precision.frozen]
        yield Buffer("reference", stored, "parameters", True)
    if not step.run.train.pairs:
        yield Buffer("logits of the teacher", FLOAT32 * _logits(other), "temporary")
        gathered = other.itemsize * other.table * np.greater(other.weight_shards, 1)
        yield Buffer("gathered head of the teacher", gathered, "communication")
        streams = other.microbatches * other.stream_shard / other.head_parts
        yield Buffer("streams of the teacher", streams * other.runs_in_ticks, "activations")


def _of_own_trainer(step: StepSizes) -> Iterator[Buffer]:
    """Buffers of the trainer's program, as XLA compiles it (`scaling.analytic.software`).

    The gradients of all layers are allocated before the first one's; sums of microbatches are
    others. A matrix of each layer is stored, over fsdp, in the order in which its product does not
    take it: its stack is turned around.
    """
    item, table, shape = step.itemsize, step.table, step.shape
    once = 1 - step.is_zero_stage(3)  # each microbatch's gradients are sums in compute format
    each = item * once * step.is_sum + FLOAT32 * (1 - once * step.is_sum)
    if step.runs_in_ticks:
        yield from _of_ticks(step, each)
    else:
        summed = FLOAT32 * trained_elements(step, 2) * step.is_sum
        yield Buffer("sums of gradients", summed, "gradients")
        yield Buffer("gradients", each * trained_elements(step, 2, in_layers=True), "gradients")
    yield Buffer("logits", FLOAT32 * _logits(step), "temporary")
    in_turn = " in turn" * step.runs_in_ticks  # each microbatch's head is done with
    yield Buffer(f"gradients of logits{in_turn}", item * _logits(step), "temporary")
    chunked = np.greater(step.loss_chunks, 1)
    of_head = item * table * chunked * step.trains_all
    yield Buffer("gradients of the head", of_head, "gradients")
    is_sharded = np.greater(step.weight_shards, 1)
    yield Buffer("gathered head", item * table * is_sharded, "communication")
    whole = step.vocab_is_sharded or "tensor" not in step.active_axes
    shared = step.config.tied_embeddings and whole
    looked_up = step.trains_all and (step.runs_in_ticks or not shared)
    # Zeros, and the sums that are scattered into a copy of them.
    yield Buffer("gradients of the token table", 2 * FLOAT32 * table * looked_up, "gradients")
    gathered = item * elements(step) * step.is_zero_stage(1, 2)
    yield Buffer("gathered weights", gathered, "communication")
    turned = FLOAT32 * elements(step, True, first=3) * _turned(step)
    yield Buffer("turned weights", turned * is_sharded * step.is_zero_stage(3), "temporary")
    # Outputs of a norm, whole over tensor.
    layers = sum(step.stored(n) for _, n in step.layer_kinds)
    stack = (1 - step.recomputes_some) * layers * step.tokens * step.config.d_model * item
    is_gathered = step.sequence_parallel and not step.runs_in_ticks
    stack = stack * is_gathered * np.greater(shape.tensor, 1)
    yield Buffer("copy of a stack", stack, "temporary")


def _turned(step: StepSizes) -> Number:
    """Share of the layers' matrices that are turned around: one of the MLP and one of attention, of
    products of several experts at a time all."""
    config, moe = step.config, step.config.moe
    stacks = list(block_stacks(config, moe=moe is not None))
    sizes = {
        part: [s.matrices * s.size for s in stacks if part_of(s) == part]
        for part in (ATTENTION, MLP)
    }
    one = sum(map(max, sizes.values())) / sum(map(sum, sizes.values()))
    if moe is None or moe.capacity_factor is None:
        return one
    return np.where(np.less(step.shape.expert, moe.n_experts), 1.0, one)[()]


def _of_ticks(step: StepSizes, each: Number) -> Iterator[Buffer]:
    """Buffers of a pipeline: those of all ticks, and those of one tick backward.

    Gradients of layers are summed over the ticks backward, those of tables over the loss as well.
    The last stage's stream is shared out over the stages, whole over tensor.
    """
    shape, parts = step.shape, step.weight_shards
    of_layers = trained_elements(step, 2, in_layers=True)
    sharded, trained = step.is_zero_stage(2, 3), step.trains_all
    yield Buffer("streams of ticks", 2 * XLA.streams * step.stream_shard, "activations")
    yield Buffer("outputs of ticks", step.stream / shape.stage, "activations")
    tables = 2 * step.table * (1 - sharded + sharded / parts)
    yield Buffer("sums of table gradients", FLOAT32 * tables * trained, "gradients")
    yield Buffer("sums of ticks", FLOAT32 * of_layers, "gradients")
    tick = each * of_layers / step.parts
    yield Buffer("gradients of a tick", tick, "gradients")
    turned = FLOAT32 * step.table / parts * step.is_zero_stage(3) * np.greater(parts, 1)
    yield Buffer("turned tables", 2 * turned, "temporary")
    saved = activations(step) / kept_passes(step)  # a tick's are copied from the slots of all
    yield Buffer("saved of a tick", saved, "temporary")
    yield Buffer("made by a tick", saved, "temporary")
    # Scattered beside the backward pass: whole, and the shard.
    scattered = step.itemsize * step.table * (1 + 1 / parts) * np.greater(parts, 1)
    yield Buffer("gradients of the head in turn", scattered * trained, "gradients")


def _of_others(step: StepSizes) -> Iterator[Buffer]:
    """Buffers of other software: gradients are kept, two layers' weights gathered at a time.

    A pipeline's first stage keeps most activations, its last one has the logits: they count as far
    as they exceed what the first keeps beyond the last. Likewise what comes when activations are
    gone counts as far as it exceeds these.

    Where autograd keeps each operation's tensors (nanotron @ 67c5ebb): float32 logits and their
    softmax (models/llama.py, sharded_cross_entropy); a microbatch's gradients in compute format
    until they are added to the float32 sums (optim/gradient_accumulator.py), of plain replicas in
    DDP's buckets, which stay; by ZeRO-1 the parameters flattened twice after the update, and the
    own shard once (distributed.py, all_gather_coalesced).
    """
    item, shape, traits = step.itemsize, step.shape, step.traits
    size = sharded_elements(step, 2) * BYTES[step.run.precision.gradients]
    yield Buffer("gradients", size, "gradients", True)
    of_kind = (
        sum(w.elements * w.itemsize for w in weights_of(step) if w.in_layer and w.moe == moe)
        for moe, _ in step.layer_kinds
    )
    of_layer = reduce(np.maximum, of_kind)
    held = of_layer * XLA.prefetched * step.is_zero_stage(3) * (shape.fsdp > 1)
    yield Buffer("gathered weights", held, "communication")
    kept, one = activations(step), of_last_stage(step)
    is_plain = traits.kept == "each"
    logits = _logits(step) * (FLOAT32 + (FLOAT32 if is_plain else item))
    is_one = np.equal(shape.stage, 1)
    yield Buffer("logits", logits * is_one, "temporary")
    there = kept + _working(step)  # where the first layers go backward
    if is_plain:
        own, in_buckets = item * trained_elements(step, 4), np.greater(shape.data, 1)
        yield Buffer("buckets of gradients", own * in_buckets, "gradients", True)
        arising = np.maximum(own * (1 - in_buckets) - one, 0.0)
        yield Buffer("gradients of a microbatch", arising, "gradients")
        is_zero_1 = step.is_zero_stage(1) * np.greater(shape.fsdp, 1)
        flat = np.maximum(own * (2 + 1 / shape.fsdp) * is_zero_1 - there - arising, 0.0)
        yield Buffer("flattened weights", flat, "communication")
        there = there + arising + flat
        # The last gathered inputs of products, kept between steps.
        whole = XLA.prefetched * step.stream * np.greater(shape.tensor, 1)
        yield Buffer("gathered stream", whole, "communication", True)
    last = (1 - is_one) * (logits + one * kept_passes(step, shape.stage - 1))
    yield Buffer("logits of the last stage", np.maximum(last - there, 0.0), "temporary")


def _logits(step: StepSizes) -> Number:
    return step.head_tokens / step.loss_chunks * step.head_rows


def hidden_units(step: StepSizes, moe: bool, routed: bool = True) -> Number:
    """Hidden activations of a layer on a device: of its MLP, or of all rows of its experts, without
    `routed` of shared ones alone."""
    width = step.tokens * step.config.d_ff
    if moe:
        shared = step.experts.n_shared_experts * step.tokens
        width = (exchanged_rows(step) * routed + shared) * expert_width(step.config)
    return width / step.shape.tensor


def _working(step: StepSizes) -> Number:
    """Bytes that the backward pass of one layer has at a time.

    An attention that stores its scores has them, probabilities, and gradients of both, in the
    trainer's program two of the four in float32.
    """
    config, shape, own_trainer = step.config, step.shape, step.is_own_trainer
    moe = step.layer_kinds[-1][0]
    numbers = XLA.working_hidden * hidden_units(step, moe)
    if own_trainer:
        numbers = numbers + XLA.working_stream * step.tokens * config.d_model
        matrix = config.d_model * expert_width(config) if moe else 0
        here = -(-step.experts.n_experts // shape.expert) / shape.tensor if moe else 0
        numbers = numbers + XLA.expert_matrices * (matrix * here)
    else:  # made again, and gradients of hidden units
        made = sum((kept.again for kept in kept_tensors(step, moe)), 0.0)
        gradients = (XLA.working_hidden / 3) * hidden_units(step, moe)
        again = made / step.itemsize + gradients * step.remat_is("full")
        numbers = np.maximum(numbers, again)
    if step.flash:
        return step.itemsize * numbers
    pairs = step.sequences * step.heads * float(step.run.batch.seq_len) ** 2 / shape.context
    scores = pairs * (2 * FLOAT32 * own_trainer + 2 * step.itemsize)
    return step.itemsize * numbers + scores
