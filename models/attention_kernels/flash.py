"""cuDNN's flash kernel on one block of keys: with its log-sum-exp, and with that of all keys.

`jax.nn.dot_product_attention` runs the kernel, but rounds the log-sum-exp to the compute format,
and its gradient uses the statistics of its own keys only. Inside its gradient both are exact:

    out, lse = forward kernel(q, k, v)
    dq, dk, dv = backward kernel(q, k, v, out, lse, dout)

So that gradient is traced and evaluated here in parts. The forward pass ends at the forward kernel
and returns its results; the backward pass leaves that kernel out and replaces its results by `out`
and `lse` of all keys.
"""

# Dims: B batch, T queries, U keys, N query heads, M key/value heads, K head dim

import functools
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

FORWARD = "dot_product_attention_fwd_wrapper"  # cuDNN's primitive: output and log-sum-exp


def flash_forward(
    q_BTNK: jax.Array, k_BUMK: jax.Array, v_BUMK: jax.Array, causal: bool, window: int | None
) -> tuple[jax.Array, jax.Array]:
    """Attention in compute format [B, T, N, K] and its log-sum-exp, float32 [B, T, N].

    If `causal`, a query sees the keys up to its own index, at most `window` of them.
    """
    traced = _gradient(q_BTNK, k_BUMK, v_BUMK, q_BTNK, causal, window)
    out, lse_BNT = _evaluate(traced, (q_BTNK, k_BUMK, v_BUMK, q_BTNK), None)
    return out, lse_BNT.transpose(0, 2, 1)


def flash_backward(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    v_BUMK: jax.Array,
    total: tuple[jax.Array, jax.Array],
    dout_BTNK: jax.Array,
    causal: bool,
    window: int | None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v through these keys (arguments as `flash_forward`).

    `total` is the attention over all keys of these queries and its log-sum-exp [B, T, N],
    `dout_BTNK` the gradient of that attention.
    """
    out_BTNK, lse_BTN = total
    traced = _gradient(q_BTNK, k_BUMK, v_BUMK, dout_BTNK, causal, window)
    results = out_BTNK, lse_BTN.transpose(0, 2, 1)
    dq, dk, dv = _evaluate(traced, (q_BTNK, k_BUMK, v_BUMK, dout_BTNK), results)
    return dq, dk, dv


def _gradient(q: Any, k: Any, v: Any, dout: Any, causal: bool, window: int | None) -> ClosedJaxpr:
    """The attention's gradient as a traced function of q, k, v and dout."""
    attention = functools.partial(
        jax.nn.dot_product_attention,
        is_causal=causal,
        local_window_size=None if window is None else (window - 1, 0),
        implementation="cudnn",
    )
    return jax.make_jaxpr(lambda q, k, v, dout: jax.vjp(attention, q, k, v)[1](dout))(q, k, v, dout)


def _evaluate(traced: ClosedJaxpr, arguments: Any, results: Any | None) -> list[jax.Array]:
    """The traced gradient with `results` for the forward kernel's; if None, these themselves."""
    jaxpr = traced.jaxpr
    kernels = [i for i, e in enumerate(jaxpr.eqns) if e.primitive.name == FORWARD]
    if len(kernels) != 1:
        raise NotImplementedError(f"jax {jax.__version__} does not call {FORWARD} once; context=1")
    (at,) = kernels
    outputs = list(jaxpr.eqns[at].outvars)
    if results is None:
        part = jaxpr.replace(outvars=outputs, eqns=jaxpr.eqns[: at + 1])
        return jaxpr_as_fun(ClosedJaxpr(part, traced.consts))(*arguments)
    others = [*jaxpr.eqns[:at], *jaxpr.eqns[at + 1 :]]
    part = jaxpr.replace(invars=[*jaxpr.invars, *outputs], eqns=others)
    return jaxpr_as_fun(ClosedJaxpr(part, traced.consts))(*arguments, *results)
