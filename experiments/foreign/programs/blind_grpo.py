"""Blind: GRPO's update of a decoder of 16 layers of 2048: 64 answers of 1024 tokens on 8 GPUs.

FLOPs of a token forward: 24 L D^2 + 4 L T D + 2 V D; the policy three times and, its layers being
checkpointed, their forward pass again but for the last product, 8 D^2 a layer; the reference once
(Shao et al., arXiv 2402.03300, equation 3). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

L, D, H, V, T, PROMPTS, ANSWERS, GPUS = 16, 2048, 16, 64_000, 1024, 8, 8, 8
LAYERS, HEAD = L * (24 * D**2 + 4 * T * D), 2 * V * D
WORK = Work(PROMPTS * ANSWERS * T / GPUS * (5 * LAYERS - 8 * L * D**2 + 4 * HEAD))
SHAPES = {"qkv": (L, D, 3 * D), "out": (L, D, D), "up": (L, D, 4 * D), "down": (L, 4 * D, D)}


@jax.checkpoint
def layer(x, w):
    norm = lambda x: x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    q, k, v = jnp.moveaxis((norm(x) @ w["qkv"]).reshape(*x.shape[:2], 3, H, D // H), 2, 0)
    x += jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ w["out"]
    return x + jax.nn.silu(norm(x) @ w["up"]) @ w["down"], None


def log_likelihoods(params, tokens):
    x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
    logits = jax.nn.log_softmax((x @ params["embed"].T).astype(jnp.float32))
    return jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], -1)[..., 0]


def step(params, reference, tokens, old, rewards):
    groups = rewards.reshape(PROMPTS, ANSWERS)
    gain = (groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-4)
    gain = gain.reshape(-1, 1)
    anchor = log_likelihoods(reference, tokens)

    def loss(params):
        new = log_likelihoods(params, tokens)
        ratio = jnp.exp(new - old)
        clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 0.8, 1.2) * gain)
        distance = jnp.exp(anchor - new) - (anchor - new) - 1
        return -(clipped - 0.04 * distance).mean()

    return jax.tree.map(lambda w, g: w - 1e-6 * g, params, jax.grad(loss)(params))


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    array = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, P(*spec))
    )
    layers = {name: array(shape, jnp.bfloat16) for name, shape in SHAPES.items()}
    params = {"embed": array((V, D), jnp.bfloat16), "layers": layers}
    n = PROMPTS * ANSWERS
    return sc.predict_step(
        jax.jit(step, donate_argnums=0), params, params, array((n, T), jnp.int32, "data"),
        array((n, T - 1), jnp.float32, "data"), array((n,), jnp.float32, "data"),
        cluster="dgx-h100",
    )  # fmt: skip
