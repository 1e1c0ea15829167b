"""Causal self-attention with grouped queries (arXiv 2305.13245), optional QK-norm, window and cap.

The attention core runs inside a `shard_map`, on whole sequences and the device's own heads: cuDNN's
flash kernel has no rule of its own for explicit shardings, and needs none there. Sequences that are
sharded over `context`: see `scaling.models.attention_kernels.context`. Decoding: see
`scaling.models.decode`.
"""

# Dims: B batch, S sequence, D model, N query heads, M key/value heads, K head dim, V of values

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from scaling.meshes.rules import Rules
from scaling.models.adapters import adapted, adapted_product, adapters_of
from scaling.models.attention_kernels.context import context_attention
from scaling.models.attention_kernels.flash import flash_attention
from scaling.models.attention_kernels.reference import causal_mask, reference_attention
from scaling.models.attention_kernels.zigzag import zigzag_order
from scaling.models.config import ModelConfig
from scaling.models.documents import Documents, chunk_segments, same_document
from scaling.models.execution import Execution
from scaling.models.initializers import add_bias, bias, matrix, residual_std
from scaling.models.norm import Norm
from scaling.models.pipeline.shard_map import shard_map_per_stage
from scaling.models.positions import Rotation, rotation, rotation_at
from scaling.models.sharding import project

HEADS = ("batch", "sequence", "heads", None)  # of queries and of what they attend to
KV_HEADS = ("batch", "sequence", "kv_heads", None)
STREAM = ("stream", "residual", None)


class Attention(nnx.Module):
    """x_BSD -> [B, S, D], both sharded along the sequence if sequence-parallel.

    Communication: all-gather of x over `tensor` (if sequence-parallel), then reduce-scatter (else
    all-reduce) of the result; keys and values over `context`. The backward pass does the reverse.
    """

    def __init__(self, config: ModelConfig, execution: Execution, key: jax.Array):
        D, N, M, K = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim
        self.config, self.execution, rules = config, execution, execution.rules
        keys = jax.random.split(key, 4)
        std = residual_std(config.n_layers)
        self.query_DNK = matrix(rules, keys[0], (D, N, K), ("embed", "heads", None))
        self.key_DMK = matrix(rules, keys[1], (D, M, K), ("embed", "kv_heads", None))
        self.value_DMK = matrix(rules, keys[2], (D, M, K), ("embed", "kv_heads", None))
        self.out_NKD = matrix(rules, keys[3], (N, K, D), ("heads", None, "embed"), std)
        qkv_bias = config.bias or config.qkv_bias
        self.query_bias_NK = bias(qkv_bias, rules, (N, K), ("heads", None))
        self.key_bias_MK = bias(qkv_bias, rules, (M, K), ("kv_heads", None))
        self.value_bias_MK = bias(qkv_bias, rules, (M, K), ("kv_heads", None))
        self.out_bias_D = bias(config.bias, rules, (D,), (None,))
        self.query_norm = _head_norm(config, rules, N, "heads") if config.qk_norm else None
        self.key_norm = _head_norm(config, rules, M, "kv_heads") if config.qk_norm else None
        self.sinks_N = bias(config.sinks, rules, (N,), ("heads",))
        self.adapters = adapters_of(execution, key, self)

    def __call__(
        self,
        x_BSD: jax.Array,
        documents: Documents | None = None,
        config: ModelConfig | None = None,
    ) -> jax.Array:
        """`config` is the model as this layer sees it; None: all layers are alike."""
        config = config or self.config
        rotate = sequence_rotation(config, self.execution, x_BSD.shape[1], documents)
        heads = self.heads(x_BSD, rotate)
        sinks_N = None if self.sinks_N is None else self.sinks_N[...]
        rules = score_rules(config)
        return self.output(attend(*heads, self.execution, rules, documents, sinks_N))

    def heads(self, x_BSD: jax.Array, rotate: Rotation) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries [B, S, N, K], keys and values [B, S, M, K] as they enter the attention."""
        x_BSD = self.execution.place(x_BSD, "batch", "sequence", None)
        M, K = self.config.n_kv_heads, self.config.head_dim
        G = self.config.n_heads // M
        weights = tuple(w[...] for w in (self.query_DNK, self.key_DMK, self.value_DMK))

        def by_group(weights: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            q_DNK, k_DMK, v_DMK = weights
            # Not reshaped for groups of one: jax fails at that with `reduced` weights (0.10.2 and
            # 0.11.2, tried 2026-11-28; no issue known).
            q_DMGK = q_DNK.reshape(q_DNK.shape[0], M, G, K) if G > 1 else q_DNK[:, :, None]
            return q_DMGK, k_DMK[:, :, None], v_DMK[:, :, None]

        dims, out = ("embed", "kv_heads", None, None), ("batch", "sequence", "kv_heads", None, None)
        heads = project(
            self.execution, "bsd,dmgk->bsmgk", x_BSD, weights, dims, out, shape=by_group
        )
        q, k, v = jnp.split(heads, [G, G + 1], axis=3)
        q = q.reshape(*q.shape[:2], -1, K)
        named = {"query_DNK": q, "key_DMK": k[:, :, :, 0], "value_DMK": v[:, :, :, 0]}
        q, k, v = adapted(self.adapters, self.execution, x_BSD, named, KV_HEADS)
        q_BSNK = add_bias(q, self.query_bias_NK)
        k_BSMK, v_BSMK = add_bias(k, self.key_bias_MK), add_bias(v, self.value_bias_MK)
        if self.query_norm is not None and self.key_norm is not None:
            q_BSNK, k_BSMK = self.query_norm(q_BSNK), self.key_norm(k_BSMK)
        if (dim := self.config.score_dim) not in (0, K):  # the kernels divide by sqrt(K)
            q_BSNK = (q_BSNK * jnp.float32((K / dim) ** 0.5)).astype(q_BSNK.dtype)
        return rotate(q_BSNK, is_query=True), rotate(k_BSMK), v_BSMK

    def output(self, a_BSNK: jax.Array) -> jax.Array:
        """The output projection of the heads' results: [B, S, D]."""
        y_BSD = adapted_product(self, "bsnk,nkd->bsd", a_BSNK, "out_NKD", STREAM, partial=True)
        return add_bias(y_BSD, self.out_bias_D)


