"""The attention of a layer: its core, and the trainer's over `context`, in zigzag order.

    permute     |--- 1 ---|--- 2 ---|--- 3 ---|              keys and values on their way
    compute     |own|across|..| pair 1 |..| pair 2 |..| pair 3 |     ..: copies and merges

A device has two chunks: attention of each to itself (own), of the late to the early one (across),
and two pairs of chunks for each other device whose keys arrive (`models.attention_kernels`). The
efficiency of each kernel is that of a chunk's keys. Forward and backward, of Q queries and KV keys
and values of a device, besides the kernels' own operands, the fusions of XLA move (read in the
programs of Llama 3 1B over context=8 and 8B over context=2, jax 0.10.2 for H100)

    own, across   2 KV sent, 2 KV and 2 Q stacked by chunk, 3.5 Q merged in float32;
                  backward three stacks of queries (q, output, its gradient), their late halves
    each pair     2 KV and 2 Q selected, 5 Q merged; backward three selections, 5 Q of gradients,
                  and 3 KV of gradients on their way home
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scaling.analytic.kernels import fusion
from scaling.analytic.products import matmul
from scaling.analytic.schedule import ScheduledCollectives
from scaling.analytic.software import XLA
from scaling.analytic.step import StepSizes, per_size
from scaling.models.accounting.context import computed_scores, exchanged_width
from scaling.models.accounting.matrices import Reach, layer_reaches, query_key_dim, value_dim
from scaling.models.attention_kernels.zigzag import ring_hops, visible_rows, window_reach
from scaling.program import ops
from scaling.program.ir import CAUSAL, Kernel, Loop, Number, Operation, Origin, Phase

SOFTMAX = 2, 3  # passes over the scores forward and backward: read, write; read both, write
ARRAYS_BACKWARD = 3  # as long as the queries, of a backward kernel: q, the output, its gradient
OWN_MERGE, MERGE, HOME = 3.5, 5, 3  # see above
STATISTICS = 2  # kernels for log-sum-exps and masks, which move next to nothing, with each pair


def attention_kinds(step: StepSizes) -> list[tuple[str, Reach, Number]]:
    """The kinds of attention of a model's layers: what marks the names of theirs, what they span,
    and their share of the layers."""
    reaches, layers = layer_reaches(step.config), step.config.n_layers
    if len(reaches) == 1:
        return [("", next(iter(reaches)), 1)]
    return [(f" {reach}".rstrip(), reach, n / layers) for reach, n in reaches.items()]


def core_kernels(
    step: StepSizes, phase: Phase, times: Number = 1, kept: Number = 0
) -> list[Kernel]:
    """The attention's core, kind by kind: one fused kernel, or products and a softmax.

    FLOPs are those of all scores, or of the chunks that meet over `context`. `kept` is 1 where the
    result is still there, so that products alone do not multiply the values again.
    """
    return [
        replace(kernel, name=f"{kernel.name}{mark}")
        for mark, reach, layers in attention_kinds(step)
        for kernel in _core_kernels(step, phase, reach, times * layers, kept)
    ]


def _core_kernels(
    step: StepSizes, phase: Phase, reach: Reach, times: Number, kept: Number
) -> list[Kernel]:
    run, config, context = step.run, step.config, step.shape.context
    length, keys, values = run.batch.seq_len, query_key_dim(config), value_dim(config)
    fuses = step.flash or "context" in step.active_axes
    if fuses and not reach.is_cut(length):
        share = per_size(
            lambda size: computed_scores(reach, length, size) / length**2 / size, context
        )
        size = step.sequences, length / context, float(length)
        seen = np.minimum(1.0, ops.visible_share(length, reach.window) / (share * context))
        return [fused_kernel(step, f"{phase} attention", phase, size, times, seen, share)]
    if fuses:
        return [_chunked_kernel(step, phase, reach, times)]
    rows = float(Reach(chunk=reach.chunk).context(length))
    batch, back = step.sequences * step.heads * (length / rows), phase == "backward"
    origin = Origin(phase, "layers/attention")

    def product(name: str, n: float, k: float, times: Number = times) -> Kernel:
        return matmul(step, f"{phase} {name}", origin, (batch, rows, n, k), times)

    passes = (XLA.softmax if step.is_own_trainer else SOFTMAX)[back] + 2 * bool(run.dropout)
    moved = passes * (batch * rows**2) * step.itemsize
    softmax = fusion(step, f"{phase} softmax", origin, moved, times, 5)
    if not back:
        result = product("values", values, rows, times * (1 - kept))
        return [product("scores", rows, keys), softmax, result]
    return [
        product("d values", values, rows),
        product("d probabilities", rows, values),
        softmax,
        product("d queries", keys, rows),
        product("d keys", keys, rows),
    ]


def _chunked_kernel(step: StepSizes, phase: Phase, reach: Reach, times: Number) -> Kernel:
    """The fused kernel of chunks, each a sequence of its own."""
    assert reach.chunk is not None
    chunk = float(reach.chunk)
    size = step.tokens / chunk, chunk, chunk
    visible = ops.visible_share(reach.chunk, reach.window)
    return fused_kernel(step, f"{phase} attention", phase, size, times, visible)


def fused_kernel(
    step: StepSizes,
    name: str,
    phase: Phase,
    size: tuple[Number, Number, Number],
    times: Number,
    visible: Number,
    share: Number | None = None,
) -> Kernel:
    """One fused kernel of `size` (sequences, queries, keys), all scores counted, or of a `share` of
    the scores of whole sequences; its mask leaves the part `visible` of those counted."""
    config, heads, (batch, queries, keys) = step.config, step.heads, size
    dim, values = query_key_dim(config), value_dim(config)
    groups = config.n_heads if config.mla else config.n_kv_heads
    moved = batch * queries * step.itemsize / step.shape.tensor
    return ops.attention(
        name,
        (batch, heads, queries, keys, float(dim)),
        values,
        moved * (config.n_heads + groups) * (dim + values),
        step.run.precision.between,
        scores=None if share is None else batch * heads * (keys**2 * share),
        visible=visible,
        kv_heads=groups / step.shape.tensor,
        library=ops.TRAINING,
        times=times,
        origin=Origin(phase, "layers/attention"),
        issue=step.traits.launch,
        share=step.traits.attention * (step.flash or 1.0),
    )


def others(step: StepSizes, reach: Reach) -> Number:
    """Other devices whose keys a device attends to."""
    return per_size(lambda size: sum(map(len, ring_of(step, reach, size))), step.shape.context)


def ring_of(step: StepSizes, reach: Reach, devices: int) -> Sequence[Sequence[int]]:
    """The hops of keys and values around so many devices, each way; chunks send none."""
    if reach.is_cut(step.run.batch.seq_len):
        return ()
    return ring_hops(devices, window_reach(reach.window, chunk_size(step, devices)))


def chunk_size(step: StepSizes, devices: int) -> int:
    """Tokens of one of the two chunks of a device."""
    return -(-step.run.batch.seq_len // (2 * devices))


def zigzag_attention(
    step: StepSizes,
    phase: Phase,
    reach: Reach,
    sent: ScheduledCollectives,
    times: Number,
    calls: Number = 0,
) -> list[Operation]:
    """The attention of layers that span `reach`, with its exchange.

    Args:
        sent: of the ring one permute, which is called `calls` times: beside each block one, those
            of gradients beside the next; of the method all-gather gathers, which run beside the
            first block, and scatters, which follow the last.
        times: 0 where it does not run.
    """
    if reach.is_cut(step.run.batch.seq_len):
        return [_chunked_kernel(step, phase, reach, times)]
    count, every = others(step, reach), sent.beside
    kernel = lambda part: _kernel(step, phase, part, reach.window, times)
    own = [*_copies(step, phase, "own", times), kernel("own"), kernel("across")]
    pair = [*_copies(step, phase, "pair", times), kernel("pair")]
    if step.run.context.method != "ring" or not every:
        sent = ScheduledCollectives(
            beside=tuple(call for call in every if call.kind == "all-gather"),
            alone=tuple(call for call in every if call.kind != "all-gather"),
        )
        block = [*own, *sent.waits, _loop(f"{phase} pairs of chunks", count, pair)]
        return [*sent.beside, *block, *sent.exposed]
    (keys,) = every
    home = replace(keys, name=f"{keys.name} home")
    goes_home = phase == "backward"  # gradients, as many as keys
    begins = np.greater(calls, count - 0.5)  # not where the first keys have been kept
    first = replace(keys, name=f"{keys.name} first", bytes=keys.bytes * begins)
    last = replace(home, name=f"{home.name} last")
    start = ScheduledCollectives(beside=(first,) if np.any(begins) else ())
    both = ScheduledCollectives(beside=(keys, home) if goes_home else (keys,))
    end = ScheduledCollectives(alone=(last,) if goes_home else ())
    return [
        *start.wrap(own),
        _loop(f"{phase} ring", np.maximum(count - 1, 0)[()], both.wrap(pair)),
        _loop(f"{phase} end of the ring", np.minimum(count, 1)[()], pair),
        *end.exposed,
    ]


def _loop(name: str, trips: Number, body: Sequence[Operation]) -> Loop:
    return Loop(name, trips=trips, body=tuple(body))


def _kernel(step: StepSizes, phase: Phase, part: str, window: int | None, times: Number) -> Kernel:
    """Own chunks, the late to the early one, or two pairs with another device."""
    seen = lambda size: visible_rows(None if part == "own" else window, chunk_size(step, size))
    rows = per_size(seen, step.shape.context)
    batch = step.sequences * (1 if part == "across" else 2)
    visible = CAUSAL if part == "own" else 1.0  # other chunks are seen whole, or not at all
    size, name = (batch, rows, rows), f"{phase} attention of {part}"
    return fused_kernel(step, name, phase, size, times, visible)


def _copies(step: StepSizes, phase: Phase, part: str, times: Number) -> list[Operation]:
    """The fusions around the kernels of a block; see the module."""
    back, config = phase == "backward", step.config
    unit = step.tokens * step.itemsize / step.shape.tensor
    queries = unit * config.n_heads * query_key_dim(config)
    keys = unit * exchanged_width(config)
    arrays = ARRAYS_BACKWARD if back else 1
    moved: list[tuple[str, Number]] = [("keys", 2 * keys)]
    moved += [(f"queries {number}", 2 * queries) for number in range(arrays)]
    if part == "own":
        moved += [("sent", 2 * keys), ("merge", OWN_MERGE * queries)]
        moved += [(f"late queries {number}", queries) for number in range(arrays)] * back
    else:
        moved += [("merge", MERGE * queries), *[("home", HOME * keys)] * back]
        moved += [(f"statistics {number}", 0.0) for number in range(STATISTICS)]
    origin = Origin(phase, "layers/attention")
    name = f"{phase} {part} of the ring:"
    return [
        fusion(step, f"{name} {what}", origin, np.maximum(size, 1.0), times, operations=0)
        for what, size in moved
    ]
