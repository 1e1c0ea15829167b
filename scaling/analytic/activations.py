"""Communication of activations: the residual stream, also between stages, keys and values,
statistics of the loss, and gradients of vectors. Transfers of `scaling.analytic.table`.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from scaling.analytic.attention import attention_kinds, chunk_size, others, ring_of
from scaling.analytic.step import FLOAT32, StepSizes, Transfer, as_int, per_size
from scaling.models.accounting.context import exchanged_width
from scaling.models.accounting.matrices import Reach, block_stacks, expert_width, gathered_width
from scaling.models.accounting.parameters import QKV
from scaling.models.attention_kernels.zigzag import visible_rows
from scaling.program.ir import CollectiveKind, Number

KEYS = "keys and values"  # `what` of their lines
STREAM, LATENTS = "residual stream", "latents"


def residual_stream(step: StepSizes) -> Iterator[Transfer]:
    """The residual stream, gathered and summed over tensor; what the attention takes by itself."""
    for moe, layers in step.layer_kinds:
        yield from _in_layers(step, step.passes(layers), moe)
    head = step.stream / step.head_parts
    for what, size, runs, gather, sum_ in (
        ("embedding", step.stream, step.embeddings, "backward embed", "forward embed"),
        ("head", head, step.microbatches, "forward head", "backward head"),
    ):
        calls = step.vocab_is_sharded * runs
        yield from _moved(step, size, calls, f"stream of the {what}", gather, gathers=True)
        yield from _moved(step, size, calls, f"stream of the {what}", sum_)


def _in_layers(step: StepSizes, passes: Number, moe: bool) -> Iterator[Transfer]:
    """Inputs of attention and MLP are gathered, their outputs summed, and the reverse backward.

    Other software computes a layer again with all that it moves; and, sequence-parallel, keeps its
    own tokens of the inputs of products and gathers them again for the gradients of weights
    (arXiv 2205.05198, section 4.2.2).
    """
    again = step.repeats_layer
    gathered, summed = np.maximum(again, int(step.sequence_parallel)), again
    has_keys = step.remat_is("selective")
    if step.is_own_trainer:
        gathered, summed = again, again if step.config.has_post_norms else 0
        has_keys = step.keeps("key") - (1 - step.recomputes_some)
    taken, latents = gathered_width(step.config), step.config.d_model != gathered_width(step.config)
    of_attention = step.tokens * taken * step.itemsize  # what it takes
    # Remat has the saved, rotated part of the keys, and gathers the rest.
    rotated = step.config.mla.qk_rope_head_dim if step.config.mla else 0
    shares = {  # of the passes: into attention and out, into MLP and out
        "forward": (1, 1, 1, 1),
        "remat": (gathered, step.recomputes("o"), gathered, summed),
        "backward": (1, 1, 1, 1),
    }
    for place, row in shares.items():
        for end, share in zip(
            ("attention in", "attention out", "mlp in", "mlp out"), row, strict=True
        ):
            size, what = step.stream, STREAM
            if end == "attention in":
                size, what = of_attention, LATENTS if latents else STREAM
                if place == "remat":
                    size = of_attention * (1 - has_keys * rotated / taken)
                    what += " again" * latents
            gathers = end.endswith("in") != (place == "backward")
            yield from _moved(step, size, passes * share, what, f"{place} {end}", gathers, moe)


def _moved(
    step: StepSizes,
    size: Number,
    calls: Number,
    what: str,
    place: str,
    gathers: bool = False,
    moe: bool = False,
) -> Iterator[Transfer]:
    """A gather or a sum over tensor; without sequence parallelism gathers move nothing."""
    kind: CollectiveKind = "all-gather" if gathers else "reduce-scatter"
    if not step.sequence_parallel:
        kind = "all-reduce"
        calls = 0 if gathers else calls
    yield Transfer(step.axis_names("tensor"), kind, size, calls, what, place, moe)


def keys_and_values(step: StepSizes) -> Iterator[Transfer]:
    """Keys and values and their gradients, around `context`."""
    run, config, C = step.run, step.config, step.shape.context
    if "context" not in step.active_axes:
        return
    axes = step.axis_names("context")
    width = exchanged_width(config) / step.shape.tensor * step.itemsize
    # remat runs the attention again
    attends = step.recomputes("values") if step.is_own_trainer else step.recomputes_core
    for moe, layers in step.layer_kinds:
        for mark, reach, share in attention_kinds(step):
            kv = step.tokens * per_size(partial(_visible, step, reach), C) * width
            hops, passes = others(step, reach), step.passes(layers) * share
            again = hops - per_size(partial(_first_hops, step, reach), C)
            if run.context.method == "ring":
                for place, calls in (
                    ("forward", hops),
                    ("remat", attends * again),
                    ("backward", 2 * hops),
                ):
                    where = f"{place} attention{mark}"
                    yield Transfer(axes, "permute", kv, passes * calls, KEYS, where, moe)
            elif np.any(hops):
                passes = passes * np.greater(hops, 0)
                for place in ("forward", "backward"):
                    where = f"{place} attention{mark}"
                    yield Transfer(axes, "all-gather", C * kv, passes, KEYS, where, moe)
                where = f"backward attention{mark}"
                yield Transfer(axes, "reduce-scatter", C * kv, passes, KEYS, where, moe)


def _visible(step: StepSizes, reach: Reach, devices: int) -> float:
    """Share of a chunk's rows that other devices see."""
    chunk = chunk_size(step, devices)
    return visible_rows(reach.window, chunk) / chunk


