"""Constructors of kernels: FLOPs and bytes of device memory from sizes.

    matmul       batch x [m, k] x [k, n]      2 batch m n k FLOPs; each operand and the result once
    attention    N heads, T queries and S keys of each of B sequences, B N T S scores in all:
                 forward    2 scores (q + v)         q, v: head dimensions of keys and of values
                 backward   2 scores (3 q + 2 v)     a fused kernel makes the scores again

All scores are counted, whatever the mask; `visible` says which part of them it leaves. Sizes are
numbers, or arrays over configurations; `times` is 0 in those where a kernel does not run.

The compiled front end counts products from the shapes in HLO (`scaling.hlo.custom_calls`), so that
the two counts check each other; `models.accounting.flops` counts a whole model in exact integers.
"""

from collections.abc import Sequence

from scaling.program.ir import CAUSAL, Kernel, Number, Origin

# Products of a fused attention (arXiv 2205.14135, algorithm 4) along keys and along values:
FORWARD_PRODUCTS = (1, 1)  # scores; their average of values
BACKWARD_PRODUCTS = (3, 2)  # the scores again, dQ, dK; dP = dO V^T, dV
NOT_KNOWN = Origin()


def visible_share(keys: int, window: int | None = None) -> float:
    """Share of the scores of `keys` queries and keys that a causal mask leaves.

    With a sliding window of w keys each row has w of them, the first w rows half: (w - w^2/2T) / T.
    """
    seen = min(1.0, (window or keys) / keys)
    return seen * (1 - CAUSAL * seen)


def matmul(
    name: str,
    dims: Sequence[Number],
    dtype: str,
    itemsizes: tuple[float, float, float] = (0, 0, 0),
    *,
    grouped: bool = False,
    times: Number = 1,
    origin: Origin = NOT_KNOWN,
    issue: float = 0.0,
    share: float = 1.0,
) -> Kernel:
    """Return a matrix product, or `batch` equal ones.

    Args:
        dims: (batch, m, n, k), of [m, k] x [k, n]; m is rows of activations, [k, n] the weights.
        dtype: format of the operands, whose peak rate counts.
        itemsizes: bytes of an element of the left and right operand and of the result; 0: it is
            not moved.
        grouped: of groups of rows, each with its own [k, n]; m is their mean.
        times: 0 where it does not run, else 1.
        origin, issue, share: as of `Kernel`.
    """
    batch, m, n, k = dims
    left, right, result = itemsizes
    return Kernel(
        name,
        origin,
        kind="grouped" if grouped else "matmul",
        flops=2 * batch * m * n * k * times,
        bytes=batch * (left * (m * k) + right * (k * n) + result * m * n) * times,
        dtype=dtype,
        dims=tuple(dims),
        issue=issue,
        share=share,
    )


def attention_flops(
    scores: Number, query_key_dim: Number, value_dim: Number, backward: bool = False
) -> Number:
    """Return the FLOPs of the products of a fused attention with so many scores."""
    along_keys, along_values = BACKWARD_PRODUCTS if backward else FORWARD_PRODUCTS
    return 2 * scores * (along_keys * query_key_dim + along_values * value_dim)


TRAINING = "cudnn"  # what JAX calls, and Transformer Engine where it can


def attention(
    name: str,
    dims: Sequence[Number],
    value_dim: Number,
    moved: Number,
    dtype: str,
    *,
    scores: Number | None = None,
    visible: Number = CAUSAL,
    kv_heads: Number = 0,
    library: str = "",
    times: Number = 1,
    origin: Origin = NOT_KNOWN,
    issue: float = 0.0,
    share: float = 1.0,
) -> Kernel:
    """Return scores, softmax and average of values as one fused kernel.

    Args:
        dims: (batch, heads, queries, keys, head dimension of queries and keys).
        value_dim: head dimension of values.
        moved: bytes of queries, keys, values and results, once each. A backward pass reads and
            writes twice as many.
        dtype: format of the operands, whose peak rate counts.
        scores: that are counted; None: batch x heads x queries x keys.
        visible: share of the counted scores that the mask leaves.
        kv_heads: heads of keys and values; 0: as many as of queries.
        library: that runs it (`TRAINING` in steps); "": not known.
        times: 0 where it does not run, else 1.
        origin: says whether it is a backward pass.
        issue, share: as of `Kernel`.
    """
    batch, heads, queries, keys, query_key_dim = dims
    counted = batch * heads * (queries * keys) if scores is None else scores
    backward = origin.phase == "backward"
    return Kernel(
        name,
        origin,
        kind="attention",
        flops=attention_flops(counted, query_key_dim, value_dim, backward) * times,
        transcendentals=counted * times,  # an exponential of each
        bytes=moved * (2 if backward else 1) * times,
        dtype=dtype,
        dims=tuple(dims),
        issue=issue,
        share=share,
        visible=visible,
        kv_heads=kv_heads,
        value_dim=value_dim,
        library=library,
    )
