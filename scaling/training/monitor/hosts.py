"""The hosts of a job of several processes, compared now and then.

At a look no step is in flight, and every process does the same work at the same moment. That takes
at most SHARE of the time between two looks.
"""

import math
import statistics
from collections import deque
from collections.abc import Sequence

import jax
import numpy as np

from scaling.training.launch.consensus import gather
from scaling.training.monitor.host_benchmark import SameWork
from scaling.training.monitor.slow_host import LOOKS, slow_data, slow_host

SHARE = 0.01  # of the time, for the work of the fastest process
STEPS = 10  # between looks, at least: after each the devices wait for the host once


class Hosts:
    """Compares the processes; all of them make one and call it at the same steps.

    In a run of one process no look is ever due.
    """

    def __init__(self, step: int, names: Sequence[str]):
        """Start after `step`; `names` are those of the processes."""
        self._names = names
        self._several = jax.process_count() > 1
        self._next = step + STEPS
        self._waits: list[float] = []  # s, since the last look
        self._steps: list[float] = []  # s, as many
        self._looks: deque[list[float]] = deque(maxlen=LOOKS)  # s, for the same work
        self._named: set[tuple[str, int]] = set()  # kinds of findings, and processes
        if self._several:
            self._work = SameWork()

    def step(self, seconds: float, waited: float) -> None:
        """Note the time of a step, and how long this process waited for its batch."""
        if self._several:
            self._steps.append(seconds)
            self._waits.append(waited)

    def is_due(self, step: int, last: bool) -> bool:
        """True if a look follows this step."""
        return self._several and (last or step >= self._next)

    def look(self, step: int) -> tuple[dict[str, list[float]], list[str]]:
        """Compare the processes, after `step` and while no step is in flight.

        Returns:
            Seconds of each process by name, and a message for each one that has become slow.
        """
        own = self._work.seconds(), statistics.fmean(self._waits), statistics.fmean(self._steps)
        work, waits, step_times = gather(np.array(own, np.float32)).T.tolist()
        self._waits.clear()
        self._steps.clear()
        self._looks.append(work)
        step_time = step_times[0]  # one for all, so that they look again at the same step
        self._next = step + max(STEPS, math.ceil(min(work) / (SHARE * step_time)))
        found = {
            "data": slow_data(waits, step_time, self._names),
            "host": slow_host(tuple(self._looks), self._names),
        }
        slow = {(kind, f[0]): f[1] for kind, f in found.items() if f}
        new = [message for key, message in slow.items() if key not in self._named]
        self._named = set(slow)
        return {"hosts_data_time": waits, "hosts_work_time": work}, new