def _head_norm(config: ModelConfig, rules: Rules, heads: int, dim: str) -> Norm:
    """RMSNorm of each head of q or k, or of all of them together (OLMo 2)."""
    K = config.head_dim
    if config.qk_norm_over == "head":
        return Norm(config, rules, K, "rmsnorm")
    return Norm(config, rules, (heads, K), "rmsnorm", dims=(dim, None))


class ScoreRules(NamedTuple):
    """The mask and the cap of a layer's scores, as `ModelConfig` has them."""

    window: int | None = None  # tokens, itself included
    softcap: float = 0.0  # no flash kernel has one
    chunk: int | None = None  # tokens


def score_rules(config: ModelConfig) -> ScoreRules:
    """The rules of a layer's scores."""
    return ScoreRules(config.sliding_window, config.score_softcap, config.attention_chunk)


def sequence_rotation(
    config: ModelConfig, execution: Execution, length: int, documents: Documents | None
) -> Rotation:
    """The rotation of whole sequences in zigzag order, or of packed documents."""
    if documents is not None:
        return rotation_at(config, documents.positions_BS, length)
    return rotation(config, zigzag_order(length, execution.rules.mesh.context))


def attend(
    q_BSNK: jax.Array,
    k_BSMK: jax.Array,
    v_BSMV: jax.Array,
    execution: Execution,
    rules: ScoreRules,
    documents: Documents | None = None,
    sinks_N: jax.Array | None = None,
) -> jax.Array:
    """softmax(q k^T / sqrt(K), causal) v -> [B, S, N, V], each device on its own rows and heads.

    Each position sees those of its document, chunk and window before it, and itself; `sinks_N` are
    one more score of each head, of no value. Chunks are sequences of their own to the kernel, of
    which a device of `context` has whole ones; in packed documents they are documents. Saved for
    the backward pass: q, k, v, the result and, by flash kernels, its log-sum-exp.
    """
    q_BSNK, k_BSMK = checkpoint_name(q_BSNK, "query"), checkpoint_name(k_BSMK, "key")
    v_BSMV = checkpoint_name(v_BSMV, "value")
    B, S, _, K = q_BSNK.shape
    chex.assert_shape([k_BSMK, v_BSMV], [(B, S, None, K), (*k_BSMK.shape[:3], None)])
    window, softcap, chunk = rules
    chunk = chunk if chunk and chunk < S else None
    segments = None if documents is None else documents.segments_BS
    if chunk and documents is not None:  # a chunk of a document reaches no further than a window
        segments, window = chunk_segments(documents, chunk), min(window or chunk, chunk)
        chunk = None
    if execution.rules.axes("sequence") and chunk is None:
        given = q_BSNK, k_BSMK, v_BSMV, sinks_N, segments
        return context_attention(execution, window, softcap, *given)
    is_flash = execution.attention_kernel == "cudnn" and not softcap
    core: Callable = functools.partial(_stored_scores, execution, window, softcap)
    if is_flash:
        core = functools.partial(_flash_in_documents if documents else flash_attention, window)
    query, keys = execution.spec(*HEADS), execution.spec(*KV_HEADS)
    if chunk:
        core = functools.partial(_by_chunk, core, chunk)
    specs = (
        *(query, keys, keys),
        None if segments is None else execution.spec("batch", "sequence"),
        None if sinks_N is None else execution.spec("heads"),
    )
    mapped = shard_map_per_stage(execution.rules, core, specs, query, check_vma=False)
    a_BSNV = mapped(q_BSNK, k_BSMK, v_BSMV, segments, sinks_N)
    return a_BSNV if is_flash else checkpoint_name(a_BSNV, "attention")


