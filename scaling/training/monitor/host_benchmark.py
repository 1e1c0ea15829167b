"""The same products of matrices on every process of a job, timed to compare their hosts.

A host under a quota of CPU time, or one that is stopped now and then, runs at full speed and stands
still in turn. Work that is shorter than such a turn may meet only the full speed.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape

# Width of the matrices, their format, and how many products: about 30 ms on one core of an AMD EPYC
# (34 MFLOP each, measured) and on an H100 (17 GFLOP each, at 600 TFLOP/s), with 24 MiB at most. A
# quota starts anew every 100 ms (cpu.max of Linux), so that one below 0.3 cores is always met.
CPU = 256, jnp.float32, 128
ACCELERATOR = 2048, jnp.bfloat16, 1024


class SameWork:
    """Products of matrices on each of this process's devices, compiled at once."""

    def __init__(self) -> None:
        devices = jax.local_devices()
        width, dtype, count = CPU if devices[0].platform == "cpu" else ACCELERATOR
        mesh = present_mesh(MeshShape(data=len(devices)), devices)
        mean = np.full((len(devices), width, width), 1 / width, dtype)  # any power of it is itself
        with jax.set_mesh(mesh):
            self._matrices = jax.device_put(mean, NamedSharding(mesh, P("data")))
            repeat = lambda m: jax.lax.fori_loop(0, count, lambda _, power: power @ m, m)
            self._repeat = jax.jit(repeat).lower(self._matrices).compile()

    def seconds(self) -> float:
        """The time that all devices take for it once; no step may be in flight."""
        started = time.perf_counter()
        jax.block_until_ready(self._repeat(self._matrices))
        return time.perf_counter() - started
