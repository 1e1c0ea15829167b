"""Which host the others wait for: its data come late, or it is slow.

The time of a step does not show it, since every process waits for the slowest in a collective:

    step    |= data =|= compute =|...... waits for host 1 ......|     host 0
            |=========== data ==========|= compute =|...........|     host 1: the same step time
            |= data =|= com|-- stands still --|pute =|..........|     host 2: the same step time
"""

from collections.abc import Sequence

import numpy as np

SLOW_DATA = 0.25  # of a step: what one host waits longer for its data than the median
SLOW = 1.25  # times the median, for the same work
# Looks that count, and in how many of them a slow host is. Beside five times as many busy threads
# as cores a healthy host was slow in 28 % of its looks: in 16 of 20 by chance twice in 10**6.
LOOKS, OFTEN = 20, 16

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

    `looks` are seconds by moment, then by process. At each moment a process is compared with the
    median of all; it is slow if it was in OFTEN of the last LOOKS moments, which a passing
    disturbance is not.
    """
    times = np.array(looks[-LOOKS:])
    ratios = times / _typical(times)
    slow = np.flatnonzero((ratios >= SLOW).sum(axis=0) >= OFTEN)
    if not len(slow):
        return None
    ratio = np.median(ratios, axis=0)
    slowest = int(max(slow, key=lambda process: ratio[process]))
    took = 1e3 * float(np.median(times[:, slowest]))
    return slowest, (
        f"slow host: {names[slowest]} takes {ratio[slowest]:.1f} times as long as the others for "
        f"the same products of matrices ({took:.0f} ms, the median of {len(times)} times), and "
        "every step waits for it: look for a CPU quota, a throttled clock, or another program there"
    )


def _typical(values: np.ndarray) -> np.ndarray:
    """The lower median over the processes, along the last dim: of two the smaller one."""
    return np.percentile(values, 50, axis=-1, method="lower", keepdims=True)
