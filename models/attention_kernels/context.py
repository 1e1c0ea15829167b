"""Causal attention of a sequence that is cut over the mesh axis `context`, in zigzag order.

Each device attends with its own queries to its own keys, then to those of every other device, and
merges the parts of the softmax as they come:

    scaling.models.attention_kernels.zigzag_attention    which chunks of queries and keys meet
    scaling.models.attention_kernels.kv_exchange   how keys and values arrive from the others:
    all-gather or ring scaling.models.attention_kernels.kernel    one block, and how parts are
    merged

The backward pass keeps q, k, v, the output and its log-sum-exp, and fetches the others' keys and
values again. Only a layer that is recomputed as a whole keeps those that it has gathered (of a ring
those that arrived first), because its backward pass follows at once.
"""

# Dims: B batch, S sequence (on one device inside `shard_map`), N query heads, M key/value heads,
#       K head dim, R rows of keys that others see

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec as P

from scaling.models.attention_kernels.kernel import Kernel
from scaling.models.attention_kernels.kv_exchange import Passing
from scaling.models.attention_kernels.zigzag import walks, window_reach
from scaling.models.attention_kernels.zigzag_attention import Chunks, Halves, Ours
from scaling.models.execution import Execution
from scaling.models.pipeline.shard_map import stage_map


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def attend_across(
    execution: Execution,
    window: int | None,
    q_BSNK: jax.Array,
    k_BSMK: jax.Array,
    v_BSMK: jax.Array,
) -> jax.Array:
    """softmax(q k^T / sqrt(K), causal) v -> [B, S, N, K], sequences cut over `context`.

    Args:
        execution: says the method and the kernel.
        window: tokens that each position sees, itself included; None: all before it.
        q_BSNK: queries; `k_BSMK`, `v_BSMK`: keys and values, M a divisor of N.
    """
    return _forward(execution, window, q_BSNK, k_BSMK, v_BSMK)[0]


def _forward(execution: Execution, window: int | None, q: Any, k: Any, v: Any) -> tuple:
    query, keys, kept = _specs(execution)
    mapped = stage_map(
        execution.rules,
        functools.partial(_device_forward, execution, window),
        in_specs=(query, keys, keys),
        out_specs=(query, P(*query[:3]), kept),
        check_vma=False,
    )
    out, lse, fetched = mapped(q, k, v)
    out = checkpoint_name(out, "attention")
    lse = checkpoint_name(lse, "attention_statistics")
    return out, (q, k, v, out, lse, fetched)


def _backward(execution: Execution, window: int | None, residuals: tuple, dout: jax.Array) -> tuple:
    query, keys, kept = _specs(execution)
    mapped = stage_map(
        execution.rules,
        functools.partial(_device_backward, execution, window),
        in_specs=(query, keys, keys, query, P(*query[:3]), kept, query),
        out_specs=(query, keys, keys),
        check_vma=False,
    )
    arguments: Any = (*residuals, dout)
    return mapped(*arguments)


attend_across.defvjp(_forward, _backward)


def _specs(execution: Execution) -> tuple[P, P, P | None]:
    """Of queries; of keys and values; of what is kept of the others' (None: nothing is)."""
    query = execution.spec("batch", "sequence", "heads", None)
    keys = execution.spec("batch", "sequence", "kv_heads", None)
    if execution.remat != "full":
        return query, keys, None
    whole = None if execution.context_method == "all-gather" else "sequence"
    return query, keys, P(None, None, *execution.spec("batch", whole, "kv_heads", None))


def _of_device(execution: Execution, window: int | None, tokens: int) -> tuple[Chunks, Passing]:
    """The chunks of `tokens` tokens of a sequence on one device, and how they come by others."""
    devices, chunk = execution.rules.mesh.context, tokens // 2
    kernel = Kernel(execution.attention_kernel, execution.precision)
    ways = walks(devices, window_reach(window, chunk))
    return Chunks(kernel, window, chunk, devices), Passing(execution.context_method, ways, devices)


def _device_forward(
    execution: Execution, window: int | None, q: jax.Array, k: jax.Array, v: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Attention of one device's queries in compute format, its log-sum-exp, what is kept."""
    chunks, passing = _of_device(execution, window, q.shape[1])
    kv = chunks.seen_by_others(jnp.stack([k, v]))

    def meet(total: Halves, shift: int, kv: jax.Array) -> tuple[Halves, None]:
        return chunks.attend_to_others(total, q, kv, shift), None

    total, _, fetched = passing.round(kv, chunks.attend_to_own(q, k, v, kv), meet)
    out, lse = (jnp.concatenate(halves, axis=1) for halves in zip(*total, strict=True))
    return out.astype(q.dtype), lse, None if _specs(execution)[2] is None else fetched


def _device_backward(
    execution: Execution,
    window: int | None,
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    out: jax.Array,
    lse: jax.Array,
    fetched: jax.Array | None,
    dout: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of one device's queries, keys and values."""
    chunks, passing = _of_device(execution, window, q.shape[1])
    kv, ours = chunks.seen_by_others(jnp.stack([k, v])), Ours(q, out, lse, dout)

    def meet(dq: Halves, shift: int, kv: jax.Array) -> tuple[Halves, jax.Array]:
        return chunks.gradients_of_others(dq, ours, kv, shift)

    dq, dkv = chunks.gradients_of_own(ours, k, v, kv)
    dq, returned, _ = passing.round(kv, dq, meet, fetched)
    dkv = dkv + chunks.unseen_too(passing.home(returned, kv))
    return jnp.concatenate(dq, axis=1).astype(q.dtype), *dkv.astype(k.dtype)
