"""Blind: speculative decoding: a draft of 4 layers proposes 5 tokens, 32 layers judge them.

FLOPs a token of a model: 2 x its weights, 32 sequences; the draft 5 times one token, the model
once 6 tokens (Leviathan et al., arXiv 2211.17192, algorithm 1). Bytes: the model's weights once,
the draft's 5 times. No cache is read here: only layers of dense products. Counted before it was
priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, GUESSES, V, D, DRAFT_D, LAYERS, DRAFT_LAYERS = 32, 5, 32_000, 4096, 1024, 32, 4
MODEL, DRAFT = LAYERS * 8 * D**2 + V * D, DRAFT_LAYERS * 8 * DRAFT_D**2 + V * DRAFT_D
WORK = Work(2 * BATCH * ((GUESSES + 1) * MODEL + GUESSES * DRAFT), 2 * (MODEL + GUESSES * DRAFT))


def forward(params, tokens):
    mlp = lambda x, w: (x + jax.nn.gelu(x @ w[0]) @ w[1], None)
    x, _ = jax.lax.scan(mlp, params["embed"][tokens], params["layers"])
    return (x @ params["embed"].T).astype(jnp.float32)


@jax.jit
def propose_and_check(model, draft, last, key):
    def guess(carry, key):
        logits = forward(draft, carry)
        token = jax.random.categorical(key, logits)
        return token, (token, jax.nn.softmax(logits))

    keys = jax.random.split(key, GUESSES + 1)
    _, (tokens, q) = jax.lax.scan(guess, last, keys[1:])
    p = jax.nn.softmax(forward(model, jnp.concatenate([last[None], tokens])))
    take = lambda x: jnp.take_along_axis(x, tokens[..., None], -1)[..., 0]
    accepted = jax.random.uniform(keys[0], tokens.shape) < take(p[:-1]) / take(q)
    return tokens, jnp.cumprod(accepted, 0).sum(0)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    params = lambda n, d: {
        "embed": array(V, d), "layers": (array(n, d, 4 * d), array(n, 4 * d, d))
    }  # fmt: skip
    key = jax.eval_shape(jax.random.key, 0)
    last = jax.ShapeDtypeStruct((BATCH,), jnp.int32)
    return sc.predict_step(
        propose_and_check, params(LAYERS, D), params(DRAFT_LAYERS, DRAFT_D), last, key,
        cluster="dgx-h100",
    )  # fmt: skip
