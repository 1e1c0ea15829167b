"""A pipeline by shard_map and ppermute: 8 stages on 8 GPUs, 32 microbatches, forward.

Every stage runs in each of 32 + 7 turns, the idle ones on zeros: FLOPs are 39 x 2 layers x 2 x rows
x 2 D F of one GPU (Huang et al., arXiv 1811.06965, has the schedule).
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

STAGES, MICROBATCHES, ROWS, D, F, LAYERS = 8, 32, 4096, 4096, 16_384, 2
TURNS = MICROBATCHES + STAGES - 1


def pipeline(weights, x):
    stage = jax.lax.axis_index("stage")
    hand_on = [(i, (i + 1) % STAGES) for i in range(STAGES)]

    def mlp(x, w):
        return x + jax.nn.relu(x @ w[0]) @ w[1], None

    def turn(carry, i):
        took = jnp.where(stage == 0, x[jnp.minimum(i, MICROBATCHES - 1)], carry)
        made, _ = jax.lax.scan(mlp, took, weights)
        return jax.lax.ppermute(made, "stage", hand_on), made

    start = jax.lax.pcast(jnp.zeros_like(x[0]), "stage", to="varying")
    _, made = jax.lax.scan(turn, start, jnp.arange(TURNS))
    return made[None, STAGES - 1 :]


WORK = Work(TURNS * LAYERS * 2 * ROWS * 2 * D * F)


def price() -> sc.Prediction:
    mesh = sc.device_mesh("stage=8", cluster="dgx-h100")
    step = jax.shard_map(pipeline, mesh=mesh, in_specs=(P("stage"), P()), out_specs=P("stage"))
    array = lambda shape, *spec: jax.ShapeDtypeStruct(
        shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec))
    )
    n = STAGES * LAYERS
    weights = array((n, D, F), "stage"), array((n, F, D), "stage")
    x = array((MICROBATCHES, ROWS, D))
    return sc.predict_step(jax.jit(step), weights, x, cluster="dgx-h100")
