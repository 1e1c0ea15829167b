"""Which host the others wait for: its data come late, or it is slow.

The time of a step does not show it, since every process waits for the slowest in a collective:

    step    |= data =|= compute =|...... waits for host 1 ......|     host 0
            |=========== data ==========|= compute =|...........|     host 1: the same step time
            |= data =|= com|-- stands still --|pute =|..........|     host 2: the same step time
"""

import math
from collections.abc import Sequence

import numpy as np

SLOW_DATA = 0.25  # of a step: what one host waits longer for its data than the median
SLOW = 1.25  # times the median, for the same work
# Moments that count, and standard errors of their mean. On two cores that 8 to 20 other threads
# wanted (2026-11-23), of 95 moments of sound hosts no 20 put one above 0.7 for certain, and 20 of
# them, drawn 400,000 times, never above SLOW; hosts under a quota of 0.2 cores were above 1.5.
LOOKS, ERRORS = 20, 4.0

Finding = tuple[int, str] | None  # a process, and the message that names it


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
