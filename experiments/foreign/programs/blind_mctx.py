"""Blind: mctx's Gumbel MuZero, 1024 boards, 32 simulations, an MLP of width 1024.

FLOPs of a simulation and board: the step of the model (256 + 64 actions) x 1024 + 1024^2 + 1024 x
256, its policy and value 256 x 65; once more policy and value at the root (Danihelka et al., ICLR
2022). float32 as tf32. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import mctx

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "science"
SOURCE = "mctx 0.0.71"
BOARDS, SIMULATIONS, STATE, WIDTH, ACTIONS = 1024, 32, 256, 1024, 64
MODEL = (STATE + ACTIONS) * WIDTH + WIDTH**2 + WIDTH * STATE
HEADS = STATE * (ACTIONS + 1)
WORK = Work(2 * BOARDS * (SIMULATIONS * (MODEL + HEADS) + HEADS), dtype="tf32")
SHAPES = [(STATE + ACTIONS, WIDTH), (WIDTH, WIDTH), (WIDTH, STATE), (STATE, ACTIONS + 1)]
NOTE = "walks down the tree are loops of small kernels, bound by launches"


def heads(weights, state):
    out = state @ weights[3]
    return out[:, :-1], jnp.tanh(out[:, -1])


def recurrent(weights, _, action, state):
    x = jnp.concatenate([state, jax.nn.one_hot(action, ACTIONS)], -1)
    for w in weights[:3]:
        x = jax.nn.relu(x @ w)
    logits, value = heads(weights, x)
    fill = jnp.full_like(value, 0.99)
    return mctx.RecurrentFnOutput(
        reward=value * 0, discount=fill, prior_logits=logits, value=value
    ), x


@jax.jit
def search(weights, state, key):
    logits, value = heads(weights, state)
    root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=state)
    out = mctx.gumbel_muzero_policy(weights, key, root, recurrent, SIMULATIONS)
    return out.action, out.action_weights


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.float32)
    weights, key = [array(*shape) for shape in SHAPES], jax.eval_shape(jax.random.key, 0)
    return sc.predict_step(search, weights, array(BOARDS, STATE), key, cluster="dgx-h100")
