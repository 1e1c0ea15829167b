"""Blind: JAX MD, 32,000 Lennard-Jones particles with a neighbour list, 100 steps of NVE.

No products. Bytes: each step reads every particle's list, at least the particles within the cutoff
of 2.5 at the density of 0.8, 52 indices of 4 bytes, and writes positions and velocities
(Schoenholz and Cubuk, arXiv 1912.04232, has the scheme). Counted before it was priced.
"""

import jax
import jax.numpy as jnp
import jax_md
import numpy as np

import scaling as sc
from experiments.foreign.work import Work

NEEDS = "science"
SOURCE = "jax-md 0.2.29"
SIDE, STEPS, DENSITY = 40, 100, 0.8
N = SIDE**3 // 2
BOX = (N / DENSITY) ** (1 / 3)
WORK = Work(bytes=STEPS * N * (52 * 4 + 2 * 2 * 3 * 4))
NOTE = "lists are padded, gathered rows are read again, and a step is some hundred small kernels"


def price() -> sc.Prediction:
    grid = np.stack(np.meshgrid(*[np.arange(SIDE)] * 3, indexing="ij"), -1).reshape(-1, 3)
    start = jnp.asarray(grid[grid.sum(1) % 2 == 0] * BOX / SIDE, jnp.float32)
    displacement, shift = jax_md.space.periodic(BOX)
    lists, energy = jax_md.energy.lennard_jones_neighbor_list(displacement, BOX)
    init, apply = jax_md.simulate.nve(energy, shift, 1e-3)
    neighbours = lists.allocate(start)
    state = jax.eval_shape(
        lambda key: init(key, start, 1.0, neighbor=neighbours), jax.random.key(0)
    )

    def step(_, carry):
        state, neighbours = carry
        neighbours = neighbours.update(state.position)
        return apply(state, neighbor=neighbours), neighbours

    @jax.jit
    def run(state, neighbours):
        return jax.lax.fori_loop(0, STEPS, step, (state, neighbours))

    return sc.predict_step(run, state, neighbours, cluster="dgx-h100")
