"""Blind: self-distillation (DINO): a ViT-S student on 2 + 6 crops, its EMA teacher on 2, 8 GPUs.

FLOPs of an image of T tokens: 12 layers of 24 T D^2 + 4 T^2 D, D = 384 (Caron et al., arXiv
2104.14294); T is 197 for 2 crops and 37 for 6; the student three times, the teacher once; the head
of 65,536 prototypes 2 x 256 x 65,536 an image, and its MLP. 64 images a GPU.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

L, D, H, IMAGES, CODES, BOTTLENECK, GPUS = 12, 384, 6, 64, 65_536, 256, 8
BIG, SMALL = 197, 37
VIT = lambda t: L * (24 * t * D**2 + 4 * t**2 * D)
HEAD = 2 * (D * BOTTLENECK + BOTTLENECK * CODES)
WORK = Work(IMAGES * (4 * 2 * (VIT(BIG) + HEAD) + 3 * 6 * (VIT(SMALL) + HEAD)))
SHAPES = {"qkv": (L, D, 3 * D), "out": (L, D, D), "up": (L, D, 4 * D), "down": (L, 4 * D, D)}


def layer(x, w):
    norm = lambda x: (
        (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)
    )
    q, k, v = jnp.moveaxis((norm(x) @ w["qkv"]).reshape(*x.shape[:2], 3, H, D // H), 2, 0)
    x += jax.nn.dot_product_attention(q, k, v).reshape(x.shape) @ w["out"]
    return x + jax.nn.gelu(norm(x) @ w["up"]) @ w["down"], None


def logits(params, tokens):
    params = jax.tree.map(lambda w: w.astype(jnp.bfloat16), params)
    x, _ = jax.lax.scan(layer, tokens, params["layers"])
    return (x[:, 0] @ params["neck"] @ params["codes"]).astype(jnp.float32)


def step(student, teacher, center, big, small):
    aim = logits(teacher, big.reshape(-1, BIG, D)).reshape(-1, 2, CODES)
    aim = jax.nn.softmax((aim - center) / 0.04)

    def loss(student):
        views = jnp.concatenate(
            [logits(student, v.reshape(-1, *v.shape[2:])).reshape(*v.shape[:2], CODES)
             for v in (big, small)], 1
        )  # fmt: skip
        scores = jnp.einsum("btc,bsc->bts", aim, jax.nn.log_softmax(views / 0.1))
        return -(scores.sum((1, 2)) - scores[:, 0, 0] - scores[:, 1, 1]).mean()

    new = jax.tree.map(lambda w, g: w - 1e-3 * g, student, jax.grad(loss)(student))
    moved = jax.tree.map(lambda t, s: 0.996 * t + 0.004 * s, teacher, new)
    return new, moved, 0.9 * center + 0.1 * aim.mean((0, 1))


NOTE = "scores of 16 pairs of views are products too, and softmax over 65,536 codes is vector work"


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    array = lambda shape, dtype=jnp.float32, *spec: jax.ShapeDtypeStruct(
        shape, dtype, sharding=NamedSharding(mesh, P(*spec))
    )
    layers = {name: array(shape) for name, shape in SHAPES.items()}
    params = {"layers": layers, "neck": array((D, BOTTLENECK)), "codes": array((BOTTLENECK, CODES))}
    crops = [
        array((IMAGES * GPUS, n, t, D), jnp.bfloat16, "data") for n, t in ((2, BIG), (6, SMALL))
    ]
    return sc.predict_step(
        jax.jit(step, donate_argnums=(0, 1, 2)), params, params, array((CODES,)), *crops,
        cluster="dgx-h100",
    )  # fmt: skip
