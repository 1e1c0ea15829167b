"""The hosts of a job of several processes, compared now and then: which one the others wait for.

The time of a step does not show it, since every process waits for the slowest in a collective:

    step    |= data =|= compute =|...... waits for host 1 ......|     host 0
            |=========== data ==========|= compute =|...........|     host 1: the same step time
            |= data =|= com|-- stands still --|pute =|..........|     host 2: the same step time

So at a look, while no step is in flight, every process does the same work at the same moment: the
same products of matrices. That takes at most SHARE of the time between two looks. A host under a
quota of CPU time, or one that is stopped now and then, runs at full speed and stands still in turn.
Work that is shorter than such a turn may meet only the full speed.
"""

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.meshes.devices import present_mesh
from scaling.meshes.shape import MeshShape
from scaling.training.launch.consensus import gather

SHARE = 0.01  # of the time, for the work of the fastest process
STEPS = 10  # between looks, at least: after each the devices wait for the host once
SLOW_DATA = 0.25  # of a step: what one host waits longer for its data than the median
SLOW = 1.25  # times the median, for the same work
# Moments that count, and standard errors of their mean. On two cores that 8 to 20 other threads
# wanted (2026-11-23), of 95 moments of sound hosts no 20 put one above 0.7 for certain, and 20 of
# them, drawn 400,000 times, never above SLOW; hosts under a quota of 0.2 cores were above 1.5.
LOOKS, ERRORS = 20, 4.0
# Width of the matrices, their format, and how many products: about 30 ms on one core of an AMD EPYC
# (34 MFLOP each, measured) and on an H100 (17 GFLOP each, at 600 TFLOP/s), with 24 MiB at most. A
# quota starts anew every 100 ms (cpu.max of Linux), so that one below 0.3 cores is always met.
CPU = 256, jnp.float32, 128
ACCELERATOR = 2048, jnp.bfloat16, 1024

Finding = tuple[int, str] | None  # a process, and the message that names it


class Hosts:
    """Compares the processes; all of them make one and call it at the same steps.

    In a run of one process no look is ever due.
    """

    def __init__(self, step: int, names: Sequence[str]):
        """Start after `step`; `names` are those of the processes."""
        self._names = names
        self._several = jax.process_count() > 1
        self._work = same_work() if self._several else None
        self._next = step + STEPS
        self._waits: list[float] = []  # s, since the last look
        self._steps: list[float] = []  # s, as many
        self._looks: deque[list[float]] = deque(maxlen=LOOKS)  # s, for the same work
        self._named: set[tuple[str, int]] = set()  # kinds of findings, and processes

    def step(self, seconds: float, waited: float) -> None:
        """Note the time of a step, and how long this process waited for its batch."""
        if self._several:
            self._steps.append(seconds)
            self._waits.append(waited)

    def is_due(self, step: int, last: bool) -> bool:
        """True if a look follows this step."""
        return self._several and (last or step >= self._next)

    def look(self, step: int) -> tuple[dict[str, Any], list[str]]:
        """Compare the processes, after `step` and while no step is in flight.

        Returns:
            Seconds of each process by name, with the slowest one and how much of a step it lags
            behind the median at most; and a message for each one that has become slow.
        """
        assert self._work is not None
        own = self._work(), statistics.fmean(self._waits), statistics.fmean(self._steps)
        work, waits, step_times = gather(np.array(own, np.float32)).T.tolist()
        self._waits.clear()
        self._steps.clear()
        self._looks.append(work)
        step_time = step_times[0]  # one for all, so that they look again at the same step
        self._next = step + max(STEPS, math.ceil(min(work) / (SHARE * step_time)))
        data = slow_data(waits, step_time, self._names)
        host = slow_host(tuple(self._looks), self._names)
        slow = {(kind, f[0]): f[1] for kind, f in (("data", data), ("host", host)) if f}
        new = [message for key, message in slow.items() if key not in self._named]
        self._named = set(slow)
        lags = np.array(waits) / step_time + np.array(work) / _typical(np.array(work))
        slowest = int(np.argmax(lags))
        named = {"slowest_process": slowest, "slowest": self._names[slowest]}
        lag = {"slowest_lag": float(lags[slowest] - _typical(lags)[0])}
        return {"hosts_data_time": waits, "hosts_work_time": work, **named, **lag}, new


def same_work() -> Callable[[], float]:
    """Products of matrices on each of this process's devices, compiled at once.

    What is returned does them once, while no step is in flight, and returns the seconds.
    """
    devices = jax.local_devices()
    width, dtype, count = CPU if devices[0].platform == "cpu" else ACCELERATOR
    mesh = present_mesh(MeshShape(data=len(devices)), devices)
    mean = np.full((len(devices), width, width), 1 / width, dtype)  # any power of it is itself
    with jax.set_mesh(mesh):
        matrices = jax.device_put(mean, NamedSharding(mesh, P("data")))
        repeat = lambda m: jax.lax.fori_loop(0, count, lambda _, power: power @ m, m)
        repeated = jax.jit(repeat).lower(matrices).compile()

    def seconds() -> float:
        started = time.perf_counter()
        jax.block_until_ready(repeated(matrices))
        return time.perf_counter() - started

    return seconds


def slow_data(waits: Sequence[float], step_time: float, names: Sequence[str]) -> Finding:
    """The process that waits much longer for its data than the others, if one does.

    `waits` are seconds per step by process, `step_time` is in seconds.
    """
    slowest = int(np.argmax(waits))
    typical = float(_typical(np.array(waits))[0])
    if waits[slowest] - typical < SLOW_DATA * step_time:
        return None
    return slowest, (
        f"slow data: {names[slowest]} waits {1e3 * waits[slowest]:.1f} ms a step for its batch, "
        f"the others {1e3 * typical:.1f} ms, and every step waits for it"
    )


def slow_host(looks: Sequence[Sequence[float]], names: Sequence[str]) -> Finding:
    """The process that takes much longer for the same work than the others, if one does.

    `looks` are seconds by moment, then by process. At each of the last LOOKS moments a process is
    compared with the median of all. It is slow if the geometric mean of these ratios is SLOW for
    certain: less ERRORS standard errors, which a passing disturbance makes large.
    """
    if len(looks) < LOOKS:
        return None
    times = np.array(looks[-LOOKS:])
    ratios = np.log(times / _typical(times))
    mean, error = ratios.mean(axis=0), ratios.std(axis=0, ddof=1) / LOOKS**0.5
    slowest = int(np.argmax(mean - ERRORS * error))
    if mean[slowest] - ERRORS * error[slowest] < math.log(SLOW):
        return None
    took = 1e3 * float(np.median(times[:, slowest]))
    return slowest, (
        f"slow host: {names[slowest]} takes {math.exp(mean[slowest]):.1f} times as long as the "
        f"others for the same products of matrices ({took:.0f} ms, the median of {LOOKS} times), "
        "and every step waits for it: look for a CPU quota, a throttled clock, or another program "
        "there"
    )


def _typical(values: np.ndarray) -> np.ndarray:
    """The lower median over the processes, along the last dim: of two the smaller one."""
    return np.percentile(values, 50, axis=-1, method="lower", keepdims=True)
