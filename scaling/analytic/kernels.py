"""Kernels of a step on one device but the products of weights: attention, fusions, the optimiser.

Bytes of a fusion are those of its operands and results, once each, X the residual stream, H hidden
units, in compute format; those of the trainer are XLA's (`scaling.analytic.xla_choices`):

    norm                       2 X forward; 10 X backward, remat and the gradient of its scale
                               included; one more where the stream is summed
    rotation of q and k        twice their size
    activation                 3 H forward with a gate, else 2; 5 and 3 backward; remat 1 more, and
                               5 where its inputs are not kept
    gradients of inputs        over tensor summed before they are sent: one more than there are
    saved activations          into stacks of all layers that are filled with zeros first, and out
    loss                       logits in float32: read twice forward; read, and written in compute
                               format, backward
    optimiser (AdamW, fp32)    28 bytes an element, and 4 for the norm of gradients
"""

from dataclasses import replace
from functools import partial

import numpy as np

from scaling.analytic.experts import exchanged_rows
from scaling.analytic.memory import hidden_units, state_bytes, trained_elements
from scaling.analytic.optimizer import muon_flops
from scaling.analytic.products import matmul
from scaling.analytic.step import FLOAT32, StepSizes, as_int, per_size
from scaling.analytic.xla_choices import XLA
from scaling.models.accounting import scores_share
from scaling.models.accounting.matrices import BYTES, query_key_dim, value_dim
from scaling.program import ops
from scaling.program.ir import CAUSAL, Kernel, Number, Origin, Phase

# Operations of the host that a fusion is elsewhere, forward and backward, counted in the layer of
# NVIDIA/Megatron-LM @ 00baee4, megatron/model/transformer.py, without flash attention: 14 with the
# products, 42 backward, of which 12 add gradients to float32 sums. The loss is that of
# megatron/core/tensor_parallel/cross_entropy.py and its mean. LAUNCHES of others is assumed.
LAUNCHED = {
    "norm": (2, 5), "rotation": (1, 4), "softmax": (2, 2), "activation": (1, 2),
    "gradients": (0, 12), "loss": (22, 10), "embed": (12, 8),
}  # fmt: skip
LAUNCHES = 3
MASK = 0.5  # bytes of a dropout mask per byte of a 16-bit tensor
SOFTMAX = 2, 3  # passes over the scores forward and backward: read, write; read both, write


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


def stream_bytes(step: StepSizes) -> Number:
    """Return the bytes of one microbatch's residual stream on one device, as norms read it."""
    parts = step.shape.tensor if step.sequence_parallel else 1
    return step.tokens * step.config.d_model * step.itemsize / parts


def norm(step: StepSizes, name: str, phase: Phase, part: str, times: Number = 1) -> Kernel:
    """Return the norm before attention or MLP, fused with the residual sum before it."""
    passes = XLA.norm_backward if phase == "backward" else XLA.norm + (part == "mlp")
    if phase == "remat" and step.is_own_trainer:
        passes = int(part == "mlp")
    dropped = 1 + MASK * bool(step.run.dropout)
    moved = passes * dropped * stream_bytes(step)
    return fusion(step, f"{phase} {name}", Origin(phase, f"layers/{part}"), moved, times)


def rotation(step: StepSizes, phase: Phase, times: Number = 1) -> Kernel:
    """Return the fusion that rotates queries and keys, and norms them with qk_norm."""
    config = step.config
    heads = config.n_heads + (config.n_heads if config.mla else config.n_kv_heads)
    size = step.tokens * heads * query_key_dim(config) * step.itemsize / step.shape.tensor
    moved = 2 * size * (1 + config.qk_norm)
    return fusion(step, f"{phase} rotation", Origin(phase, "layers/attention"), moved, times)


def activation(step: StepSizes, moe: bool, phase: Phase, times: Number = 1) -> Kernel:
    """Return the activation of the MLP, or of all experts of a device."""
    gated = step.config.mlp == "swiglu"
    passes: Number = (5 if gated else 3) if phase == "backward" else (3 if gated else 2)
    if phase == "remat" and step.is_own_trainer:
        prefix = "expert_" if moe else ""
        again = np.maximum(step.recomputes(f"{prefix}up"), step.recomputes(f"{prefix}gate"))
        passes = 1 + (XLA.remat_activation - 1) * again
    moved = passes * hidden_units(step, moe) * step.itemsize
    return fusion(step, f"{phase} activation", Origin(phase, "layers/mlp"), moved, times)


