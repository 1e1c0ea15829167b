"""Blind: Tunix's PeftTrainer and its Qwen3-4B, all weights trained, fsdp=4, tp=2, 16 x 2048 tokens.

FLOPs of a token forward: 36 layers of 2 (D (32 + 2 x 8) 128 + 32 x 128 D + 3 D F) + 4 T 32 x 128
(all scores, masked later), the head 2 V D, with D = 2560, F = 9728, V = 151,936; three times,
over 8 GPUs. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from tunix.models.qwen3 import model as qwen3
from tunix.sft import peft_trainer

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "tunix"
SOURCE = "google-tunix 0.1.7"
L, D, F, V, T, ROWS = 36, 2560, 9728, 151_936, 2048, 16
LAYER = 2 * (D * (32 + 2 * 8) * 128 + 32 * 128 * D + 3 * D * F) + 4 * T * 32 * 128
WORK = Work(3 * ROWS * T / 8 * (L * LAYER + 2 * V * D))
config = qwen3.ModelConfig.qwen3_4b()
config.dtype = config.param_dtype = jnp.bfloat16
config.remat_config = qwen3.RematConfig.NONE


@nnx.jit
def create():
    model = qwen3.Qwen3(config, rngs=nnx.Rngs(0))
    state = nnx.state(model)
    nnx.update(model, jax.lax.with_sharding_constraint(state, nnx.get_partition_spec(state)))
    return model


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100"):
        mesh = jax.make_mesh((4, 2), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        with mesh:
            training = peft_trainer.TrainingConfig(eval_every_n_steps=100)
            trainer = peft_trainer.PeftTrainer(create(), optax.adamw(1e-5), training)
            step, _ = trainer.jit_train_and_eval_step()
            rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("fsdp"))
            array = lambda *shape, dtype=jnp.int32: jax.ShapeDtypeStruct(
                shape, dtype, sharding=rows
            )
            tokens = array(ROWS, T)
            masks = array(ROWS, T, dtype=bool), array(ROWS, T, T, dtype=bool)
            batch = dict(
                zip(("input_tokens", "positions", "input_mask", "attention_mask"),
                    (tokens, tokens, *masks), strict=True)
            )  # fmt: skip
            return sc.predict_step(step.func, *step.args, batch, cluster="dgx-h100")