def _first_hops(step: StepSizes, reach: Reach, devices: int) -> int:
    """Hops of the ring whose keys are the first to arrive."""
    return sum(map(bool, ring_of(step, reach, devices)))


def pipeline_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the pipeline; without stages they move nothing."""
    over = step.axis_names("stage")
    stream, what = step.stream_shard, "stream between stages"
    scatters = step.run.pipeline.scatter and not step.sequence_parallel
    sent, calls = stream / (step.shape.tensor if scatters else 1), step.iterations
    for place in ("forward tick", "backward tick"):
        yield Transfer(over, "permute", sent, calls, what, place)
        yield Transfer(
            step.axis_names("tensor"), "all-gather", stream, calls * scatters, what, place
        )
    calls, what = step.microbatches * step.runs_in_ticks, "stream of the last stage"
    yield Transfer(over, "reduce-scatter", stream, calls, what, "forward outputs")
    yield Transfer(over, "all-gather", stream, calls, what, "backward outputs")


def _expert_biases(step: StepSizes, calls: Number) -> Iterator[Transfer]:
    """Gradients of the biases of experts, which the devices along `expert` deal out."""
    config, own = step.config, step.experts.n_experts / step.shape.expert
    axes = "data", "fsdp", "context"
    units = expert_width(config) * (1 + config.is_gated) / step.shape.tensor
    for over, elements in ((axes, units), ((*axes, "tensor"), config.d_model)):
        what, size = "biases of experts", own * elements * FLOAT32
        where = "backward vectors"
        yield Transfer(step.axis_names(*over), "all-reduce", size, calls, what, where, True)


def loss_statistics(step: StepSizes) -> Iterator[Transfer]:
    """Statistics of the loss, each one float32 per token: maximum, normaliser, target."""
    calls = 3 * step.microbatches * step.loss_chunks if step.vocab_is_sharded else 0
    size = step.head_tokens / step.loss_chunks * FLOAT32
    what = "statistics of the loss"
    yield Transfer(step.axis_names("tensor"), "all-reduce", size, calls, what, "forward loss")


def vector_gradients(step: StepSizes) -> Iterator[Transfer]:
    """Gradients of norms and biases, float32, in each microbatch; those of a layer together.

    Other software sums them with those of matrices (`scaling.analytic.weights`).
    """
    if not step.is_own_trainer:
        return
    config, mla = step.config, step.config.mla
    norm = config.d_model * (2 if config.norm == "layernorm" and config.bias else 1)
    heads = 2 * config.head_dim if config.qk_norm else 0
    norms = 4 if config.norms == "both" else 2
    latents = (mla.q_lora_rank or 0) + mla.kv_lora_rank if mla else 0
    batch_axes = "data", "fsdp", "expert", "context"
    tokens, everywhere = step.axis_names(*batch_axes), step.axis_names(*batch_axes, "tensor")
    whole = as_int(np.equal(step.shape.tensor, 1))  # where all of them are summed in one call
    around = everywhere if step.sequence_parallel else tokens
    by_heads = config.n_heads * config.sinks
    if config.qk_norm and config.qk_norm_over == "projection":  # cut by heads, as biases are
        by_heads += heads // 2 * (config.n_heads + config.n_kv_heads)
        heads = 0
    for moe, layers in step.layer_kinds:
        biases = [s for s in block_stacks(config, moe) if config.bias and not s.experts]
        biases += [s for s in block_stacks(config, moe) if config.qkv_bias and s.name in QKV]
        # Tensor cuts those of matrices that do not write into the residual stream.
        written = sum(s.outputs for s in biases if s.is_last or not s.over_tensor)
        cut = sum(s.outputs for s in biases if not s.is_last and s.over_tensor)
        sharded = (cut + by_heads) / step.shape.tensor
        layer: dict[str, Number] = {}
        for axes, elements in (
            (around, norms * norm + written + latents + (heads + sharded) * whole),
            (everywhere, heads * (1 - whole)),
            (tokens, sharded * (1 - whole)),
        ):
            layer[axes] = layer.get(axes, 0) + elements * FLOAT32
        calls, what = step.passes(layers), "vectors of a layer"
        for axes, size in layer.items():
            yield Transfer(axes, "all-reduce", size, calls, what, "backward vectors", moe)
        if moe and config.bias:
            yield from _expert_biases(step, calls)
    tensor = ("tensor",) if step.sequence_parallel else ()
    axes, size = step.axis_names(*batch_axes, "stage", *tensor), norm * FLOAT32
    calls, what = step.microbatches, "final norm"
    yield Transfer(axes, "all-reduce", size, calls, what, "backward head vectors")
