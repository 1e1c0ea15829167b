"""Activations: what a layer keeps of a microbatch, and how many microbatches are kept at a time.

What it keeps in the host's memory is copied beside its kernels:

forward    out after the part that makes it          over at the end of the layer
backward   back from the beginning of the layer on   over before the part that takes it
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scaling.analytic.experts import saved_expert_rows
from scaling.analytic.step import FLOAT32, StepSizes, step_sizes
from scaling.analytic.weights import ATTENTION, MLP
from scaling.meshes.shape import MeshShape
from scaling.models.accounting.activations import (
    ALWAYS,
    Activation,
    SavedRow,
    activation_tensors,
)
from scaling.models.accounting.matrices import BYTES
from scaling.models.accounting.remat import AUTO, HIDDEN, QKV, keeps
from scaling.models.pipeline.schedule import slot_count
from scaling.program.ir import Kernel, Number, Operation, Origin, Phase, Wait, some
from scaling.run import Module, Run

# tensors of a block as long as the stream
STREAM = ("block_input", "residual", "attention_sum", "mlp_output")
NORMED = ("norm1_output", "norm2_output", "expert_input")  # inputs of products
# What modules leave out that are computed again (Megatron-LM, core/transformer/
# transformer_config.py: recompute_modules); up-projections begin with the norms of latents.
DROPPED: Mapping[Module, tuple[str, ...]] = {
    "core_attn": ("probabilities",),
    "layernorm": ("norm1_output", "norm2_output"),
    "mla_up_proj": ("q", "k", "v", "latent_norm_outputs"),
    "moe_act": ("expert_hidden", "shared_hidden"),
}
# Inputs of products alone, which gradients of weights take: in 8 bits, where products are
# (arXiv 2412.19437, section 3.3.3; Transformer Engine keeps its linear layers' inputs so).
OF_PRODUCTS = (*NORMED, "latent_norm_outputs", "hidden", "expert_hidden", "shared_hidden")
READ_IN_PLACE = (*STREAM, "gate", "up")  # saved tensors that their consumers take from the stacks
# Tensors that remat can keep (`models.accounting.remat`), by the part of the block that makes them
# or takes them first.
TENSORS = {
    ATTENTION: (*QKV, "attention"),
    MLP: ("attention_out", "expert_input", *HIDDEN),
}
REMAT = "remat"  # what is needed to compute the rest again
Copies = dict[str, Kernel]  # by part, or REMAT


@dataclass(frozen=True)
class KeptTensor:
    """A tensor that a layer keeps from its forward to its backward pass; bytes of one microbatch on
    one device."""

    tensor: Activation
    device: Number
    host: Number  # in the host's memory
    again: Number  # where the layer is computed again, in its backward pass


def saved_bytes(step: StepSizes, moe: bool, without: Sequence[str] = ()) -> Number:
    """The bytes that a layer keeps of one microbatch on the device."""
    kept = (k.device for k in kept_tensors(step, moe) if k.tensor.name not in without)
    return sum(kept, 0.0) + _dropped(step) * step.tokens


def offloaded_bytes(step: StepSizes, moe: bool, names: Sequence[str] | None = None) -> Number:
    """The bytes that a layer keeps in the host's memory, of these tensors or of all."""
    kept = kept_tensors(step, moe)
    return sum((k.host for k in kept if names is None or k.tensor.kept_as in names), 0.0)


@lru_cache(maxsize=8)
def kept_tensors(step: StepSizes, moe: bool) -> tuple[KeptTensor, ...]:
    """The tensors of a layer, in the order of its forward pass; 0 bytes where one is not kept."""
    run = step.run
    tensors = activation_tensors(step.config, run.batch.seq_len, run.attention, moe)
    return tuple(_kept_tensor(step, tensor) for tensor in tensors)


