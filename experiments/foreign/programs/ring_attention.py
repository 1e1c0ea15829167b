"""Ring attention by shard_map and ppermute: 131,072 tokens over 64 GPUs, 8 heads of 128, forward.

FLOPs: every GPU multiplies its 2048 queries with all 131,072 keys and averages all values,
4 x 2048 x 131,072 x 8 x 128 (Liu et al., arXiv 2310.01889); no mask.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

T, GPUS, H, K = 131_072, 64, 8, 128


def ring(q, k, v):
    def turn(carry, _):
        k, v, total, scale, top = carry
        scores = jnp.einsum("qhk,thk->hqt", q, k, preferred_element_type=jnp.float32) / K**0.5
        highest = jnp.maximum(top, scores.max(-1))
        weights, keep = jnp.exp(scores - highest[..., None]), jnp.exp(top - highest)
        read = jnp.einsum("hqt,thk->hqk", weights.astype(v.dtype), v)
        total = total * keep[..., None] + read
        k, v = jax.lax.ppermute((k, v), "ring", [(i, (i + 1) % GPUS) for i in range(GPUS)])
        return (k, v, total, scale * keep + weights.sum(-1), highest), None

    zeros = jax.lax.pcast(jnp.zeros((H, T // GPUS)), "ring", to="varying")
    total = jax.lax.pcast(jnp.zeros((H, T // GPUS, K)), "ring", to="varying")
    _, _, total, scale, _ = jax.lax.scan(turn, (k, v, total, zeros, zeros - 1e30), length=GPUS)[0]
    return (total / scale[..., None]).astype(q.dtype).swapaxes(0, 1)


WORK = Work(4 * T / GPUS * T * H * K)
NOTE = "scores of each block are written and read in float32: no fused attention"


def price() -> sc.Prediction:
    mesh = sc.device_mesh({"ring": GPUS}, cluster="dgx-h100")
    step = jax.shard_map(ring, mesh=mesh, in_specs=P("ring"), out_specs=P("ring"))
    q = jax.ShapeDtypeStruct((T, H, K), jnp.bfloat16, sharding=NamedSharding(mesh, P("ring")))
    return sc.predict_step(jax.jit(step), q, q, q, cluster="dgx-h100")
