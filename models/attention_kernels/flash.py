"""cuDNN's flash attention: its forward and its backward kernel, each of one block of keys.

    out, lse = forward kernel(q, k, v)
    dq, dk, dv = backward kernel(q, k, v, out, lse, dout)

jax.nn.dot_product_attention ends in the same two kernels, but takes only values as long as keys,
rounds the log-sum-exp to the compute format, and asks the devices that are present, not those that
it is compiled for, what they can run (`scaling.models.attention_kernels.support` knows). So jax's
primitives are called here, and no other file reaches into jax's private modules.
"""

# Dims: B batch, T queries, U keys, N query heads, M key/value heads, K head dim, V of values

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from scaling.meshes.errors import InputError

# Added to the score of a key that is not seen: jax's, as cuDNN has a bug with two larger ones.
HIDDEN = -(2.0**41)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def flash_attention(
    window: int | None,
    q_BTNK: jax.Array,
    k_BTMK: jax.Array,
    v_BTMV: jax.Array,
    seen_BNTT: jax.Array | None = None,
    sinks_N: jax.Array | None = None,
) -> jax.Array:
    """softmax(q k^T / sqrt(K), causal) v -> [B, T, N, V] in compute format.

    A query sees `window` tokens, itself included (None: all before it), of those that `seen_BNTT`
    has as true (one mask for all sequences and heads: [1, 1, T, T]). `sinks_N` is one more score of
    each head, of no value: it scales the kernel's result by exp(lse) / (exp(lse) + exp(sink)).
    Saved for the backward pass: q, k, v, the result and its log-sum-exp, under the names of
    `scaling.models.remat`.
    """
    return _attend(window, q_BTNK, k_BTMK, v_BTMV, seen_BNTT, sinks_N)[0]


def _attend(window: int | None, q: Any, k: Any, v: Any, seen: Any, sinks: Any) -> tuple:
    out, lse = flash_forward(q, k, v, True, window, seen)
    if sinks is not None:
        total = jnp.logaddexp(lse, sinks)
        out = (out.astype(jnp.float32) * jnp.exp(lse - total)[..., None]).astype(out.dtype)
        lse = total
    out = checkpoint_name(out, "attention")
    lse = checkpoint_name(lse, "attention_statistics")
    return out, (q, k, v, seen, sinks, out, lse)


def _gradients(window: int | None, residuals: tuple, dout: jax.Array) -> tuple:
    q, k, v, seen, sinks, out, lse = residuals
    gradients = flash_backward(q, k, v, (out, lse), dout, True, window, seen)
    if sinks is None:
        return *gradients, None, None
    return *gradients, None, sink_gradients(sinks, out, lse, dout)


def sink_gradients(
    sinks_N: jax.Array, out_BTNV: jax.Array, lse_BTN: jax.Array, dout_BTNV: jax.Array
) -> jax.Array:
    """Gradients of sinks [N]: their probability times that of the scores of a value of zero."""
    mean_BTN = (dout_BTNV.astype(jnp.float32) * out_BTNV.astype(jnp.float32)).sum(axis=-1)
    return -(jnp.exp(sinks_N - lse_BTN) * mean_BTN).sum(axis=(0, 1))


flash_attention.defvjp(_attend, _gradients)


def flash_forward(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    v_BUMV: jax.Array,
    causal: bool,
    window: int | None,
    seen_BNTU: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Attention in compute format [B, T, N, V] and its log-sum-exp, float32 [B, T, N].

    If `causal`, a query sees the keys up to its own index, at most `window` of them.
    """
    forward, _, options = _kernels()
    arrays, choices = _arguments(q_BTNK, k_BUMK, v_BUMV, seen_BNTU, causal, window)
    out_BTNV, lse_BNT = forward.bind(*arrays, **choices, **options, is_training=True)
    return out_BTNV, lse_BNT.transpose(0, 2, 1)


def flash_backward(
    q_BTNK: jax.Array,
    k_BUMK: jax.Array,
    v_BUMV: jax.Array,
    total: tuple[jax.Array, jax.Array],
    dout_BTNV: jax.Array,
    causal: bool,
    window: int | None,
    seen_BNTU: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Gradients of q, k and v through these keys (arguments as `flash_forward`).

    `total` is the attention over all keys of these queries and its log-sum-exp [B, T, N],
    `dout_BTNV` the gradient of that attention.
    """
    _, backward, options = _kernels()
    arrays, choices = _arguments(q_BTNK, k_BUMK, v_BUMV, seen_BNTU, causal, window)
    out_BTNV, lse_BTN = total
    results = lse_BTN.transpose(0, 2, 1), out_BTNV, dout_BTNV
    dq, dk, dv, *_ = backward.bind(*arrays, *results, **choices, **options)
    return dq, dk, dv


def cudnn_version() -> int:
    """The version of the installed cuDNN, 91002 for 9.10.2; RuntimeError if there is none."""
    from jax._src.cudnn.fused_attention_stablehlo import check_cudnn_version

    return check_cudnn_version()


@functools.cache
def _kernels() -> tuple[Any, Any, dict[str, None]]:
    """jax's primitives of the forward and the backward kernel, and options that newer ones take.

    Raises:
        InputError: this version of jax has others.
    """
    try:
        from jax._src.cudnn import fused_attention_stablehlo as cudnn

        forward = cudnn._dot_product_attention_fwd_p_wrapper
        backward = cudnn._dot_product_attention_bwd_p_wrapper
        known = inspect.signature(cudnn._dot_product_attention_fwd).parameters
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"jax {jax.__version__} does not have cuDNN's attention where 0.10.2 and 0.12.0 have "
            f"it ({error}); install one of these, or --set attention=unfused"
        ) from error
    return forward, backward, {name: None for name in ("score_mod",) if name in known}


def _arguments(
    q: jax.Array, k: jax.Array, v: jax.Array, seen: Any, causal: bool, window: int | None
) -> tuple[list[jax.Array], dict[str, Any]]:
    """Ten arrays, of which those that cuDNN is to do without are empty, and the options."""
    from jax._src.cudnn.fused_attention_stablehlo import AttentionLayout, MaskType

    empty, masked = jnp.zeros(0, q.dtype), seen is not None
    bias = jnp.where(seen, 0, HIDDEN).astype(q.dtype) if masked else empty
    choices = {
        "scale": q.shape[-1] ** -0.5,
        "seed": 42,  # of dropout: as jax has it
        "dropout_rate": 0.0,
        "variadic_args": (masked, False),  # there is a bias, and no gradient of it
        "mask_type": MaskType.CAUSAL if causal else MaskType.NO_MASK,
        "layout": AttentionLayout.BTNH.value,
        "sliding_window_length": window,
    }
    return [q, k, v, bias, *[empty] * 6], choices