def _kept_tensor(step: StepSizes, tensor: Activation) -> KeptTensor:
    item = FLOAT32 if tensor.always_fp32 else step.itemsize
    if step.run.precision.compute == "fp8" and not step.is_own_trainer:
        item = BYTES["fp8"] if tensor.name in OF_PRODUCTS else item
    whole = tensor.name in NORMED and step.is_own_trainer
    cut = step.sequence_parallel and not whole if tensor.name in (*STREAM, *NORMED) else True
    size = step.tokens * tensor.elements * item / (step.shape.tensor if cut else 1)
    if tensor.name.endswith("gate") and step.traits.kept == "each":
        size = 2 * size  # and its activation, which is multiplied
    if tensor.name.startswith("expert_") and step.is_own_trainer:
        filled = step.tokens * step.experts.experts_per_token  # kept are rows of the buffers
        size = size * (saved_expert_rows(step, tensor.name) / filled)
    on_host = step.on_host(tensor.kept_as)
    again = step.remat_is("full") * (tensor.kept_as != ALWAYS) * size
    return KeptTensor(tensor, (_is_kept(step, tensor) - on_host) * size, on_host * size, again)


def _is_kept(step: StepSizes, tensor: Activation) -> Number:
    """1 where a tensor is kept. Other software's "selective" keeps all but what modules drop."""
    if tensor.kept_as == ALWAYS:
        return 1
    none = 1 - step.recomputes_some
    if not step.is_own_trainer:
        modules = (module for module, names in DROPPED.items() if tensor.name in names)
        return none + step.remat_is("selective") - step.recomputes_module(*modules)
    return step.keeps(tensor.kept_as) if tensor.kept_as else none


def _dropped(step: StepSizes) -> Number:
    """Bytes of a token that dropout of other software keeps: masks of one byte after attention and
    MLP; of stored probabilities the mask and the result (arXiv 2205.05198, section 4.1)."""
    run, shape = step.run, step.shape
    if step.is_own_trainer or not run.dropout:
        return 0
    none = 1 - step.recomputes_some
    masks = 2 * step.config.d_model / step.stream_parts
    probabilities = step.config.n_heads * run.batch.seq_len / shape.tensor
    of_scores = none * probabilities * (1 + step.itemsize) * (run.attention == "unfused")
    return (none + step.remat_is("selective")) * masks + of_scores


def activations(
    step: StepSizes, of_layer: Callable[[StepSizes, bool], Number] = saved_bytes
) -> Number:
    """Bytes that all layers of a device keep, `of_layer` each, with experts or without.

    Where stages differ, those of the one that keeps most.
    """
    if step.stages.table is not None:
        number = np.arange(len(step.stages.table[0]))[:, None]
        kept = of_stages(step, of_layer) * kept_passes(step, number)
        return _figure(kept.max(axis=0))
    return saved_in_layers(step, of_layer) / step.parts * kept_passes(step)


def saved_in_layers(
    step: StepSizes, of_layer: Callable[[StepSizes, bool], Number] = saved_bytes
) -> Number:
    """Return the bytes that `of_layer` gives, of all layers of a stage, for one microbatch."""
    return sum(step.stored(n) * of_layer(step, moe) for moe, n in step.layer_kinds)


def of_stages(
    step: StepSizes, of_layer: Callable[[StepSizes, bool], Number] = saved_bytes
) -> np.ndarray:
    """Bytes that each stage keeps of a pass, [stages, configurations], by the table of stages."""
    assert step.stages.table is not None
    layers, again = step.stages.table
    mean = lambda of: sum(n * of_layer(of, moe) for moe, n in of.layer_kinds) / of.config.n_layers
    return (layers - again) * mean(step.kept) + again * mean(step)


def of_last_stage(step: StepSizes) -> Number:
    """Bytes that the last stage of other software keeps of a pass."""
    if step.stages.table is None:
        return activations(step) / kept_passes(step)
    each = of_stages(step)
    last = np.broadcast_to(np.atleast_1d(step.shape.stage) - 1, (1, each.shape[1])).astype(int)
    return _figure(np.take_along_axis(each, last, axis=0)[0])


