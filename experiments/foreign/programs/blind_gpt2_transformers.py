"""Blind: transformers' FlaxGPT2LMHeadModel, GPT-2 124M, 16 sequences of 1024 tokens, AdamW.

FLOPs of a token's forward pass: 12 layers of 24 D^2 + 4 T D (all scores, masked later), the head 2
V D, D = 768, T = 1024, V = 50,257 (Kaplan et al., arXiv 2001.08361, table 1); times three.
Counted, and committed, before it was priced.
"""

import jax
import jax.numpy as jnp
import optax
import transformers

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "others"
SOURCE = f"transformers {transformers.__version__}"
L, D, V, BATCH, T = 12, 768, 50_257, 16, 1024
WORK = Work(3 * BATCH * T * (L * (24 * D**2 + 4 * T * D) + 2 * V * D))

model = transformers.FlaxGPT2LMHeadModel(
    transformers.GPT2Config(), dtype=jnp.bfloat16, _do_init=False
)
optimizer = optax.adamw(1e-4)


def init(key):
    params = model.init_weights(key, (1, 1))
    return params, optimizer.init(params)


@jax.jit
def step(params, state, tokens, key):
    def loss(params):
        logits = model(tokens, params=params, dropout_rng=key, train=True).logits
        return optax.softmax_cross_entropy_with_integer_labels(
            logits[:, :-1].astype(jnp.float32), tokens[:, 1:]
        ).mean()

    updates, state = optimizer.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


def price() -> sc.Prediction:
    state, key = jax.eval_shape(init, jax.random.key(0)), jax.random.key(0)
    tokens = jax.ShapeDtypeStruct((BATCH, T), jnp.int32)
    return sc.predict_step(step, *state, tokens, key, cluster="dgx-h100")
