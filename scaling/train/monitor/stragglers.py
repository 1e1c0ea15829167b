"""Which host is slow? In the time of a step one cannot see it: each waits for the slowest.

    step    |== own work ==|.. waits in a collective ..|     fast host
            |=========== own work ===========|         |     slow host: the same step time

So from time to time, while no step is in flight, each process times a product of matrices on its
own devices, and all tell each other; with the time that its host waited for data, its own as well:

    own work = product / fastest product + waiting for data / step        1 on all: equal hosts
"""

import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape

EVERY = 100  # steps; a look takes some milliseconds and lets the devices run dry once
SIZES = {"cpu": 256}  # of the square matrices; each about a millisecond
SIZE = 8192  # on accelerators: 1.1 TFLOP, 1.5 ms at 700 TFLOP/s
REPEATS = 10  # the fastest counts: what disturbs once is no slow host
SLOW = 1.25  # times the others' median
NAME_BYTES = 64  # of a host's name that travel


@dataclass(frozen=True)
class Look:
    """What every process needs for its own work, in the order of their numbers."""

    compute: tuple[float, ...]  # s, for the same product of matrices
    data: tuple[float, ...]  # s that the host waited for the batch of a step, mean
    step_time: float  # s, mean

    @property
    def own(self) -> list[float]:
        """Own work of each process, in steps of the fastest."""
        fastest = min(self.compute)
        return [
            c / fastest + d / self.step_time for c, d in zip(self.compute, self.data, strict=True)
        ]

    @property
    def slowest(self) -> int:
        """The process with the most own work."""
        return self.own.index(max(self.own))

    @property
    def slowdown(self) -> float:
        """Own work of the slowest over the median of the others'; 1 where all are equal."""
        others = [work for i, work in enumerate(self.own) if i != self.slowest]
        return self.own[self.slowest] / statistics.median(others)


def host_words(look: Look, names: Sequence[str]) -> str | None:
    """Names the slow host, if there is one."""
    if look.slowdown < SLOW:
        return None
    i = look.slowest
    product, data = (f"{1e3 * seconds:.1f} ms" for seconds in (look.compute[i], look.data[i]))
    least = f"{1e3 * min(look.compute):.1f} ms"
    return (
        f"slow host: process {i} on {names[i]} has {look.slowdown:.2f} times the work of the others"
        f", and every step waits for it (a product in {product}, the fastest in {least}; "
        f"{data} a step waiting for data)"
    )


class Hosts:
    """Looks at all hosts of a job; every process calls it at the same steps."""

    def __init__(self) -> None:
        devices = jax.local_devices()
        self._mesh = present_mesh(MeshShape(data=len(devices)), devices)
        size = SIZES.get(devices[0].platform, SIZE)
        dtype = jnp.float32 if devices[0].platform == "cpu" else jnp.bfloat16
        ones = np.ones((len(devices), size, size), dtype)
        self._matrices = jax.device_put(ones, NamedSharding(self._mesh, P("data")))
        self._product = jax.jit(jnp.matmul)
        self._time()  # compiles
        self.names = _names()
        self._waited: list[float] = []
        self._steps: list[float] = []

    def step(self, seconds: float, waited: float) -> None:
        """A step has ended for whose batch this host has waited."""
        self._steps.append(seconds)
        self._waited.append(waited)

    def look(self) -> Look:
        """Times this process's devices and hears from the others; no step may be in flight, and
        there was one since the last look."""
        product = min(self._time() for _ in range(REPEATS))
        step_time, data = statistics.fmean(self._steps), statistics.fmean(self._waited)
        self._steps.clear()
        self._waited.clear()
        figures = multihost_utils.process_allgather(np.array([product, data], np.float32))
        compute, waited = np.asarray(figures).reshape(-1, 2).T.tolist()
        return Look(tuple(compute), tuple(waited), step_time)

    def _time(self) -> float:
        started = time.perf_counter()
        with jax.set_mesh(self._mesh):
            jax.block_until_ready(self._product(self._matrices, self._matrices))
        return time.perf_counter() - started


def _names() -> list[str]:
    """The host of each process."""
    own = np.zeros(NAME_BYTES, np.uint8)
    name = np.frombuffer(socket.gethostname().encode()[:NAME_BYTES], np.uint8)
    own[: len(name)] = name
    rows = np.asarray(multihost_utils.process_allgather(own)).reshape(-1, NAME_BYTES)
    return [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows]
