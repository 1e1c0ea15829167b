"""Kernels of a step on one device but products of weights and attention: fusions, the head.

Bytes of a fusion are those of its operands and results, once each, X the residual stream, H hidden
units, in compute format; those of the trainer are XLA's (`scaling.analytic.software`):

    norm                       2 X forward; 10 X backward, remat and the gradient of its scale
                               included; one more where the stream is summed
    rotation of q and k        twice their size
    activation                 3 H forward with a gate, else 2; 5 and 3 backward; remat 1 more, and
                               5 where its inputs are not kept
    gradients of inputs        over tensor summed before they are sent: one more than there are
    saved activations          into stacks of all layers that are filled with zeros first, and out
    cast                       stored weights into compute format, before they are gathered
    quantized                  operands of 8-bit products: read in 16 bits, written in 8
    widened                    gradients into float32, before they are scattered
    gradients                  into the sums of all layers
    loss                       logits in float32: read twice forward; read, and written in compute
                               format, backward; for distillation twice more at a temperature, and
                               backward those of the teacher
    optimiser (AdamW, fp32)    28 bytes an element, and 4 for the norm of gradients
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from scaling.analytic.experts import exchanged_rows, expert_load, has_kernels
from scaling.analytic.memory import hidden_units, state_bytes, stored_format, trained_elements
from scaling.analytic.optimizer import muon_flops
from scaling.analytic.products import LayerProduct, matmul
from scaling.analytic.software import XLA
from scaling.analytic.step import FLOAT32, StepSizes, as_int
from scaling.analytic.weights import weights_of, zero_1_apart
from scaling.models.accounting.matrices import BYTES, query_key_dim
from scaling.program.ir import Kernel, Number, Origin, Phase

# Operations of the host that a fusion is elsewhere, forward and backward, counted in the layer of
# NVIDIA/Megatron-LM @ 00baee4, megatron/model/transformer.py, without flash attention: 14 with the
# products, 42 backward, of which 12 add gradients to float32 sums. The loss is that of
# megatron/core/tensor_parallel/cross_entropy.py and its mean. LAUNCHES of others is assumed.
LAUNCHED = {
    "norm": (2, 5), "rotation": (1, 4), "softmax": (2, 2), "activation": (1, 2),
    "gradients": (0, 12), "loss": (22, 10), "embed": (12, 8),
}  # fmt: skip
LAUNCHES = 3
# Tensors of a layer in nanotron (@ 67c5ebb, models/llama.py): q+k+v, o, gate+up, down, two norms;
# and besides layers: table, norm, head.
TENSORS, TABLES = 6, 3
PASSES = 6  # over weights: flattened, gathered into a list (ProcessGroupNCCL.cpp), copied back
MASK = 0.5  # bytes of a dropout mask per byte of a 16-bit tensor


def fusion(
    step: StepSizes,
    name: str,
    origin: Origin,
    moved: Number,
    times: Number = 1,
    operations: int = 1,
) -> Kernel:
    """An elementwise operation or a reduction that moves `moved` bytes."""
    traits = step.traits
    forward, backward = LAUNCHED.get(name.split()[-1], (LAUNCHES, LAUNCHES))
    launches = backward if origin.phase == "backward" else forward
    return Kernel(
        name,
        origin,
        vector_flops=operations * moved / step.itemsize * times,
        bytes=moved * traits.traffic * times,
        issue=launches * traits.launch,
    )


def in_layers(
    step: StepSizes,
    name: str,
    phase: Phase,
    part: str,
    moved: Number,
    times: Number = 1,
    operations: int = 1,
) -> Kernel:
    """A fusion in a part of a layer; "": in all of it."""
    origin = Origin(phase, f"layers/{part}".rstrip("/"))
    return fusion(step, f"{phase} {name}", origin, moved, times, operations)


def norm(step: StepSizes, phase: Phase, part: str, times: Number = 1) -> Kernel:
    """The norms around attention or MLP, fused with the residual sum before them."""
    passes = XLA.norm_backward if phase == "backward" else XLA.norm + (part == "mlp")
    if phase == "remat" and step.is_own_trainer:
        passes = int(part == "mlp")
    dropped = 1 + MASK * bool(step.run.dropout)
    norms = 2 if step.config.norms == "both" else 1
    moved = norms * passes * dropped * step.stream_shard
    return in_layers(step, f"{part} norm", phase, part, moved, times)


def rotation(step: StepSizes, phase: Phase, times: Number = 1) -> Kernel:
    """The fusion that rotates queries and keys, and norms them with qk_norm."""
    config = step.config
    heads = config.n_heads + (config.n_heads if config.mla else config.n_kv_heads)
    size = step.tokens * heads * query_key_dim(config) * step.itemsize / step.shape.tensor
    return in_layers(
        step, "rotation", phase, "attention", 2 * size * (1 + config.norms_heads), times
    )


def activation(step: StepSizes, moe: bool, phase: Phase, times: Number = 1) -> Kernel:
    """The activation of the MLP, or of all experts of a device."""
    gated = step.config.is_gated
    passes: Number = (5 if gated else 3) if phase == "backward" else (3 if gated else 2)
    if phase == "remat" and step.is_own_trainer:
        prefix = "expert_" if moe else ""
        again = np.maximum(step.recomputes(f"{prefix}up"), step.recomputes(f"{prefix}gate"))
        passes = 1 + (XLA.remat_activation - 1) * again
    fused = moe and has_kernels(step)  # into the routed experts' products
    moved = passes * hidden_units(step, moe, not fused) * step.itemsize
    return in_layers(step, "activation", phase, "mlp", moved, times)


def dispatch(step: StepSizes, name: str, phase: Phase, times: Number = 1) -> Kernel:
    """The fusion that sorts rows by expert, or puts them back.

    The trainer's kernels read tokens where they stand: only rows are added up, of results and of
    the gradients of tokens.
    """
    rows = 2 * exchanged_rows(step)
    if has_kernels(step):
        adds_up = (name == "combine") != (phase == "backward")
        rows = (expert_load(step) + step.tokens * step.shape.expert) * adds_up
    moved = rows * step.config.d_model * step.itemsize
    return in_layers(step, name, phase, "mlp", moved, times)


def stack_copies(step: StepSizes, name: str, phase: Phase, saved: Number) -> Kernel:
    """The copy of saved activations into, or out of, the stacks of all layers."""
    return fusion(step, f"{phase} {name}", Origin(phase, "layers"), 2 * saved, operations=0)


def layer_elements(step: StepSizes, moe: bool, part: str = "", sharded: Number = 0) -> Number:
    """Elements of a layer's matrices on a device: of attention, MLP, or both; whole, or where
    `sharded` is 1 of their shards."""
    own = (w for w in weights_of(step) if w.in_layer and w.moe == moe and part in ("", w.part))
    return sum(w.elements * (1 - sharded + sharded / w.shards) for w in own)


def casts(step: StepSizes, moe: bool, part: str, phase: Phase) -> list[Kernel]:
    """Stored weights of a part in compute format; none where they are stored so."""
    if BYTES[stored_format(step)] == step.itemsize:  # fp16 is written as bf16
        return []
    elements = layer_elements(step, moe, part, step.is_zero_stage(3))
    return [in_layers(step, f"{part} cast", phase, part, elements * (FLOAT32 + step.itemsize))]


def quantized(step: StepSizes, products: Sequence[LayerProduct], phase: Phase) -> list[Kernel]:
    """Operands of 8-bit products; grouped ones of the trainer are never in 8 bits."""
    if step.run.precision.compute != "fp8":
        return []
    every = [p for p in products if not (p.grouped and step.is_own_trainer)]
    operands = sum(p.batch * p.inputs * (p.rows + p.outputs) for p in every)
    results = sum(p.batch * p.rows * p.outputs for p in every)
    moved = (operands + results * (phase == "backward")) * (step.itemsize + BYTES["fp8"])
    return [in_layers(step, "quantized", phase, "mlp", moved)]


def widened(step: StepSizes, moe: bool) -> list[Kernel]:
    """Gradients of weights in the format in which they are scattered (`precision.reduce`)."""
    if step.arising_itemsize == step.itemsize:
        return []
    scattered = step.is_zero_stage(3) * np.greater(step.weight_shards, 1)
    moved = layer_elements(step, moe) * scattered
    moved = moved * (step.itemsize + step.arising_itemsize) * step.trains_all
    return [in_layers(step, "widened", "backward", "", moved)]


def gradient_sums(step: StepSizes, moe: bool) -> Kernel:
    """Gradients of weights, into the arrays of all layers; other software reads the sums, too."""
    passes = 1 if step.is_own_trainer else 2
    item = step.arising_itemsize + passes * step.summed_itemsize
    moved = layer_elements(step, moe, "", step.is_zero_stage(2, 3)) * item * step.trains_all
    return in_layers(step, "gradients", "backward", "", moved)


def embedding(step: StepSizes) -> tuple[Kernel, Kernel]:
    """The look-up, and the sum of the gradients of each row of the table."""
    size = step.stream_shard
    ahead, back = Origin("forward", "embed"), Origin("backward", "embed")
    gradient = XLA.embed_stream * size + step.table * XLA.embed_table
    return (
        fusion(step, "forward embed", ahead, 2 * size),
        fusion(step, "backward embed", back, gradient, step.trains_all),
    )


def head(step: StepSizes) -> tuple[list[Kernel], list[Kernel], list[Kernel]]:
    """Before the logits; of each chunk of tokens the loss and its gradients; after all chunks.

    In chunks, their stream is copied, and that of their gradients; the head's gradient is filled
    with zeros, and read and written by each product (`scaling.models.one_pass`).
    """
    ahead, back = Origin("forward", "head"), Origin("backward", "head")
    chunks = step.loss_chunks
    chunked = as_int(np.greater(chunks, 1))
    width, vocab, tokens = float(step.config.d_model), step.head_rows, step.head_tokens / chunks
    stream = step.stream_shard / step.head_parts
    logits = tokens * vocab * FLOAT32
    distils = step.run.train.loss is not None and not step.run.train.pairs
    whole, table = tokens * width * step.itemsize, vocab * width * step.itemsize
    product = partial(matmul, step, dtype=step.run.precision.between)  # never in 8 bits
    gradient = logits * (1 + distils + step.itemsize / FLOAT32)
    trained = step.trains_all
    of_weights = product("backward w head", back, (1, vocab, width, tokens), trained)
    before = [
        fusion(step, "forward final norm", ahead, XLA.norm * stream),
        fusion(step, "zeros of the head", ahead, table * trained + chunks * whole, chunked, 0),
    ]
    of_chunk = [
        fusion(step, "forward chunk", ahead, 2 * whole, chunked, 0),
        product("forward head", ahead, (1, tokens, vocab, width), 1, FLOAT32),
        fusion(
            step,
            "forward loss",
            Origin("forward", "loss"),
            2 * (1 + distils) * logits,
            operations=3,
        ),
        fusion(step, "backward loss", Origin("backward", "loss"), gradient, operations=3),
        product("backward d head", back, (1, tokens, width, vocab)),
        replace(of_weights, bytes=of_weights.bytes + table * chunked * trained),
        fusion(step, "backward chunk", back, 2 * whole, chunked, 0),
    ]
    return before, of_chunk, [fusion(step, "backward final norm", back, XLA.norm_backward * stream)]


def update(step: StepSizes) -> list[Kernel]:
    """The norm of gradients, and the optimiser's update of what a device stores."""
    precision = step.run.precision
    own = trained_elements(step, 1) / step.sharers
    stored = state_bytes(step) + BYTES[precision.parameters]
    moved = own * (2 * stored + step.summed_itemsize)
    origin = Origin("optimizer")
    muon = Kernel(
        "muon products", origin, kind="matmul", flops=muon_flops(step), dtype=precision.between
    )
    return [
        muon,
        fusion(step, "gradient norm", origin, own * step.summed_itemsize),
        fusion(step, f"{step.run.optimizer} update", origin, moved, operations=4),
        _gathered_pieces(step, origin),
    ]


