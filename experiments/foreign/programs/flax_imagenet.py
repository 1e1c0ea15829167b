"""Flax's own example, examples/imagenet: its train_step under pmap, ResNet-50, 8 GPUs.

Its configuration for 8 V100: 2048 images of 224 x 224, float16, a dynamic scale of the loss.
FLOPs as in resnet50_pmap (He et al., arXiv 1512.03385, table 1). Counted before pricing.
"""

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp

# This repository, from which the collection runs, has a folder `models` too.
sys.path.insert(0, str(Path(find_spec("input_pipeline").origin).parent))
import train
from configs import v100_x8_mixed_precision

import scaling as sc
from experiments.foreign.programs.resnet50_pmap import IMAGES, flops
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "google/flax at 18f8f31"
GPUS, BATCH = 8, 256  # images of a GPU
WORK = Work(flops() * BATCH / IMAGES)


def step_and_state():
    """As in the example's train_and_evaluate, without its data."""
    config = v100_x8_mixed_precision.get_config()
    model = train.create_model(
        model_cls=train.models.ResNet50, half_precision=config.half_precision
    )
    rate = train.create_learning_rate_fn(config, config.learning_rate * 8, steps_per_epoch=625)
    state = train.create_train_state(jax.random.key(0), config, model, 224, rate)
    step = partial(train.train_step, learning_rate_fn=rate)
    return jax.pmap(step, in_axes=(None, 0), out_axes=(None, 0), axis_name="batch"), state


def price() -> sc.Prediction:
    array = lambda dtype, *shape: jax.ShapeDtypeStruct((GPUS, BATCH, *shape), dtype)
    batch = {"image": array(jnp.float16, 224, 224, 3), "label": array(jnp.int32)}
    with sc.pretend("dgx-h100"):
        step, state = step_and_state()
        return sc.predict_step(step, state, batch, cluster="dgx-h100")