def dispatch(step: StepSizes, name: str, phase: Phase, times: Number = 1) -> Kernel:
    """Return the fusion that sorts rows by expert, or puts them back."""
    moved = 2 * exchanged_rows(step) * step.config.d_model * step.itemsize
    return fusion(step, f"{phase} {name}", Origin(phase, "layers/mlp"), moved, times)


def attention(
    step: StepSizes, phase: Phase, flash: float, times: Number = 1, kept: Number = 0
) -> list[Kernel]:
    """The attention's core: one fused kernel, or products and a softmax.

    FLOPs are those of all scores, or of the chunks that meet over `context`. `kept` is 1 where the
    result is still there, so that products alone do not multiply the values again.
    """
    run, config, shape = step.run, step.config, step.shape
    heads, length = -(-config.n_heads // shape.tensor), run.batch.seq_len
    keys, values = query_key_dim(config), value_dim(config)
    ring = lambda size: scores_share(config, length, size) / size
    share = per_size(ring, shape.context)
    origin = Origin(phase, "layers/attention")
    pairs = step.sequences * heads * float(length) ** 2 * share
    back = phase == "backward"
    if flash or "context" in step.active_axes:
        size, name = (step.sequences, length / shape.context, float(length)), f"{phase} attention"
        seen = np.minimum(
            1.0, ops.visible_share(length, config.sliding_window) / (share * shape.context)
        )
        return [fused_attention(step, name, phase, size, flash, times, seen, share)]
    batch = step.sequences * heads
    window = float(length)
    score = lambda name, k: matmul(
        step, f"{phase} {name}", origin, (batch, window, window, k), times
    )
    value = lambda name, n, times=times: matmul(
        step, f"{phase} {name}", origin, (batch, window, n, window), times
    )
    passes = (XLA.softmax if step.is_own_trainer else SOFTMAX)[back]
    passes += 2 * bool(run.dropout)
    softmax = fusion(step, f"{phase} softmax", origin, passes * pairs * step.itemsize, times, 5)
    if not back:
        return [score("scores", keys), softmax, value("values", values, times * (1 - kept))]
    return [
        value("d values", values),
        score("d probabilities", values),
        softmax,
        value("d queries", keys),
        value("d keys", keys),
    ]


def fused_attention(
    step: StepSizes,
    name: str,
    phase: Phase,
    size: tuple[Number, Number, Number],
    flash: float,
    times: Number = 1,
    visible: Number = CAUSAL,
    share: Number | None = None,
) -> Kernel:
    """One fused kernel of `size` (sequences, queries, keys), all scores counted, or of a `share` of
    the scores of whole sequences; its mask leaves the part `visible` of those counted."""
    config, (batch, queries, keys) = step.config, size
    heads, parts = -(-config.n_heads // step.shape.tensor), step.shape.tensor
    dim, values = query_key_dim(config), value_dim(config)
    scores = None if share is None else batch * heads * (keys**2 * share)
    groups = config.n_heads if config.mla else config.n_kv_heads
    moved = batch * queries * step.itemsize / parts * (config.n_heads + groups) * (dim + values)
    return ops.attention(
        name,
        (batch, heads, queries, keys, float(dim)),
        values,
        moved,
        step.run.precision.between,
        scores=scores,
        visible=visible,
        times=times,
        origin=Origin(phase, "layers/attention"),
        issue=step.traits.launch,
        share=step.traits.attention * (flash or 1.0),
    )


def stack_copies(step: StepSizes, name: str, phase: Phase, saved: Number) -> Kernel:
    """Return the copy of saved activations into, or out of, the stacks of all layers."""
    return fusion(step, f"{phase} {name}", Origin(phase, "layers"), 2 * saved, operations=0)


def zero_stacks(step: StepSizes, saved: Number, weights: Number) -> Kernel:
    """Stacks of what one microbatch saves, and of its float32 gradients, filled with zeros; half of
    the saved ones under remat "selective" are copies of others."""
    moved = saved * (1 + step.selective_remat / 2) + FLOAT32 * weights
    return fusion(step, "fills", Origin("forward", "layers"), moved, operations=0)


def sum_of_inputs(step: StepSizes, part: str, products: int) -> list[Kernel]:
    """Return the sum of the gradients of one input by its products, before tensor sums them."""
    if "tensor" not in step.active_axes or not step.is_own_trainer or products < 2:
        return []
    moved = (products + 1) * step.tokens * step.config.d_model * step.itemsize
    cut, origin = as_int(np.greater(step.shape.tensor, 1)), Origin("backward", f"layers/{part}")
    return [fusion(step, f"backward {part} sum", origin, moved, cut)]


def transposed_stream(step: StepSizes, name: str, phase: Phase, part: str) -> list[Kernel]:
    """The stream in the order in which tensor exchanges it: sequences inside of tokens.

    Nothing to do for one sequence, or as many as tensor cuts evenly (`scaling.meshes.rules`).
    """
    if not (step.sequence_parallel and step.is_own_trainer):
        return []
    moved = 2 * step.tokens * step.config.d_model * step.itemsize
    several = 1 * (
        np.greater(step.sequences, 1) & np.not_equal(step.sequences % step.shape.tensor, 0)
    )
    origin = Origin(phase, f"layers/{part}")
    return [fusion(step, f"{phase} {name} turned", origin, moved, several, operations=0)]


def embedding(step: StepSizes) -> tuple[list[Kernel], list[Kernel]]:
    """Return the look-up, and the sum of the gradients of each row of the table."""
    size, ahead, back = stream_bytes(step), Origin("forward", "embed"), Origin("backward", "embed")
    table = step.head_rows * step.config.d_model
    look_up = fusion(step, "forward embed", ahead, 2 * size)
    gradient = XLA.embed_stream * size + table * XLA.embed_table
    return [look_up], [fusion(step, "backward embed", back, gradient, step.trains_all)]


def head(step: StepSizes) -> tuple[list[Kernel], list[Kernel], list[Kernel]]:
    """Before the logits; of each chunk of tokens the loss and its gradients; after all chunks.

    In chunks, their stream is copied, and that of their gradients; the head's gradient is filled
    with zeros, and read and written by each product (`scaling.models.one_pass`).
    """
    ahead, back = Origin("forward", "head"), Origin("backward", "head")
    part, chunks = step.shape.stage if step.runs_in_ticks else 1, step.loss_chunks
    chunked = as_int(np.greater(chunks, 1))
    width, vocab, tokens = float(step.config.d_model), step.head_rows, step.head_tokens / chunks
    stream, logits = stream_bytes(step) / part, tokens * vocab * FLOAT32
    whole, table = tokens * width * step.itemsize, vocab * width * step.itemsize
    product = partial(matmul, step, dtype=step.run.precision.between)  # never in 8 bits
    gradient = logits * (1 + step.itemsize / FLOAT32)
    trained = step.trains_all
    of_weights = product("backward w head", back, (1, vocab, width, tokens), trained)
    before = [
        fusion(step, "forward final norm", ahead, XLA.norm * stream),
        fusion(step, "zeros of the head", ahead, table * trained + chunks * whole, chunked, 0),
    ]
    of_chunk = [
        fusion(step, "forward chunk", ahead, 2 * whole, chunked, 0),
        product("forward head", ahead, (1, tokens, vocab, width), 1, FLOAT32),
        fusion(step, "forward loss", Origin("forward", "loss"), 2 * logits, operations=3),
        fusion(step, "backward loss", Origin("backward", "loss"), gradient, operations=3),
        product("backward d head", back, (1, tokens, width, vocab)),
        replace(of_weights, bytes=of_weights.bytes + table * chunked * trained),
        fusion(step, "backward chunk", back, 2 * whole, chunked, 0),
    ]
    return before, of_chunk, [fusion(step, "backward final norm", back, XLA.norm_backward * stream)]


def update(step: StepSizes) -> list[Kernel]:
    """Return the norm of gradients, and the optimiser's update of what a device stores."""
    precision = step.run.precision
    own = trained_elements(step, 1)
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
    ]


def accumulation(step: StepSizes) -> Kernel:
    """Return the sum of a microbatch's (or tick's) gradients, where there are several."""
    moved = 3 * FLOAT32 * trained_elements(step, 2)
    several = step.is_sum * step.is_own_trainer
    return fusion(step, "accumulation", Origin("backward", ""), moved, several)
