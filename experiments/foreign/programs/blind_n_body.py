"""Blind: 65,536 bodies, all pairs by rows, 20 leapfrog steps on 8 GPUs with an all-gather, float32.

No matrix products. Bytes: positions of all bodies are gathered and read, own ones updated, 4 x 3
x 4 N a step. The arithmetic, 20 operations a pair (Nyland et al., GPU Gems 3, chapter 31), is of
the vector units and not counted here. Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

N, GPUS, STEPS, CHUNK, DT = 65_536, 8, 20, 64, 1e-3
WORK = Work(bytes=STEPS * 4 * 3 * 4 * N)


def pull(position, everybody):
    offset = everybody - position[:, None]
    near = jnp.square(offset).sum(-1) + 1e-3
    return (offset * (near**-1.5)[..., None]).sum(1)


def run(x, v):
    def step(_, carry):
        x, v = carry
        everybody = jax.lax.all_gather(x, "bodies", tiled=True)
        force = jax.lax.map(lambda part: pull(part, everybody), x.reshape(-1, CHUNK, 3))
        v += DT * force.reshape(x.shape)
        return x + DT * v, v

    return jax.lax.fori_loop(0, STEPS, step, (x, v))


NOTE = "the least is of bytes; the pairs are vector arithmetic, a hundred times as much"


def price() -> sc.Prediction:
    mesh, spec = sc.device_mesh("bodies=8", cluster="dgx-h100"), P("bodies")
    step = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec))
    x = jax.ShapeDtypeStruct((N, 3), jnp.float32, sharding=NamedSharding(mesh, spec))
    return sc.predict_step(step, x, x, cluster="dgx-h100")
