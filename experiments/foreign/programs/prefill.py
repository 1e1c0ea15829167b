"""Prefill of 4 prompts of 2048 tokens, a Llama-3 8B in plain JAX with grouped cuDNN attention.

FLOPs per token: 2 x 32 layers x (2 D^2 + 2 D^2 / 4 + 3 D F), attention 4 T D x 32, of which the
causal mask leaves half; 2 x V D of each prompt's last token.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

L, D, H, G, F, V, BATCH, T = 32, 4096, 32, 8, 14_336, 128_256, 4, 2048
K = D // H
SHAPES = {"q": (L, D, H, K), "k": (L, D, G, K), "v": (L, D, G, K), "out": (L, H, K, D),
          "gate": (L, D, F), "up": (L, D, F), "down": (L, F, D)}  # fmt: skip


def norm(x):
    mean = jnp.square(x.astype(jnp.float32)).mean(-1, keepdims=True)
    return (x * jax.lax.rsqrt(mean + 1e-5)).astype(x.dtype)


def layer(x, w):
    q, k, v = (jnp.einsum("btd,dhk->bthk", norm(x), w[name]) for name in "qkv")
    read = jax.nn.dot_product_attention(q, k, v, is_causal=True, implementation="cudnn")
    x += jnp.einsum("bthk,hkd->btd", read, w["out"])
    y = norm(x)
    return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], (k, v)


@jax.jit
def prefill(weights, embed, tokens):
    x, cache = jax.lax.scan(layer, embed[tokens], weights)
    return jnp.argmax(norm(x[:, -1]) @ embed.T, -1), cache


LAYER = 2 * (2 * D**2 + 2 * D * G * K + 3 * D * F) + 4 * T * D / 2
WORK = Work(BATCH * (T * L * LAYER + 2 * V * D), 2 * V * D + 2 * L * (2.5 * D**2 + 3 * D * F))


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = {name: array(*shape) for name, shape in SHAPES.items()}
    tokens = jax.ShapeDtypeStruct((BATCH, T), jnp.int32)
    return sc.predict_step(prefill, weights, array(V, D), tokens, cluster="dgx-h100")
