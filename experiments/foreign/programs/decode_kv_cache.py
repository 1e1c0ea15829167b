"""One token of 64 sequences of a Llama-2 13B in plain JAX, tensor-parallel over 8, cache of 4096.

Bytes: a GPU reads its eighth of the weights (40 layers of 4 D^2 + 3 D F, the head V D, in bf16) and
of the cache (2 x 64 x 4096 x D x 40 values). FLOPs: 2 x those weights x 64; attention,
a row of queries against the cache, is no product of matrices.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

L, D, H, F, V, BATCH, T, GPUS = 40, 5120, 40, 13_824, 32_000, 64, 4096, 8
K = D // H
WEIGHTS = {  # shape, sharding
    "qkv": ((L, D, 3, H, K), P(None, None, None, "model")),
    "out": ((L, H, K, D), P(None, "model")),
    "gate": ((L, D, F), P(None, None, "model")),
    "up": ((L, D, F), P(None, None, "model")),
    "down": ((L, F, D), P(None, "model")),
}


def layer(carry, this):
    (x, position), (w, keys, values) = carry, this
    q, k, v = jnp.moveaxis(jnp.einsum("bd,dnhk->bnhk", x, w["qkv"]), 1, 0)
    keys = jax.lax.dynamic_update_slice_in_dim(keys, k[:, None], position, 1)
    values = jax.lax.dynamic_update_slice_in_dim(values, v[:, None], position, 1)
    scores = jnp.einsum("bhk,bthk->bht", q, keys).astype(jnp.float32) / K**0.5
    weights = jax.nn.softmax(jnp.where(jnp.arange(T) <= position, scores, -1e30))
    read = jnp.einsum("bht,bthk->bhk", weights.astype(x.dtype), values)
    x += jnp.einsum("bhk,hkd->bd", read, w["out"])
    x += (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
    return (x, position), (keys, values)


def decode(weights, embed, cache, tokens, position):
    x = embed[tokens]
    (x, _), cache = jax.lax.scan(layer, (x, position), (weights, *cache))
    return jnp.argmax(x @ embed.T, -1), cache


PARAMETERS = L * (4 * D**2 + 3 * D * F) + V * D
CACHE = 2 * L * BATCH * T * D
WORK = Work(2 * BATCH * PARAMETERS / GPUS, 2 * (PARAMETERS + CACHE) / GPUS)
NOTE = "a cache that a scan returns layer by layer is a new one: XLA writes and copies it whole"


def price() -> sc.Prediction:
    mesh = sc.device_mesh("model=8", cluster="dgx-h100")
    on = lambda spec: NamedSharding(mesh, spec)
    array = lambda shape, spec, dtype=jnp.bfloat16: jax.ShapeDtypeStruct(
        shape, dtype, sharding=on(spec)
    )
    weights = {name: array(*of) for name, of in WEIGHTS.items()}
    cache = (array((L, BATCH, T, H, K), P(None, None, None, "model")),) * 2
    tokens, position = array((BATCH,), P(), jnp.int32), array((), P(), jnp.int32)
    return sc.predict_step(
        jax.jit(decode, donate_argnums=2), weights, array((V, D), P("model")), cache, tokens,
        position, cluster="dgx-h100", tokens=BATCH,
    )  # fmt: skip
