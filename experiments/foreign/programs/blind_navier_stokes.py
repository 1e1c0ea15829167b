"""Blind: a pseudo-spectral Navier-Stokes solver on 512^3 points, slabs on 8 GPUs, RK2, 5 steps.

No products. A right side transforms 3 velocities to points, 3 products back: 9 transforms of three
axes with (u x vorticity): 6 out, 3 in. Each axis reads and writes a slab of 512^3/8 complex64 at
least once (Cooley-Tukey in one pass). Bytes: 5 steps x 2 stages x 9 x 3 x 2 x 8 x 512^3/8.
Counted before it was priced.
"""

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import scaling as sc
from experiments.foreign.work import Work

N, GPUS, STEPS, DT, NU = 512, 8, 5, 1e-3, 1e-3
WORK = Work(bytes=STEPS * 2 * 9 * 3 * 2 * 8 * N**3 / GPUS)
NOTE = "cross products, the projection and turns of the slabs are vector work beside the transforms"


def turn(x, split, concat):
    return jax.lax.all_to_all(x, "slab", split, concat, tiled=True)


def to_points(x):  # (3, kx, ky / slabs, kz) -> (3, x / slabs, y, z)
    x = jnp.fft.ifft(jnp.fft.ifft(x, axis=3), axis=1)
    return jnp.fft.ifft(turn(x, 1, 2), axis=2)


def to_waves(x):
    x = jnp.fft.fft(jnp.fft.fft(x, axis=3), axis=2)
    return jnp.fft.fft(turn(x, 2, 1), axis=1)


def solve(u):
    wave = jnp.fft.fftfreq(N, 1 / N)
    part = jax.lax.dynamic_slice(wave, (jax.lax.axis_index("slab") * (N // GPUS),), (N // GPUS,))
    k = jnp.stack(jnp.meshgrid(wave, part, wave, indexing="ij"))
    square = jnp.maximum((k * k).sum(0), 1)

    def right_side(u):
        vorticity = 1j * jnp.cross(k, u, axis=0)
        n = to_waves(jnp.cross(to_points(u), to_points(vorticity), axis=0).astype(jnp.complex64))
        return n - k * (k * n).sum(0) / square - NU * square * u

    def step(_, u):
        return u + DT * right_side(u + DT / 2 * right_side(u))

    return jax.lax.fori_loop(0, STEPS, step, u)


def price() -> sc.Prediction:
    mesh, spec = sc.device_mesh("slab=8", cluster="dgx-h100"), P(None, None, "slab")
    step = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=spec, out_specs=spec))
    u = jax.ShapeDtypeStruct((3, N, N, N), jnp.complex64, sharding=NamedSharding(mesh, spec))
    return sc.predict_step(step, u, cluster="dgx-h100")
