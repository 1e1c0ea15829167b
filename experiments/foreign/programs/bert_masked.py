"""BERT-base's masked prediction, 32 sequences of 512 tokens, attention with padding, SGD.

FLOPs a token: 12 layers of 24 D^2 + 4 T D, the head 2 V D (Devlin et al., arXiv 1810.04805); three
times with gradients.
"""

import jax
import jax.numpy as jnp
import optax

import scaling as sc
from experiments.foreign.work import Work

L, D, H, T, V, BATCH = 12, 768, 12, 512, 30_522, 32
SHAPES = {"qkv": (L, D, 3 * D), "out": (L, D, D), "up": (L, D, 4 * D), "down": (L, 4 * D, D)}


def norm(x):
    return jax.nn.standardize(x.astype(jnp.float32)).astype(x.dtype)


def loss(params, tokens, targets, lengths):
    def layer(x, w):
        q, k, v = jnp.moveaxis((x @ w["qkv"]).reshape(BATCH, T, 3, H, D // H), 2, 0)
        read = jax.nn.dot_product_attention(q, k, v, key_value_seq_lengths=lengths)
        x = norm(x + read.reshape(x.shape) @ w["out"])
        return norm(x + jax.nn.gelu(x @ w["up"]) @ w["down"]), None

    x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
    logits = (x @ params["embed"].T).astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


@jax.jit
def step(params, *batch):
    return jax.tree.map(lambda p, g: p - 1e-3 * g, params, jax.grad(loss)(params, *batch))


NOTE = "attention in XLA's own kernels: scores pass through memory in float32, with their masks"
WORK = Work(3 * BATCH * T * (L * (24 * D**2 + 4 * T * D) + 2 * V * D))


def price() -> sc.Prediction:
    array = lambda shape, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(shape, dtype)
    layers = {name: array(shape) for name, shape in SHAPES.items()}
    tokens, lengths = array((BATCH, T), jnp.int32), array((BATCH,), jnp.int32)
    params = {"embed": array((V, D)), "layers": layers}
    return sc.predict_step(step, params, tokens, tokens, lengths, cluster="dgx-h100")
