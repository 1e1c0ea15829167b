"""AdamW (arXiv 1711.05101) with warm-up, cosine decay and clipping of the global gradient norm.

rate(step)  rises linearly to `learning_rate` over `warmup_steps`,
            then falls along a cosine to a tenth of it at `steps`
"""

import jax
import optax
from flax import nnx

from models.weights import is_matrix
from scaling.run import Train

BETA_1, BETA_2, EPSILON = (
    0.9,
    0.95,
    1e-8,
)  # GPT-3 (arXiv 2005.14165, appendix B), Llama (2302.13971)
FINAL_RATE = 0.1  # of the peak, GPT-3 and Llama likewise


def schedule(train: Train) -> optax.Schedule:
    """Learning rate as a function of the number of finished steps."""
    warmup = min(train.warmup_steps, train.steps)
    return optax.warmup_cosine_decay_schedule(
        init_value=train.learning_rate / (warmup + 1) if warmup else train.learning_rate,
        peak_value=train.learning_rate,
        warmup_steps=warmup,
        decay_steps=max(train.steps, warmup + 1),
        end_value=train.learning_rate * FINAL_RATE,
    )


def make_optimizer(train: Train) -> optax.GradientTransformation:
    """Clip (unless `clip_norm` is 0), then AdamW; norms and biases are not decayed."""
    clip = [optax.clip_by_global_norm(train.clip_norm)] if train.clip_norm else []
    return optax.chain(
        *clip,
        optax.adamw(
            schedule(train),
            b1=BETA_1,
            b2=BETA_2,
            eps=EPSILON,
            weight_decay=train.weight_decay,
            mask=decayed,
        ),
    )


def decayed(params: nnx.Module) -> nnx.Module:
    """A tree of booleans in place of parameters: whether weight decay applies."""
    return jax.tree.map(is_matrix, params, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))
