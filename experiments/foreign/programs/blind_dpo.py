"""Blind: DPO by hand on a decoder of 12 layers, width 2048: 16 pairs of 1024 tokens on 8 GPUs.

FLOPs of a token of a model forward: 24 L D^2 + 4 L T D + 2 V D; policy three times, less the
embedding; reference once (Rafailov et al., arXiv 2305.18290, equation 7). 32 x 1024 tokens over 8
GPUs. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

L, D, H, V, T, PAIRS, GPUS, BETA = 12, 2048, 16, 32_000, 1024, 16, 8, 0.1
FORWARD = 24 * L * D**2 + 4 * L * T * D + 2 * V * D
WORK = Work(2 * PAIRS * T / GPUS * 4 * FORWARD)
SHAPES = {"qkv": (L, D, 3 * D), "out": (L, D, D), "up": (L, D, 4 * D), "down": (L, 4 * D, D)}


def layer(x, w):
    norm = lambda x: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    q, k, v = jnp.moveaxis((norm(x) @ w["qkv"]).reshape(*x.shape[:2], 3, H, D // H), 2, 0)
    x += jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ w["out"]
    return x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"], None


def log_likelihood(params, tokens):
    x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
    logits = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
    return jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1).sum((1, 2))


def step(params, reference, chosen, rejected):
    both = jnp.concatenate([chosen, rejected])
    anchor = log_likelihood(reference, both)

    def loss(params):
        better, worse = jnp.split(log_likelihood(params, both) - anchor, 2)
        return -jax.nn.log_sigmoid(BETA * (better - worse)).mean()

    return jax.tree.map(lambda w, g: w - 1e-6 * g, params, jax.grad(loss)(params))


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    array = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, P(*spec))
    )
    layers = {name: array(shape, jnp.bfloat16) for name, shape in SHAPES.items()}
    params = {"embed": array((V, D), jnp.bfloat16), "layers": layers}
    tokens = array((PAIRS, T), jnp.int32, "data")
    return sc.predict_step(
        jax.jit(step, donate_argnums=0), params, params, tokens, tokens, cluster="dgx-h100"
    )