def _by_chunk(
    core: Callable, chunk: int, q: Any, k: Any, v: Any, segments: None, sinks_N: Any
) -> jax.Array:
    """Attention within each chunk of the sequences; the last one may be shorter."""
    B, S = q.shape[:2]
    whole = S - S % chunk

    def part(at: slice, *shape: int) -> jax.Array:
        parts = (x[:, at].reshape(*shape, *x.shape[2:]) for x in (q, k, v))
        return core(*parts, None, sinks_N).reshape(B, -1, q.shape[2], v.shape[3])

    parts = [part(slice(whole), B * (whole // chunk), chunk)]
    parts += [part(slice(whole, S), B, S - whole)] if whole < S else []
    return jnp.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]


def _stored_scores(
    execution: Execution,
    window: int | None,
    softcap: float,
    q: Any,
    k: Any,
    v: Any,
    segments_BS: Any = None,
    sinks_N: Any = None,
) -> jax.Array:
    """Attention by XLA, also within packed documents."""
    seen = None if segments_BS is None else same_document(segments_BS, segments_BS)[:, None]
    if q.shape[-1] != v.shape[-1] or softcap or sinks_N is not None:
        mask = causal_mask(q.shape[1], q.shape[1], window)
        mask = mask if seen is None else mask & seen[:, None]
        given = {"softcap": softcap, "sinks_N": sinks_N}
        return reference_attention(q, k, v, mask, execution.precision, **given)
    with jax.default_matmul_precision(execution.precision.name.lower()):
        return jax.nn.dot_product_attention(
            *(q, k, v),
            mask=seen,
            is_causal=True,
            local_window_size=None if window is None else (window - 1, 0),
            implementation="xla",
        )


def _flash_in_documents(
    window: int | None, q: Any, k: Any, v: Any, segments_BS: Any, sinks_N: Any
) -> jax.Array:
    """cuDNN's attention of q, k, v within the segments [B, S], a call for each sequence.

    cuDNN takes a mask as scores to add, in compute format. jax's own tests run gradients only with
    those that all sequences share (tests/nn_test.py).
    """

    def one(row: tuple[jax.Array, ...]) -> jax.Array:
        q, k, v, segments_BS = (x[None] for x in row)
        seen = same_document(segments_BS, segments_BS)[:, None]
        return flash_attention(window, q, k, v, seen, sinks_N)[0]

    return jax.lax.map(one, (q, k, v, segments_BS))
