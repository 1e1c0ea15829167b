"""A kernel of ours against a reference in float32, on inputs of bf16; then its rate on a real size.

    error   max |kernel - reference| / max |reference|         of the result and of each gradient
    FLOPs   2 x multiplications of the pairs that a causal mask lets see, or of an even load

The reference is XLA's, in full float32, and stores all scores. Elsewhere than on a GPU XLA's plain
attention and the loop over tiles stand in for the kernels.
"""

# Dims: B batch, T tokens, N query heads, M key/value heads, K, V head dims, E groups, R rows;
# of experts S tokens, C choices of each, D model, F hidden units

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.gpu.kernel_cases import (
    KERNELS,
    TINY_ATTENTION,
    TINY_EXPERTS,
    TINY_PRODUCTS,
    AttentionCase,
    ExpertsCase,
    ProductCase,
)
from experiments.gpu.predicted import kernel_seconds
from experiments.gpu.timing import QUICK, Effort, time_windows
from scaling.models.attention_kernels.flash import flash_attention
from scaling.models.attention_kernels.kernel import AttentionKernel, Mask, PartialAttention, merge
from scaling.models.attention_kernels.reference import causal_mask, reference_attention
from scaling.models.mlp import gated_units
from scaling.models.moe.dispatch import combine, dispatch, sorted_indices, weights_of_rows
from scaling.models.moe.grouped_matmul import grouped_matmul
from scaling.models.moe.grouped_mlps import GroupedMlps, grouped_mlps
from scaling.models.moe.triton_products import products, weights_gradient
from scaling.models.moe.triton_tiles import Load, Rows

Function = Callable[..., Any]  # of arrays
BF16, FP32 = jnp.bfloat16, jnp.float32
EXACT = jax.lax.Precision.HIGHEST
SHORT = Effort(warm_up=3, windows=5, window_seconds=0.1, most_calls=50)
EMPTY = 1  # the group without rows; the last rows belong to none


def check_kernel(name: str, tiny: bool) -> dict[str, Any]:
    """Errors and rates of the kernel of that name; `tiny`: sizes for a CPU."""
    case = KERNELS[name]
    if isinstance(case, ProductCase):
        return _products(ProductCase(*TINY_PRODUCTS) if tiny else case)
    if isinstance(case, ExpertsCase):
        small = ExpertsCase(*TINY_EXPERTS, kind=case.kind, has_bias=case.has_bias)
        return _experts(small if tiny else case)
    if tiny:
        case = replace(case, timed=TINY_ATTENTION, checked=TINY_ATTENTION, window=case.window and 7)
    return _attention(case)


def on_gpu() -> bool:
    """True if the kernels themselves can run here."""
    return jax.default_backend() == "gpu"


# --- attention ------------------------------------------------------------------------------------


