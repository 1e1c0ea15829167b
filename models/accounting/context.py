"""Attention FLOPs and exchanged bytes of one device under context parallelism (no jax).

With C devices each has two chunks of c = seq / (2 C) tokens, in zigzag order
(`models.attention_kernels.zigzag`), and computes 1 / C of every product but attention. Its
attention scores are those of

    each of the two chunks with itself       2 c c
    its late with its early chunk            c c
    two pairs with each other device         2 (C - 1) c c

so (2 C + 1) / (4 C) of the seq x seq scores, which is half of them for many devices.
"""

from scaling.models.accounting.matrices import (
    BYTES,
    Reach,
    layer_reaches,
    mean_context,
    query_key_dim,
    value_dim,
)
from scaling.models.attention_kernels.zigzag import ring_hops, visible_rows, window_reach
from scaling.models.config import ModelConfig


def scores_share(config: ModelConfig, seq: int, context: int) -> float:
    """Share of the scores of whole sequences, or of whole chunks of the attention, that all devices
    of `context` compute, over all layers.

    1 on one device, where the attention takes the sequence as it is; else `seq` is a multiple of
    2 x context.
    """
    if context == 1:
        return 1.0
    reaches = layer_reaches(config)
    scores = sum(n * computed_scores(reach, seq, context) for reach, n in reaches.items())
    return scores / (config.n_layers * seq * mean_context(config, seq, windows=False))


def computed_scores(reach: Reach, seq: int, context: int) -> int:
    """Scores of a sequence and head that all devices compute. With a window only the visible rows
    of chunks are computed; chunks of the attention lie within those of the devices."""
    if context == 1 or reach.is_cut(seq):
        return seq * Reach(chunk=reach.chunk).context(seq)
    chunk, rows, others = exchange_shape(reach, seq, context)
    return context * (2 * chunk**2 + (1 + 2 * others) * rows**2)


def exchanged_bytes(
    config: ModelConfig, batch: int, seq: int, context: int, tensor: int = 1, dtype: str = "bf16"
) -> float:
    """Bytes of one device's keys and values that are sent to others, of one layer, in the mean.

    `batch` counts the sequences on a device, `seq` a sequence's tokens on all devices.
    """
    reaches = layer_reaches(config)
    rows = sum(exchange_shape(reach, seq, context)[1] * n for reach, n in reaches.items())
    return batch * 2 * rows * exchanged_width(config) / config.n_layers / tensor * BYTES[dtype]


def exchanged_width(config: ModelConfig) -> int:
    """Elements of a token's keys and values of all heads, as they are exchanged."""
    heads = config.n_heads if config.mla else config.n_kv_heads
    return heads * (query_key_dim(config) + value_dim(config))


def exchange_shape(reach: Reach, seq: int, context: int) -> tuple[int, int, int]:
    """Tokens of a device's chunk, its rows visible to others, and devices that one exchanges
    with."""
    chunk = seq // (2 * context)
    if reach.is_cut(seq):
        return chunk, 0, 0
    others = sum(map(len, ring_hops(context, window_reach(reach.window, chunk))))
    return chunk, visible_rows(reach.window, chunk), others
