"""DeepMind's gemma from PyPI: a step of Gemma 3 1B under Kauldron's trainer, FSDP over 8 GPUs.

FLOPs of a token's forward pass (Gemma Team, arXiv 2503.19786, and the package's configuration): 26
layers of 2 D (H K + 2 K + H K) + 6 D F + 4 T H K, D = 1152, H = 4 heads of K = 256 and one of keys
and values, F = 6912; the head 2 V D, V = 262,144; times three, as nothing is computed again. The
attention is einsums over all T x T scores, those outside the windows too. Counted before pricing.
"""

import jax
import jax.numpy as jnp
import optax
from gemma import gm
from kauldron import kd

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
L, D, H, K, F, V, T, BATCH, GPUS = 26, 1152, 4, 256, 6912, 262_144, 1024, 16, 8
TOKEN = L * (2 * D * (2 * H * K + 2 * K) + 6 * D * F + 4 * T * H * K) + 2 * V * D
WORK = Work(3 * BATCH * T / GPUS * TOKEN)


def trainer():
    """As in the package's example of finetuning, with all weights sharded."""
    return kd.train.Trainer(
        workdir="unused",
        train_ds=None,
        model=gm.nn.Gemma3_1B(tokens="batch.input"),
        train_losses={
            "xentropy": kd.losses.SoftmaxCrossEntropyWithIntLabels(
                logits="preds.logits", labels="batch.target", mask="batch.loss_mask"
            )
        },
        optimizer=optax.adafactor(1e-3),
        sharding=kd.sharding.ShardingStrategy(params=kd.sharding.FSDPSharding()),
    )


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.int32)
    batch = {
        "input": array(BATCH, T),
        "target": array(BATCH, T, 1),
        "loss_mask": array(BATCH, T, 1),
    }
    laid = kd.sharding.with_sharding_constraint
    with sc.pretend("dgx-h100"):
        train = trainer()
        state = jax.eval_shape(lambda: train.init_state(element_spec=batch))
        state, batch = laid(state, train.sharding.state), laid(batch, train.sharding.batch)
        lowered = train.trainstep.step.lower(train.trainstep, state, batch)
    return sc.predict_step(lowered, cluster="dgx-h100")
