"""Blind: big_vision's SigLIP, two towers B/16 at 256 x 256 and 64 tokens, 16,384 pairs, 64 GPUs.

Its towers, optimizer and FSDP rule as in trainers/proj/image_text/siglip.py, whose step is inside
of its `main`; Adafactor with momentum in bfloat16, as its configurations have it.

FLOPs of a tower's token (Zhai et al., arXiv 2303.15343; B is D = 768, F = 3072, 12 layers): a layer
2 (4 D^2 + 2 D F) + 4 T D; three times, and again, checkpointed, but for its last product. Patches
twice (pixels need no gradient); the pooling head (keys and values 4 D^2 of T tokens, of one token
4 D^2, 4 T D and 4 D F) and the text's 2 D^2 three times; the pairs' logits, 2 D for each of a
GPU's rows and all columns, three times. Counted, and committed, before it was priced.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import optax
from big_vision import optax as bv_optax
from big_vision import sharding as bv_sharding
from big_vision.models.proj.image_text import two_towers
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "google-research/big_vision at 0127fb6"
L, D, F, V, SIDE, WORDS, PAIRS, GPUS = 12, 768, 3072, 32_000, 256, 64, 16_384, 64
PATCHES = (SIDE // 16) ** 2


def layers(tokens: int) -> float:
    """Products of a tower's layers, of one image or text, with gradients and once again."""
    layer = tokens * (2 * (4 * D**2 + 2 * D * F) + 4 * tokens * D)
    return L * (4 * layer - 2 * tokens * D * F)


STEM = 2 * PATCHES * 16 * 16 * 3 * D
POOL = PATCHES * (4 * D**2 + 4 * D) + 4 * D**2 + 4 * D * F
PAIR = layers(PATCHES) + layers(WORDS) + 2 * STEM + 3 * (POOL + 2 * D**2 + 2 * D * PAIRS)
TOWERS = 2 * L * (4 * D**2 + 2 * D * F)  # weights
WEIGHTS = TOWERS + 16 * 16 * 3 * D + 4 * D**2 + 2 * D * F + (V + PATCHES + WORDS + D) * D
# float32 weights and momentum in bfloat16, over all GPUs
WORK = Work(PAIRS / GPUS * PAIR, state=6 * WEIGHTS / GPUS)
CONFIG = ml_collections.ConfigDict(
    {
        "optax_name": "big_vision.scale_by_adafactor", "lr": 1e-3, "wd": 1e-4,
        "grad_clip_norm": 1.0, "schedule": {"decay_type": "cosine", "warmup_steps": 10_000},
    }
)  # fmt: skip
model = two_towers.Model(
    image={"variant": "B/16", "pool_type": "map", "scan": True, "dtype_mm": "bfloat16"},
    text={"variant": "B", "vocab_size": V, "scan": True},
    out_dim=(None, D), temperature_init=10.0, bias_init=-10.0,
)  # fmt: skip


def loss(params, images, texts):
    image, text, more = model.apply({"params": params}, images, texts, train=True)
    logits = image @ text.T * more["t"] + more["b"]
    signs = 2 * jnp.eye(len(image)) - 1
    return -jax.nn.log_sigmoid(signs * logits).sum(-1).mean()


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=64", cluster="dgx-h100", nodes=8)
    place = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    rows = NamedSharding(mesh, P("data"))
    images = jax.ShapeDtypeStruct((PAIRS, SIDE, SIDE, 3), jnp.float32, sharding=rows)
    texts = jax.ShapeDtypeStruct((PAIRS, WORDS), jnp.int32, sharding=rows)
    init = lambda *batch: model.init(jax.random.key(0), *batch)["params"]
    params = jax.eval_shape(init, images, texts)
    schedule = {"total_steps": 100_000, "batch_size": PAIRS, "data_size": 10**9}
    optimizer, _ = bv_optax.make(CONFIG, params, sched_kw=schedule)
    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
    where = bv_sharding.infer_sharding(state, [(".*", 'fsdp(axis="data")')], mesh)
    state = jax.tree.map(place, state, where)

    def step(state, images, texts):
        value, gradients = jax.value_and_grad(loss)(state["params"], images, texts)
        updates, opt = optimizer.update(gradients, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value

    jitted = jax.jit(step, donate_argnums=0, out_shardings=(where, NamedSharding(mesh, P())))
    with mesh, nn.logical_axis_rules([("act_batch", "data")]):
        return sc.predict_step(jitted, state, images, texts, cluster="dgx-h100")
