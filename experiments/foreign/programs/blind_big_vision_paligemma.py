"""Blind: big_vision's PaliGemma 3B, all of it tuned on 224 x 224 and 128 tokens, 64 pairs, 8 GPUs.

Model, optimizer and FSDP rule as in trainers/proj/paligemma/train.py, whose step is inside of its
`main`. FLOPs (Beyer et al., arXiv 2407.07726): SigLIP So400m/14 of 27 layers, D = 1152, F = 4304,
256 patches: a token's layer 2 (4 D^2 + 2 D F) + 4 T D, the patches 2 (14^2 3) D and the map to the
words' space 2 D E; Gemma of 18 layers, E = 2048, 8 heads of 256 and one of keys and values,
G = 16,384, T = 256 + 127 tokens: 2 (2 E^2 + 2 E 256 + 3 E G) + 4 T E; the head 2 E V of the 127.
Three times (patches twice), and layers again, checkpointed, but for their last products. Weights,
float32, multiplied as they are; momentum in bfloat16. Counted, and committed, before it was priced.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import optax
from big_vision import optax as bv_optax
from big_vision import sharding as bv_sharding
from big_vision.models.proj.paligemma import paligemma
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "google-research/big_vision at 0127fb6"
D, F, E, G, K, V, PATCHES, WORDS, ROWS, GPUS = (
    1152, 4304, 2048, 16_384, 256, 257_152, 256, 127, 64, 8
)  # fmt: skip
T = PATCHES + WORDS
SEEN = PATCHES * (2 * (4 * D**2 + 2 * D * F) + 4 * PATCHES * D)
READ = T * (2 * (2 * E**2 + 2 * E * K + 3 * E * G) + 4 * T * E)
LAYERS = 27 * (4 * SEEN - PATCHES * 2 * D * F) + 18 * (4 * READ - T * 2 * E * G)
OTHERS = PATCHES * (2 * 2 * 14 * 14 * 3 * D + 3 * 2 * D * E) + 3 * 2 * WORDS * E * V
WEIGHTS = (
    27 * (4 * D**2 + 2 * D * F) + 18 * (2 * E**2 + 2 * E * K + 3 * E * G)
    + (14 * 14 * 3 + PATCHES + E) * D + V * E
)  # fmt: skip
WORK = Work(ROWS / GPUS * (LAYERS + OTHERS), dtype="tf32", state=6 * WEIGHTS / GPUS)
CONFIG = ml_collections.ConfigDict(
    {
        "optax_name": "big_vision.scale_by_adafactor", "lr": 1e-5, "wd": 1e-6,
        "grad_clip_norm": 1.0, "schedule": {"decay_type": "cosine", "warmup_percent": 0.05},
    }
)  # fmt: skip
model = paligemma.Model(
    img={"variant": "So400m/14", "pool_type": "none", "scan": True},
    llm={"vocab_size": 256_000 + 1024 + 128},
)


def loss(params, images, texts, causal):
    logits, _ = model.apply(
        {"params": params}, images, texts[:, :-1], causal[:, :-1], train=True,
        rngs={"dropout": jax.random.key(0)},
    )  # fmt: skip
    picked = jax.nn.log_softmax(logits) * jax.nn.one_hot(texts[:, 1:], V)
    return -picked.sum(-1).mean()


def price() -> sc.Prediction:
    mesh = sc.device_mesh("data=8", cluster="dgx-h100")
    place = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    rows = NamedSharding(mesh, P("data"))
    images = jax.ShapeDtypeStruct((ROWS, 224, 224, 3), jnp.float32, sharding=rows)
    tokens = jax.ShapeDtypeStruct((ROWS, WORDS + 1), jnp.int32, sharding=rows)
    init = lambda *batch: model.init(jax.random.key(0), *batch)["params"]
    params = jax.eval_shape(init, images, tokens, tokens)
    schedule = {"total_steps": 10_000, "batch_size": ROWS, "data_size": 10**6}
    optimizer, _ = bv_optax.make(CONFIG, params, sched_kw=schedule)
    state = {"params": params, "opt": jax.eval_shape(optimizer.init, params)}
    where = bv_sharding.infer_sharding(state, [(".*", 'fsdp(axis="data")')], mesh)
    state = jax.tree.map(place, state, where)

    def step(state, *batch):
        value, gradients = jax.value_and_grad(loss)(state["params"], *batch)
        updates, opt = optimizer.update(gradients, state["opt"], state["params"])
        return {"params": optax.apply_updates(state["params"], updates), "opt": opt}, value

    jitted = jax.jit(step, donate_argnums=0, out_shardings=(where, NamedSharding(mesh, P())))
    with mesh, nn.logical_axis_rules([("act_batch", "data")]):
        return sc.predict_step(jitted, state, images, tokens, tokens, cluster="dgx-h100")
