"""Levanter from PyPI: the Trainer's own step for GPT-2 1.5B, FSDP over 64 GPUs, 512 sequences.

FLOPs: a token's forward pass is 2 x (48 layers of 12 D^2) + 4 L T D + 2 V D, D = 1600, T = 1024
(Kaplan et al., arXiv 2001.08361, table 1); three times with gradients, and the layers' forward pass
again (Levanter checkpoints every layer), but for each layer's last product, 8 D^2.
"""

import equinox as eqx
import haliax as hax
import jax
import jmp
from jax._src.numpy import reductions
from levanter.models.gpt2 import Gpt2Config
from levanter.models.lm_model import LmExample, compute_next_token_loss
from levanter.optim import AdamConfig
from levanter.tracker import NoopConfig
from levanter.trainer import Trainer, TrainerConfig

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "levanter"
# The newest Levanter hands means a mask of floats, which jax 0.9 and later refuse on any device.
reductions.check_where = lambda _, mask: None if mask is None else mask.astype(bool)
L, D, HEADS, T, V, BATCH, GPUS = 48, 1600, 25, 1024, 50_304, 512, 64
LAYERS = L * (24 * D**2 + 4 * T * D)
WORK = Work(BATCH * T / GPUS * (4 * LAYERS - 8 * L * D**2 + 3 * 2 * V * D))


def examples(axes):
    return hax.vmap(LmExample.causal, axes[0])(hax.zeros(axes, dtype=int))


def trainer_and_state():
    """What Levanter's train_lm does before its first step."""
    config = TrainerConfig(
        id="priced", mp=jmp.get_policy("p=f32,c=bfloat16"), train_batch_size=BATCH,
        tracker=NoopConfig(), require_accelerator=False, load_checkpoint=False,
    )  # fmt: skip
    model = Gpt2Config(seq_len=T, hidden_dim=D, num_layers=L, num_heads=HEADS)
    trainer = Trainer(
        config, AdamConfig().build(1000), compute_next_token_loss, add_default_hooks=False
    )
    key = jax.random.PRNGKey(0)
    with trainer:
        state = trainer.initial_state(
            key, model_init=lambda: model.build(hax.Axis("vocab", V), key=key)
        )
        batch = eqx.filter_eval_shape(examples, (trainer.TrainBatch, model.Pos))
    return trainer, state, batch


def price() -> sc.Prediction:
    with sc.pretend("dgx-h100", nodes=8):
        trainer, state, batch = trainer_and_state()
        with trainer:
            step = eqx.filter_jit(
                lambda state, batch: trainer._train_step(state, (batch,), {}, _no_hooks=True),
                donate="all",
            )
            return sc.predict_step(step, state, batch, cluster="dgx-h100", nodes=8)
