"""Causal attention of a sequence that is sharded over the mesh axis `context`, in zigzag order.

Each device attends with its own queries to its own keys, then to those of every other device, and
merges the partial softmaxes as they come (in `scaling.models.attention_kernels`):

    zigzag_attention   which chunks of queries and keys form a block
    kv_exchange        communication of keys and values: all-gather or ring
    kernel             one block, and the merge of blocks

Saved for the backward pass: q, k, v, the output and its log-sum-exp; the others' keys and values
are communicated again. Attention that remat computes again also saves those that it has received
(of a ring the first to arrive), because its backward pass follows at once.
"""

# Dims: B batch, S sequence (on one device inside `shard_map`), N query heads, M key/value heads,
#       K head dim, V of values

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from scaling.models.accounting.remat import keeps
from scaling.models.attention_kernels.flash import sink_gradients
from scaling.models.attention_kernels.kernel import AttentionKernel, PartialAttention
from scaling.models.attention_kernels.kv_exchange import CONTEXT, KeysValues, KvExchange
from scaling.models.attention_kernels.zigzag import ring_hops, window_reach
from scaling.models.attention_kernels.zigzag_attention import Halves, QueryState, ZigzagAttention
from scaling.models.execution import Execution
from scaling.models.pipeline.shard_map import shard_map_per_stage


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1, 2))
def context_attention(
    execution: Execution,
    window: int | None,
    softcap: float,
    q_BSNK: jax.Array,
    k_BSMK: jax.Array,
    v_BSMV: jax.Array,
    sinks_N: jax.Array | None = None,
    segments_BS: jax.Array | None = None,
) -> jax.Array:
    """softmax(q k^T / sqrt(K), causal) v -> [B, S, N, V], sequences sharded over `context`.

    Each position sees `window` tokens, itself included (None: all before it), of its segment.
    `softcap` and `sinks_N` as those of `reference_attention`.
    """
    given = q_BSNK, k_BSMK, v_BSMV, sinks_N, segments_BS
    return _forward(execution, window, softcap, *given)[0]


def _forward(execution: Execution, window: int | None, softcap: float, *given: Any) -> tuple:
    specs, results = _specs(execution, *given[3:])
    body = functools.partial(_device_forward, execution, window, softcap)
    mapped = shard_map_per_stage(execution.rules, body, specs, results, check_vma=False)
    out, lse, received = mapped(*given)
    out = checkpoint_name(out, "attention")
    lse = checkpoint_name(lse, "attention_statistics")
    return out, (*given, out, lse, received)


def _backward(
    execution: Execution, window: int | None, softcap: float, residuals: tuple, dout: jax.Array
) -> tuple:
    given, results = _specs(execution, *residuals[3:5])
    body = functools.partial(_device_backward, execution, window, softcap)
    specs = (*given, *results), given[0]
    mapped = shard_map_per_stage(execution.rules, body, specs, given[:4], check_vma=False)
    return *mapped(residuals, dout), None


context_attention.defvjp(_forward, _backward)


def _specs(execution: Execution, sinks: Any, segments: Any) -> tuple[tuple, tuple]:
    """The specs of queries, keys, values, sinks and segments; and of the output, its log-sum-exp
    and others' keys and values that are saved. None for what there is not."""
    query = execution.spec("batch", "sequence", "heads", None)
    keys = execution.spec("batch", "sequence", "kv_heads", None)
    heads = None if sinks is None else execution.spec("heads")
    given = query, keys, keys, heads, None if segments is None else P(*query[:2])
    saved = None
    if not keeps(execution.remat, "attention"):
        sequence = None if execution.context_method == "all-gather" else "sequence"
        cut = [execution.rules.axes(dim) for dim in ("batch", sequence, "kv_heads")]
        saved = P(None, sum(cut, ()))  # of messages: they are lists of elements
    return given, (query, P(*query[:3]), saved)


def _zigzag(
    execution: Execution, window: int | None, softcap: float, tokens: int, segments_BS: Any
) -> tuple[ZigzagAttention, KvExchange]:
    """The blocks of one device with `tokens` tokens of a sequence, and the exchange of keys.

    Everybody's segments are gathered at once: 4 bytes a token, where keys and values are thousands.
    """
    devices, chunk = execution.rules.mesh.context, tokens // 2
    kernel = AttentionKernel(execution.attention_kernel, execution.precision, softcap)
    hops = ring_hops(devices, window_reach(window, chunk))
    exchange = KvExchange(execution.context_method, hops, devices)
    segments = None if segments_BS is None else jax.lax.all_gather(segments_BS, CONTEXT)
    return ZigzagAttention(kernel, window, chunk, devices, segments), exchange


def _device_forward(
    execution: Execution, window: int | None, softcap: float, *given: Any
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Attention of one device's queries in compute format, its log-sum-exp, others' keys saved."""
    q, k, v, sinks, segments = given
    zigzag, exchange = _zigzag(execution, window, softcap, q.shape[1], segments)
    kv = zigzag.visible(k), zigzag.visible(v)

    def visit(total: Halves, shift: int, kv: KeysValues) -> tuple[Halves, None]:
        return zigzag.attend_other(total, q, kv, shift), None

    total, _, received = exchange.run(kv, zigzag.attend_own(q, k, v, kv), visit)
    out, lse = (jnp.concatenate(pair, axis=1) for pair in zip(*total, strict=True))
    if sinks is not None:
        total = jnp.logaddexp(lse, sinks)
        out, lse = out * jnp.exp(lse - total)[..., None], total
    return out.astype(q.dtype), lse, None if keeps(execution.remat, "attention") else received


def _device_backward(
    execution: Execution, window: int | None, softcap: float, residuals: tuple, dout: jax.Array
) -> tuple[jax.Array | None, ...]:
    """Gradients of one device's queries, keys and values, and of the sinks."""
    q, k, v, sinks, segments, out, lse, received = residuals
    zigzag, exchange = _zigzag(execution, window, softcap, q.shape[1], segments)
    kv = zigzag.visible(k), zigzag.visible(v)
    queries = QueryState(q, PartialAttention(out, lse), dout)

    def visit(dq: Halves, shift: int, kv: KeysValues) -> tuple[Halves, KeysValues]:
        return zigzag.other_gradients(dq, queries, kv, shift)

    dq, own = zigzag.own_gradients(queries, k, v, kv)
    dq, gradients, _ = exchange.run(kv, dq, visit, received)
    others = exchange.return_gradients(gradients, kv)
    dk, dv = (x + zigzag.all_rows(dx) for x, dx in zip(own, others, strict=True))
    dsinks = None
    if sinks is not None:
        tokens = (*execution.rules.axes("batch"), *execution.rules.axes("sequence"))
        dsinks = jax.lax.psum(sink_gradients(sinks, out, lse, dout), tokens)
    dq_BSNK = jnp.concatenate(dq, axis=1).astype(q.dtype)
    return dq_BSNK, dk.astype(k.dtype), dv.astype(v.dtype), dsinks
