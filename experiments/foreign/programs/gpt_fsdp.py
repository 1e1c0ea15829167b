"""A GPT of 1.3 billion parameters in plain JAX, ZeRO-3 over 64 GPUs by in_shardings, optax's AdamW.

FLOPs: 6 x 12 L D^2 a token, attention without FlashAttention 12 x L T D (Kaplan et al.,
arXiv 2001.08361, table 1, the whole square of scores), 6 x V D of the head; the layers computed
again backward, but for their last product, of which nothing needs the result: 8 L D^2 less.
"""

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

L, D, H, T, V, BATCH, GPUS = 24, 2048, 16, 2048, 50_304, 512, 64
SHAPES = {"qkv": (L, D, 3 * D), "out": (L, D, D), "up": (L, D, 4 * D), "down": (L, 4 * D, D)}
optimizer = optax.adamw(1e-4)


def init():
    layers = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
    params = {"embed": jnp.zeros((V, D)), "layers": layers}
    return params, optimizer.init(params)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


@jax.checkpoint
def layer(x, w):
    x = jax.lax.with_sharding_constraint(x, P("data"))
    w = jax.tree.map(lambda a: a.astype(jnp.bfloat16), w)
    q, k, v = jnp.moveaxis((norm(x) @ w["qkv"]).reshape(*x.shape[:2], 3, H, D // H), 2, 0)
    x += jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None


def loss(params, tokens):
    x = params["embed"].astype(jnp.bfloat16)[tokens]
    x = norm(jax.lax.scan(layer, x, params["layers"])[0])
    logits = (x @ params["embed"].astype(jnp.bfloat16).T).astype(jnp.float32)
    targets = jnp.roll(tokens, -1, 1)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def step(params, state, tokens):
    updates, state = optimizer.update(jax.grad(loss)(params, tokens), state, params)
    return optax.apply_updates(params, updates), state


def specs(tree):
    cut = lambda x: P(*(None,) * (x.ndim - 1), "data") if x.ndim > 1 else P()
    return jax.tree.map(cut, tree)


TOKENS = BATCH * T
WORK = Work(TOKENS / GPUS * ((4 * 24 - 8) * L * D**2 + 4 * 4 * L * T * D + 6 * V * D))


def price() -> sc.Prediction:
    state = jax.eval_shape(init)
    shardings = (*specs(state), P("data"))
    jitted = jax.jit(
        step, in_shardings=shardings, out_shardings=shardings[:2], donate_argnums=(0, 1)
    )
    tokens = jax.ShapeDtypeStruct((BATCH, T), jnp.int32)
    return sc.predict_step(
        jitted, *state, tokens, cluster="dgx-h100", mesh="data=64", tokens=TOKENS,
        model_flops=6 * (12 * L * D**2 + V * D) * TOKENS,
    )  # fmt: skip
