"""Activations: what a layer keeps of a microbatch, and how many microbatches are kept at a time."""

from collections.abc import Callable, Sequence

import numpy as np

from scaling.analytic.step import FLOAT32, StepSizes
from scaling.models.accounting.activations import ALWAYS, Activation, activation_tensors
from scaling.parallelism.pipeline import recomputes
from scaling.program.ir import Number

STREAM = ("block_input", "residual")  # tensors of a block as long as the stream
NORMED = ("norm1_output", "norm2_output", "expert_input")  # inputs of products
READ_IN_PLACE = (*STREAM, "gate", "up")  # saved tensors that their consumers take from the stacks


def saved_bytes(step: StepSizes, moe: bool, without: Sequence[str] = ()) -> Number:
    """Bytes that a layer keeps of one microbatch from its forward to its backward pass, on the
    device."""
    return _kept_bytes(step, moe, False, without) + _dropped(step) * step.tokens


def offloaded_bytes(step: StepSizes, moe: bool, names: Sequence[str] | None = None) -> Number:
    """Bytes that a layer keeps of one microbatch in the host's memory: of some tensors, or all."""
    return _kept_bytes(step, moe, True, names=names)


def _kept_bytes(
    step: StepSizes,
    moe: bool,
    on_host: bool,
    without: Sequence[str] = (),
    names: Sequence[str] | None = None,
) -> Number:
    run, shape = step.run, step.shape
    tensors = activation_tensors(step.config, run.batch.seq_len, run.attention, moe)
    total: Number = 0.0
    for tensor in tensors:
        if tensor.name in without or not (names is None or tensor.kept_as in names):
            continue
        item = FLOAT32 if tensor.always_fp32 else step.itemsize
        kept = _is_kept(step, tensor)
        there = step.on_host(tensor.kept_as)
        kept = there if on_host else kept - there
        whole = tensor.name in NORMED and step.habits.is_ours
        cut = step.sequence_parallel and not whole if tensor.name in (*STREAM, *NORMED) else True
        total = total + kept * tensor.elements * item / (shape.tensor if cut else 1)
    return total * step.tokens


def _is_kept(step: StepSizes, tensor: Activation) -> Number:
    """1 where a tensor is kept; of other software's "selective" all but the attention's core."""
    if tensor.kept_as == ALWAYS:
        return 1
    none = 1 - step.again
    if not step.habits.is_ours:
        return none + step.selective * (tensor.name != "probabilities")
    return step.keeps(tensor.kept_as) if tensor.kept_as else none


def _dropped(step: StepSizes) -> Number:
    """Bytes of a token that dropout of other software keeps: masks of one byte after attention and
    MLP; of stored probabilities the mask and the result (arXiv 2205.05198, section 4.1)."""
    run, shape = step.run, step.shape
    if step.habits.is_ours or not run.dropout:
        return 0
    none = 1 - step.again
    masks = 2 * step.config.d_model / (shape.tensor if step.sequence_parallel else 1)
    probabilities = step.config.n_heads * run.batch.seq_len / shape.tensor
    of_scores = none * probabilities * (1 + step.itemsize) * (run.attention == "unfused")
    return (none + step.selective) * masks + of_scores


def in_flight(step: StepSizes) -> Number:
    """Microbatches whose activations the first stage keeps at a time.

    1F1B: as many as there are stages; several virtual stages: (S - 1) / (S V) more (arXiv
    2205.05198, section 4.2.3).
    """
    stages, virtual = step.shape.stage, step.virtual_stages
    if "stage" not in step.cut:
        return 1
    if step.run.pipeline.schedule == "gpipe":
        return step.microbatches
    most = stages + (stages - 1) / virtual if virtual > 1 else stages
    return np.minimum(most, step.microbatches)[()]


def activations(
    step: StepSizes, of_layer: Callable[[StepSizes, bool], Number] = saved_bytes
) -> Number:
    """Bytes that all layers of a device keep, `of_layer` each, with experts or without."""
    of_layers = sum(step.stored(n) * of_layer(step, moe) for moe, n in step.layer_kinds)
    if not step.ticks:
        return of_layers * in_flight(step)
    return of_layers / step.virtual_stages * (1 if recomputes(step.run) else step.iterations)
