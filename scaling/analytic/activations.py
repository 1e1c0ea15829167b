"""Communication of activations: the residual stream, also between stages, keys and values,
statistics of the loss, and gradients of vectors. Transfers of `scaling.analytic.table`.
"""

from collections.abc import Iterator

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.models.accounting.context import exchanged_width
from scaling.models.accounting.matrices import attention_matrices, gathered_width, mlp_matrices
from scaling.models.attention_kernels.zigzag import ring_hops, visible_rows, window_reach
from scaling.models.config import ModelConfig
from scaling.program.ir import CollectiveKind

KEYS = "keys and values"  # `what` of their lines


def residual_stream(step: StepSizes) -> Iterator[Transfer]:
    """The residual stream, gathered and summed over tensor; what the attention takes by itself."""
    passes, M = step.passes(step.config.n_layers), step.microbatches
    again = 1 if step.run.remat != "none" else 0
    ends = M if step.vocab_is_sharded else 0  # embedding and head
    size = step.tokens * step.config.d_model * step.itemsize
    taken = gathered_width(step.config)
    own = 1 if taken == step.config.d_model else 0  # the attention takes the stream itself
    # Sums in a layer: of a tick that is computed again those of attention and MLP.
    summed = 3 + own + again + step.recompute * (2 - step.one_layer)
    gathered = 3 + own + (1 + own) * (again + step.recompute)
    latents = (1 - own) * step.tokens * taken * step.itemsize
    lines: tuple[tuple[str, float, float, float], ...] = (
        ("residual stream", size, passes * summed, passes * gathered),
        ("latents", latents, passes, passes * (1 + step.recompute)),
        ("latents again", latents * (1 - _kept(step) / taken), 0, passes * again),
        ("stream of the embedding", size, ends, ends),
        ("stream of the head", size / step.shape.stage, ends, ends),
    )
    for what, bytes_, sums, gathers in lines:
        kinds: dict[CollectiveKind, float] = {"all-reduce": sums}
        if step.sequence_parallel:
            kinds = {"reduce-scatter": sums, "all-gather": gathers}
        for kind, calls in kinds.items() if bytes_ else ():
            yield Transfer(step.over("tensor"), kind, bytes_, calls, what)


def _kept(step: StepSizes) -> int:
    """Latents of a token that are not gathered to recompute a layer: the saved, rotated part of its
    keys."""
    mla = step.config.mla
    return mla.qk_rope_head_dim if mla and step.run.remat == "selective" else 0


def keys_and_values(step: StepSizes) -> Iterator[Transfer]:
    """Keys and values and their gradients, around `context`."""
    run, config, C = step.run, step.config, step.shape.context
    if C == 1:
        return
    chunk = run.batch.seq_len // (2 * C)
    paths = ring_hops(C, window_reach(config.sliding_window, chunk))
    hops = sum(map(len, paths))
    rows = step.tokens * visible_rows(config.sliding_window, chunk) / chunk
    kv = rows * exchanged_width(config) / step.shape.tensor * step.itemsize
    calls, axes = step.passes(config.n_layers), step.over("context")
    if run.context.method == "ring":
        again = hops - sum(map(bool, paths)) if run.remat == "full" else 0
        yield Transfer(axes, "permute", kv, calls * ((3 + step.recompute) * hops + again), KEYS)
    elif hops:
        yield Transfer(axes, "all-gather", C * kv, calls * (2 + step.recompute), KEYS)
        yield Transfer(axes, "reduce-scatter", C * kv, calls, KEYS)


def pipeline_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Transfers of the pipeline; without stages they move nothing."""
    over = step.over("stage")
    stream = step.tokens * step.config.d_model * step.itemsize
    stream /= step.shape.tensor if step.sequence_parallel else 1
    yield Transfer(over, "permute", stream, 2 * step.pipeline.iterations, "stream between stages")
    all_ = step.microbatches * stream
    yield Transfer(over, "reduce-scatter", all_, 1, "stream of the last stage")
    yield Transfer(over, "all-gather", all_, 1, "stream of the last stage")


def loss_statistics(step: StepSizes) -> Iterator[Transfer]:
    """Statistics of the loss, each one float32 per token: maximum, normaliser, target."""
    calls = 3 * step.microbatches if step.vocab_is_sharded else 0
    size = step.tokens / step.shape.stage * FLOAT32
    yield Transfer(step.over("tensor"), "all-reduce", size, calls, "statistics of the loss")


def vector_gradients(step: StepSizes) -> Iterator[Transfer]:
    """Gradients of norms and biases, float32, in each microbatch; those of a layer together."""
    config, M = step.config, step.microbatches
    norm = config.d_model * (2 if config.norm == "layernorm" and config.bias else 1)
    written = 2 * config.d_model if config.bias else 0  # biases of o and down
    heads = 2 * config.head_dim if config.qk_norm else 0
    sharded = _inner_outputs(config) / step.shape.tensor if config.bias else 0
    batch_axes = "data", "fsdp", "expert", "context"
    tokens, everywhere = step.over(*batch_axes), step.over(*batch_axes, "tensor")
    norms = everywhere if step.sequence_parallel else tokens
    latents = (config.mla.q_lora_rank or 0) + config.mla.kv_lora_rank if config.mla else 0
    layer: dict[str, float] = {}
    sizes = ((norms, 2 * norm + written + latents), (everywhere, heads), (tokens, sharded))
    for axes, elements in sizes:
        layer[axes] = layer.get(axes, 0) + elements * FLOAT32
    for axes, size in layer.items():
        passes = step.passes(config.n_layers)
        yield Transfer(axes, "all-reduce", size, passes, "vectors of a layer")
    tensor = ("tensor",) if step.sequence_parallel else ()
    axes = step.over(*batch_axes, "stage", *tensor)
    yield Transfer(axes, "all-reduce", norm * FLOAT32, M, "final norm")


def _inner_outputs(config: ModelConfig) -> int:
    """Outputs of the matrices that do not write into the residual stream: tensor cuts them."""
    matrices = attention_matrices(config) | mlp_matrices(config, config.d_ff)
    return sum(outputs for name, (_, outputs) in matrices.items() if name not in ("o", "down"))