def _gathered_pieces(step: StepSizes, origin: Origin) -> Kernel:
    """Copies of what is gathered after the update of ZeRO-1, where that takes a list of tensors.

    Each tensor of each rank is a piece of its own, which one operation of the host copies, after
    all are flattened and gathered (nanotron @ 67c5ebb, distributed.py: all_gather_coalesced). There
    are more pieces than launches that wait in a queue, so the host is never ahead.
    """
    copied = zero_1_apart(step) * np.greater(step.shape.fsdp, 1)
    pieces = step.shape.fsdp * (TENSORS * step.stages.fullest + TABLES)
    moved = PASSES * step.itemsize * trained_elements(step, 4) * copied
    kernel = fusion(step, "copies of gathered pieces", origin, moved, operations=0)
    return replace(kernel, issue=pieces * copied * step.traits.launch, late=True)


def accumulation(step: StepSizes, tables: int = 1) -> Kernel:
    """The sum of a microbatch's (or tick's) gradients by the trainer, where there are several; of
    one virtual stage's layers, and of the `tables` if 1."""
    layers = trained_elements(step, 2, in_layers=True)
    summed = layers / step.parts + tables * (trained_elements(step, 2) - layers)
    moved = 3 * FLOAT32 * summed
    return fusion(step, "accumulation", Origin("backward", ""), moved, step.is_sum)