def _figure(figures: np.ndarray) -> Number:
    """Figures [configurations]; of a single one its own."""
    return figures if len(figures) > 1 else float(figures[0])


def kept_passes(step: StepSizes, stage: Number = 0) -> Number:
    """How many passes' activations a stage keeps at a time, the first by default: the trainer's are
    through one part of its layers, those of other software through all.

    1F1B: as many as there are stages from it on; several virtual stages: the first (S - 1) / (S V)
    more (arXiv 2205.05198, section 4.2.3), each next one 2 / V less, which has it twice as short
    a way to the last one and back. DualPipe: S + 1 each (arXiv 2412.19437, table 2). Pairs take a
    forward and a backward pass for each stage of the way: 1F1B keeps two microbatches for each next
    stage, which several virtual stages keep anyway.
    """
    stages, virtual = step.shape.stage, step.virtual_stages
    if "stage" not in step.active_axes:
        return 1
    if step.runs_in_ticks:
        return slot_count(stages * virtual, step.microbatches * virtual)
    if step.run.pipeline.schedule == "gpipe":
        return step.microbatches
    if step.is_dualpipe:
        return np.minimum(stages + 1, step.microbatches)[()]
    most = stages - stage + step.pairs * (stages - stage - 1)
    if virtual > 1:
        most = stages + (stages - 1 - 2 * stage) / virtual
    return np.minimum(most, step.microbatches)[()]


def saved_rows(run: Run, mesh: MeshShape) -> list[SavedRow]:
    """Every tensor that is kept, in the order of the forward pass."""
    step, rows = step_sizes(run, mesh), list[SavedRow]()
    every = [(has, tensor) for has, _ in step.layer_kinds for tensor in kept_tensors(step, has)]
    for moe, kept in every:
        layers = "layers with experts" if moe else "layers"
        name = "" if kept.tensor.kept_as == ALWAYS else kept.tensor.kept_as
        for memory, size in (("device", kept.device), ("host", kept.host)):
            if size:
                own = lambda _, of, size=size, moe=moe: size if of == moe else 0.0
                sizes = int(size), int(activations(step, own))
                rows.append(SavedRow(kept.tensor.name, name, memory, layers, *sizes))
    return rows


def host_copies(
    step: StepSizes,
    moe: bool,
    name: str,
    phase: Phase,
    tensors: Mapping[str, tuple[str, ...]] = TENSORS,
    times: Number = 1,
) -> Copies:
    """Copies to or from the host, by part of a layer; `times` is 0 where they do not run."""
    sizes = {part: offloaded_bytes(step, moe, names) * times for part, names in tensors.items()}
    origin, after = Origin(phase, "layers"), " of experts" * moe
    copy = lambda part, size: Kernel(
        *(f"{name} {part}{after}", origin),
        kind="copy",
        bytes=size,
        host_bytes=size,
        asynchronous=True,
    )
    return {part: copy(part, size) for part, size in sizes.items() if some(size)}


def returning(step: StepSizes, moe: bool) -> Copies:
    """Copies back in a layer's backward pass, in the order in which it needs them."""
    first: tuple[str, ...] = ("attention_out",)
    if step.run.remat != AUTO and not keeps(step.run.remat, "attention"):
        first = (*first, *TENSORS[ATTENTION])
    later = {p: tuple(t for t in TENSORS[p] if t not in first) for p in (MLP, ATTENTION)}
    return host_copies(step, moe, "fetch", "backward", {REMAT: first, **later})


def waits(copies: Mapping[str, Kernel], part: str = "") -> list[Operation]:
    """The waits for copies: of one part, or of all."""
    return [Wait(copy.name, copy.origin) for of, copy in copies.items() if part in ("", of)]
