"""Seconds that each host waits for its data, gathered from all processes.

The time of a step does not show them: every process waits for the slowest in a collective.

    step    |= data =|= compute =|.. waits for host 1 ..|     host 0
            |=========== data ==========|= compute =|..|     host 1: the same step time
"""

import statistics
from collections.abc import Sequence

import numpy as np

from scaling.train.launch.agreement import gather

EVERY = 100  # steps
SLOW = 0.25  # of a step: what one host waits longer than the others' median


def gathered_data_wait(waited: Sequence[float]) -> list[float]:
    """Mean of the seconds in `waited`, of each process; all processes call it at the same step."""
    return gather(np.float32(statistics.fmean(waited))).tolist()


def slow_data_message(waits: Sequence[float], step_time: float) -> str | None:
    """Names the process that waits much longer for its data than the others, if one does.

    `waits` are seconds per step in the order of the processes, `step_time` is in seconds.
    """
    slowest = int(np.argmax(waits))
    others = [wait for process, wait in enumerate(waits) if process != slowest]
    typical = statistics.median(others) if others else waits[slowest]
    if waits[slowest] - typical < SLOW * step_time:
        return None
    return (
        f"slow data: process {slowest} waits {1e3 * waits[slowest]:.1f} ms a step for its batch, "
        f"the others {1e3 * typical:.1f} ms, and every step waits for it"
    )
