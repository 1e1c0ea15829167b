"""A heat equation on 32,768 x 32,768 points over 8 x 8 GPUs: 1000 steps, halos by ppermute.

No products. Bytes: each step reads and writes every point of a GPU, 2 x 4 x 4096^2.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

SIZE, SIDE, STEPS = 32_768, 8, 1000
UP, DOWN = ([(i, (i + d) % SIDE) for i in range(SIDE)] for d in (1, -1))


def around(x, axis, dim):
    last = jax.lax.slice_in_dim(x, x.shape[dim] - 1, x.shape[dim], axis=dim)
    before = jax.lax.ppermute(last, axis, UP)
    after = jax.lax.ppermute(jax.lax.slice_in_dim(x, 0, 1, axis=dim), axis, DOWN)
    n = x.shape[dim]
    wide = jnp.concatenate([before, x, after], dim)
    return jax.lax.slice_in_dim(wide, 0, n, axis=dim) + jax.lax.slice_in_dim(
        wide, 2, n + 2, axis=dim
    )


def run(x):
    step = lambda _, x: x + 0.1 * (around(x, "rows", 0) + around(x, "columns", 1) - 4 * x)
    return jax.lax.fori_loop(0, STEPS, step, x)


WORK = Work(bytes=STEPS * 2 * 4 * (SIZE / SIDE) ** 2)


def price() -> sc.Prediction:
    mesh, spec = sc.device_mesh("rows=8,columns=8", cluster="dgx-h100"), P("rows", "columns")
    step = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec), donate_argnums=0)
    x = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32, sharding=NamedSharding(mesh, spec))
    return sc.predict_step(step, x, cluster="dgx-h100")
