"""Bonsai's Mamba-2 130M in Flax NNX, a training step on 8 sequences of 2048 tokens, float32, AdamW.

FLOPs of a token (Dao and Gu, arXiv 2405.21060, section 6): a layer's projections
2 D (2 I + 2 N + H) and 2 I D; within a chunk of Q tokens C B^T 2 Q N H and its product with x
2 Q P H (the code repeats B and C for every head, and masks later); states 2 N P H, their sum over
the chunks 2 (T / Q + 1)^2 N P H / T, their read-out 2 N P H. 24 layers,
D = 768, I = 1536, N = 128, H = 24 heads of P = 64, Q = 256; the head 2 V D; times
three. Counted before pricing.
"""

import jax
import jax.numpy as jnp
import optax
from bonsai.models.mamba2 import modeling
from flax import nnx

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "gemma"
SOURCE = "jax-ml/bonsai at 3628425"
L, D, I, N, H, P, Q, V, BATCH, T = 24, 768, 1536, 128, 24, 64, 256, 50_280, 8, 2048
CHUNKS = 2 * Q * (N + P) * H + 4 * N * P * H + 2 * (T / Q + 1) ** 2 * N * P * H / T
LAYER = 2 * D * (2 * I + 2 * N + H) + 2 * I * D + CHUNKS
WORK = Work(3 * BATCH * T * (L * LAYER + 2 * V * D), dtype="tf32")


def make():
    model = modeling.Mamba2ForCausalLM(modeling.ModelConfig(), rngs=nnx.Rngs(0))
    return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)


@nnx.jit
def step(model, optimizer, tokens):
    optimizer.update(model, nnx.grad(lambda model: model(tokens, tokens)["loss"])(model))


def price() -> sc.Prediction:
    tokens = jax.ShapeDtypeStruct((BATCH, T), jnp.int32)
    return sc.predict_step(step, *nnx.eval_shape(make), tokens, cluster="dgx-h100")
