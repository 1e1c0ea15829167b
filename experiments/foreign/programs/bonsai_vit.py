"""Bonsai's ViT-B/16 in Flax NNX, its own jitted forward pass, 128 images of 224 x 224 in float32.

FLOPs of an image, T = 197 tokens: 12 layers of 24 T D^2 + 4 T^2 D, patches 2 x 196 x 768 D, the
classifier 2 x 1000 D (arXiv 2010.11929, table 1). Counted before pricing.
"""

import jax
import jax.numpy as jnp
from bonsai.models.vit import modeling
from flax import nnx

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "jax-ml/bonsai at 3628425"
IMAGES, LAYERS, D, T = 128, 12, 768, 197
IMAGE = LAYERS * (24 * T * D**2 + 4 * T**2 * D) + 2 * 196 * 768 * D + 2 * 1000 * D
WORK = Work(IMAGES * IMAGE, dtype="tf32")


def make():
    config = modeling.ModelConfig.vit_p16_224()
    return modeling.ViTClassificationModel(config, rngs=nnx.Rngs(0))


def price() -> sc.Prediction:
    graph, weights = nnx.split(nnx.eval_shape(make))
    images = jax.ShapeDtypeStruct((IMAGES, 224, 224, 3), jnp.float32)
    return sc.predict_step(modeling.forward, graph, weights, images, None, cluster="dgx-h100")