def _attention(case: AttentionCase) -> dict[str, Any]:
    """Result and gradients against the reference; the forward kernel and both passes timed."""
    passes = {"forward": lambda *x: kernel_of(case)(*x[:3]), "both": gradients_of(kernel_of(case))}
    given = attention_inputs(case, *case.checked)
    found = jax.jit(passes["both"])(*given)
    exact = [x.astype(FP32) for x in given]
    expected = jax.jit(gradients_of(lambda *qkv: _reference(case, *qkv)))(*exact)
    B, T = case.timed
    seen = np.minimum(np.arange(T) + 1, case.window or T)  # keys of each query
    pairs = B * case.heads * int(seen[T // 2 if case.how == "ring" else 0 :].sum())
    forward, backward = case.keys + case.values, 3 * case.keys + 2 * case.values
    flops = {"forward": 2 * pairs * forward, "both": 2 * pairs * (forward + backward)}
    given = attention_inputs(case, B, T)
    rates = {name: _rate(step, given, flops[name]) for name, step in passes.items()}
    return _judged(("out", "dq", "dk", "dv"), found, expected, case.tolerance) | {"rates": rates}


def attention_inputs(case: AttentionCase, B: int, T: int) -> list[jax.Array]:
    """q, k, v and the gradient of the result; over a ring the queries are the second half."""
    queries = T // 2 if case.how == "ring" else T
    shapes = [
        (B, queries, case.heads, case.keys),
        (B, T, case.kv_heads, case.keys),
        (B, T, case.kv_heads, case.values),
        (B, queries, case.heads, case.values),
    ]
    return [_random(number, shape) for number, shape in enumerate(shapes)]


def kernel_of(case: AttentionCase) -> Function:
    """The attention of a case: by cuDNN on a GPU."""
    if case.how == "ring":
        return _ring
    if not on_gpu():
        return lambda *qkv: _reference(case, *qkv)

    def flash(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        seen = _same_document(q.shape[1])[None, None] if case.how == "documents" else None
        return flash_attention(case.window, q, k, v, seen)

    return flash


def gradients_of(attend: Function) -> Function:
    """q, k, v, dout -> out, dq, dk, dv."""

    def both(q: jax.Array, k: jax.Array, v: jax.Array, dout: jax.Array) -> tuple:
        out, back = jax.vjp(attend, q, k, v)
        return out, *back(dout.astype(out.dtype))

    return both


def _reference(case: AttentionCase, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The attention in full precision, with all of its scores."""
    queries, keys = q.shape[1], k.shape[1]
    mask = causal_mask(queries, keys, case.window, keys - queries)
    if case.how == "documents":
        mask &= _same_document(keys)
    return reference_attention(q, k, v, mask, EXACT)


def _same_document(T: int) -> jax.Array:
    """True where two tokens are of one document; the second of two begins at a third."""
    second = jnp.arange(T) >= T // 3
    return second[:, None] == second[None, :]


@jax.custom_vjp
def _ring(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Two blocks of keys as ring attention takes them, joined by their log-sum-exp."""
    return _ring_forward(q, k, v)[0]


def _ring_forward(q: jax.Array, k: jax.Array, v: jax.Array) -> tuple:
    total = merge(*(_block_kernel().forward(q, *block) for block in _blocks(k, v)))
    total = PartialAttention(total.out_BTNV.astype(q.dtype), total.lse_BTN)
    return total.out_BTNV, (q, k, v, total)


def _ring_backward(saved: tuple, dout: jax.Array) -> tuple:
    q, k, v, total = saved
    kernel = _block_kernel()
    parts = [kernel.backward(q, k, v, total, dout, mask) for k, v, mask in _blocks(k, v)]
    (dq_1, *dkv_1), (dq_2, *dkv_2) = parts
    dkv = [jnp.concatenate(pair, axis=1) for pair in zip(dkv_1, dkv_2, strict=True)]
    return (dq_1.astype(FP32) + dq_2).astype(q.dtype), *dkv


_ring.defvjp(_ring_forward, _ring_backward)


def _blocks(k: jax.Array, v: jax.Array) -> list[tuple[jax.Array, jax.Array, Mask | None]]:
    """Keys and values of the first half, all of them seen, and of the second, with its diagonal."""
    (k_1, k_2), (v_1, v_2) = (jnp.split(x, 2, axis=1) for x in (k, v))
    return [(k_1, v_1, None), (k_2, v_2, Mask())]


def _block_kernel() -> AttentionKernel:
    return AttentionKernel("cudnn" if on_gpu() else "xla", jax.lax.Precision.DEFAULT)


# --- grouped products -----------------------------------------------------------------------------


def _products(case: ProductCase) -> dict[str, Any]:
    """y = x w, and the gradients of x and of w, on an uneven load; on an even one timed."""
    E, K, N, R = case.groups, case.inputs, case.outputs, case.rows
    x_RK, w_EKN, dy_RN = (_random(*draw) for draw in ((0, (R, K)), (1, (E, K, N)), (2, (R, N))))
    uneven_E, even_E = uneven_sizes(E, R), np.full(E, R // E, np.int32)
    found = [jax.jit(step)(x_RK, w_EKN, dy_RN, uneven_E) for step in PRODUCTS.values()]
    used_R1 = (jnp.arange(R) < uneven_E.sum())[:, None]  # nothing is promised of other rows
    found = [jnp.where(used_R1, y, 0) for y in found[:2]] + found[2:]
    exact = jax.jit(exact_products, static_argnums=4)
    expected = exact(x_RK, w_EKN, dy_RN, uneven_E, int(uneven_E.max()))
    flops = 2 * (R // E * E) * K * N
    given = [x_RK, w_EKN, dy_RN, even_E]
    rates = {name: _rate(step, given, flops) for name, step in PRODUCTS.items()}
    return _judged(tuple(PRODUCTS), found, expected, case.tolerance) | {"rates": rates}


def uneven_sizes(groups: int, rows: int) -> np.ndarray:
    """Rows of each group: uneven, one without any, and a sixteenth of the rows unused."""
    share = np.random.default_rng(0).random(groups)
    share[EMPTY] = 0
    return np.floor(share / share.sum() * rows * 15 / 16).astype(np.int32)


def _multiply(x: jax.Array, w: jax.Array, sizes: jax.Array, transposed: bool) -> jax.Array:
    if on_gpu():
        return products(_load(x), [(x, w)], _rows(sizes, x), transposed)
    return grouped_matmul(x, w.swapaxes(1, 2) if transposed else w, sizes, "tiles")


def _weights(x: jax.Array, w: jax.Array, dy: jax.Array, sizes: jax.Array) -> jax.Array:
    if on_gpu():
        return weights_gradient(_load(x), x, dy, _rows(sizes, x))
    return jax.vjp(lambda w: grouped_matmul(x, w, sizes, "tiles"), w)[1](dy)[0]


def _load(x: jax.Array) -> Load:
    return Load(x.shape[0], jax.lax.Precision.DEFAULT)


def _rows(sizes: jax.Array, x: jax.Array) -> Rows:
    number = jnp.arange(x.shape[0], dtype=jnp.int32)
    return Rows(number, jnp.ones(number.shape, FP32), sizes)


PRODUCTS: dict[str, Function] = {
    "y": lambda x, w, dy, sizes: _multiply(x, w, sizes, False),
    "dx": lambda x, w, dy, sizes: _multiply(dy, w, sizes, True),
    "dw": _weights,
}


def exact_products(
    x: jax.Array, w: jax.Array, dy: jax.Array, sizes_E: jax.Array, most: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """y, dx and dw in float32, a group after the other; `most` are the rows of the largest."""
    first_E = jnp.cumsum(sizes_E) - sizes_E
    pad = lambda rows: jnp.pad(rows, ((0, most), (0, 0)))
    x, dy, dot = pad(x), pad(dy), lambda a, b: jnp.dot(a, b, precision=EXACT)

    def group(sums: tuple, of_group: tuple) -> tuple[tuple, jax.Array]:
        w, first, size = of_group
        used = (jnp.arange(most) < size)[:, None]
        own = lambda rows: jnp.where(used, jax.lax.dynamic_slice_in_dim(rows, first, most), 0)
        x_own, dy_own, w = own(x).astype(FP32), own(dy).astype(FP32), w.astype(FP32)
        parts = dot(x_own, w), dot(dy_own, w.T)
        at = first + jnp.arange(most)
        return tuple(s.at[at].add(p) for s, p in zip(sums, parts, strict=True)), dot(
            x_own.T, dy_own
        )

    zeros = tuple(jnp.zeros((x.shape[0], n), FP32) for n in (w.shape[2], w.shape[1]))
    (y, dx), dw = jax.lax.scan(group, zeros, (w, first_E, sizes_E))
    return y[:-most], dx[:-most], dw


# --- experts --------------------------------------------------------------------------------------


def _experts(case: ExpertsCase) -> dict[str, Any]:
    """The weighted sums of each token's experts and all gradients, on an uneven load; on an even
    one timed."""
    passes = {"forward": lambda *x: experts_of(case)(*x[:-1]), "both": both_passes(case)}
    given = [_random(key, shape) for key, shape in enumerate(experts_shapes(case))]
    even_SC = np.arange(case.tokens * case.choices).reshape(case.tokens, -1) % case.groups
    found = jax.jit(passes["both"])(uneven_choices(case), *given)
    exact = [x.astype(FP32) for x in given]
    expected = jax.jit(both_passes(case, exact_experts))(uneven_choices(case), *exact)
    products = 2 * case.tokens * case.choices * case.model * case.hidden * 3
    flops = {"forward": products, "both": 3 * products}
    given = [jnp.asarray(even_SC, jnp.int32), *given]
    rates = {name: _rate(step, given, flops[name]) for name, step in passes.items()}
    names = ("out", "dx", "dweight", "dup", "dgate", "dup_bias", "dgate_bias", "ddown")
    used = names if case.has_bias else (*names[:5], names[-1])
    return _judged(used, found, expected, case.tolerance) | {"rates": rates}


def uneven_choices(case: ExpertsCase) -> np.ndarray:
    """Distinct experts of each token, the later ones more often, one never: int32 [S, C]."""
    draw = np.random.default_rng(0).random((case.tokens, case.groups)) / np.arange(
        1, case.groups + 1
    )
    draw[:, EMPTY] = 2  # behind all others
    return np.argsort(draw, axis=1)[:, : case.choices].astype(np.int32)


def experts_shapes(case: ExpertsCase) -> list[tuple[int, ...]]:
    """Return shapes: tokens, row weights, up, gate, their biases, down, the result's gradient."""
    S, E, D, F = case.tokens, case.groups, case.model, case.hidden
    biases = [(E, F)] * (2 * case.has_bias)
    return [(S, D), (S, case.choices), (E, D, F), (E, D, F), *biases, (E, F, D), (S, D)]


def _scaled(case: ExpertsCase, matrices: tuple) -> tuple:
    """Up, gate, biases and down of the deviation of weights that are trained."""
    up, gate, *biases, down = matrices
    small = lambda w, inputs: w * jnp.asarray(inputs**-0.5, w.dtype)
    of_units = small(up, case.model), small(gate, case.model)
    return of_units, tuple(b.astype(FP32) for b in biases), small(down, case.hidden)


def experts_of(case: ExpertsCase) -> Function:
    """Choices, tokens, weights, matrices -> sums, by the kernels on a GPU."""

    def multiply(experts_SC: jax.Array, x: jax.Array, weight_SC: jax.Array, *matrices: Any) -> Any:
        weights, biases, down = _scaled(case, matrices)
        idx, sizes_E = sorted_indices(experts_SC, case.groups, experts_SC.size)
        weight_R = weights_of_rows(weight_SC.astype(FP32), idx)
        if on_gpu():
            rows = Rows(idx.assignment_R % case.tokens, weight_R, sizes_E)
            how = GroupedMlps(case.kind, _load(weight_R), experts_SC.size)
            return grouped_mlps(how, x, rows, idx.row_KT, weights, biases, down)
        product = lambda rows, w: grouped_matmul(rows, w, sizes_E, "tiles")
        up, gate = (product(dispatch(x, idx), w).astype(FP32) for w in weights)
        if biases:
            number_R1 = jnp.arange(experts_SC.size)[:, None]
            of_row_R = (number_R1 >= jnp.cumsum(sizes_E)).sum(axis=1)
            up, gate = up + biases[0][of_row_R], gate + biases[1][of_row_R]
        h = gated_units(case.kind)(gate, up) * weight_R[:, None]
        return combine(product(h.astype(x.dtype), down), idx)

    return multiply


def exact_experts(case: ExpertsCase) -> Function:
    """The same in float32, every expert on all tokens with a weight of 0 where it is not chosen."""
    dot = lambda a, b: jnp.dot(a, b, precision=EXACT)

    def multiply(experts_SC: jax.Array, x: jax.Array, weight_SC: jax.Array, *matrices: Any) -> Any:
        weights, biases, down = _scaled(case, matrices)
        biases = biases or (jnp.zeros((case.groups, case.hidden)),) * 2

        @jax.checkpoint
        def add(y: jax.Array, of_expert: tuple) -> tuple[jax.Array, None]:
            number, up, gate, up_bias, gate_bias, down = of_expert
            weight_S1 = jnp.where(experts_SC == number, weight_SC, 0).sum(axis=1, keepdims=True)
            h = gated_units(case.kind)(dot(x, gate) + gate_bias, dot(x, up) + up_bias)
            return y + dot(h * weight_S1, down), None

        every = jnp.arange(case.groups), *weights, *biases, down
        return jax.lax.scan(add, jnp.zeros_like(x), every)[0]

    return multiply


def both_passes(case: ExpertsCase, of: Callable[[ExpertsCase], Function] = experts_of) -> Function:
    """Choices, the operands and the gradient of the result -> it, and the operands' gradients."""

    def both(experts_SC: jax.Array, *operands: jax.Array) -> tuple:
        out, back = jax.vjp(functools.partial(of(case), experts_SC), *operands[:-1])
        return out, *back(operands[-1].astype(out.dtype))

    return both


# --- both -----------------------------------------------------------------------------------------


def _random(key: int, shape: tuple[int, ...]) -> jax.Array:
    return jax.jit(lambda: jax.random.normal(jax.random.key(key), shape, BF16))()


def _judged(names: tuple[str, ...], found: Any, expected: Any, tolerance: float) -> dict[str, Any]:
    """The error of each array, and whether all are within the tolerance; NaN is not."""
    errors = {name: error(*both) for name, *both in zip(names, found, expected, strict=True)}
    finite = {name: e if math.isfinite(e) else None for name, e in errors.items()}
    right = all(e <= tolerance for e in errors.values())
    return {"right": right, "tolerance": tolerance, "errors": finite}


def error(found: jax.Array, expected: jax.Array) -> float:
    """max |found - expected| / max |expected|."""
    difference = jnp.abs(found.astype(FP32) - expected).max()
    return float(difference / jnp.abs(expected).max())


def _rate(step: Function, given: list[Any], flops: float) -> dict[str, Any]:
    """Time and FLOP/s of a jitted step, beside the time that shipped figures predict for it."""
    compiled = jax.jit(step).lower(*given).compile()
    timed = time_windows(lambda: compiled(*given), SHORT if on_gpu() else QUICK)
    return {
        "flops": flops,
        "flops_per_second": flops / timed.median,
        "predicted": kernel_seconds(compiled),
        "time": timed.as_dict(),
    }
