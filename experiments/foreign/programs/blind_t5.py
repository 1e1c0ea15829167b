"""Blind: an encoder and a decoder of 12 layers of 1024, 64 pairs of 512 and 256 tokens, gradients.

FLOPs of the encoder: S tokens of 24 D^2 + 4 S D; of the decoder: T tokens of 28 D^2 (queries and
output of the cross attention too) + 4 T D + 4 S D, keys and values of S tokens 4 D^2; the head 2
V D (Raffel et al., arXiv 1910.10683, section 2.1); three times, less the gradients of nothing.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

L, D, H, V, PAIRS, S, T = 12, 1024, 16, 32_128, 64, 512, 256
ENCODER = S * (24 * D**2 + 4 * S * D)
DECODER = T * (28 * D**2 + 4 * T * D + 4 * S * D) + S * 4 * D**2
WORK = Work(3 * PAIRS * (L * (ENCODER + DECODER) + T * 2 * V * D))
ATTENTION = {"q": (L, D, D), "kv": (L, D, 2 * D), "o": (L, D, D)}
MLP = {"up": (L, D, 4 * D), "down": (L, 4 * D, D)}
norm = lambda x: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)


def attend(x, source, w, is_causal):
    heads = lambda y: y.reshape(*y.shape[:2], H, -1)
    k, v = jnp.split(heads(source @ w["kv"]), 2, -1)
    out = jax.nn.dot_product_attention(heads(norm(x) @ w["q"]), k, v, is_causal=is_causal)
    return x + out.reshape(x.shape) @ w["o"]


def mlp(x, w):
    return x + jax.nn.relu(norm(x) @ w["up"]) @ w["down"]


@jax.jit
def gradients(params, source, target):
    def loss(params):
        def encode(x, w):
            return mlp(attend(x, norm(x), w["self"], False), w["mlp"]), None

        encoded, _ = jax.lax.scan(encode, params["embed"][source], params["encoder"])

        def decode(x, w):
            x = attend(x, norm(x), w["self"], True)
            return mlp(attend(x, encoded, w["cross"], False), w["mlp"]), None

        x, _ = jax.lax.scan(decode, params["embed"][target], params["decoder"])
        logits = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
        return -jnp.take_along_axis(logits[:, :-1], target[:, 1:, None], -1).mean()

    return jax.grad(loss)(params)


def price() -> sc.Prediction:
    array = lambda shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    make = lambda shapes: {name: array(shape) for name, shape in shapes.items()}
    encoder = {"self": make(ATTENTION), "mlp": make(MLP)}
    decoder = encoder | {"cross": make(ATTENTION)}
    params = {"embed": array((V, D)), "encoder": encoder, "decoder": decoder}
    source, target = (jax.ShapeDtypeStruct((PAIRS, n), jnp.int32) for n in (S, T))
    return sc.predict_step(gradients, params, source, target, cluster="dgx-h100")
