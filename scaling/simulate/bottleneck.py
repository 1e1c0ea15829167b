"""The largest part of a step's time, in one sentence.

Each kernel belongs to what binds it: arithmetic, memory bandwidth, or the fixed cost of its start.
The largest of these, or waiting for communication, for the host or for another pipeline stage's
work, is the bottleneck.
"""

from collections.abc import Iterable

import numpy as np

from scaling.meshes.units import format_size
from scaling.program.ir import kernels
from scaling.simulate.prediction import CollectiveLine, MemoryParts
from scaling.simulate.step import Priced

WORDS = {
    "compute": "compute: kernels limited by arithmetic take",
    "memory": "memory bandwidth: kernels that move more than they compute take",
    "overhead": "overhead: starting kernels that are small for the device takes",
    "bubble": "bubble: pipeline stages without work take",
    "host": "host: the device waits for",
}


def bottleneck(priced: Priced, lines: Iterable[CollectiveLine], memory: MemoryParts) -> str:
    """The bottleneck as one sentence; about the largest figures of several configurations."""
    if memory.fits is False:
        over = format_size(float(np.max(memory.peak)) - (memory.capacity or 0.0))
        return f"memory: the peak is {over} above the capacity of a device"
    shares = time_shares(priced)
    most = max(shares, key=lambda name: shares[name])
    waiting = shares["communication"]
    if most != "communication":
        rest = f"; {waiting:.0%} is waiting for communication" if waiting else ""
        return f"{WORDS[most]} {shares[most]:.0%} of the step{rest}"
    line = max(lines, key=lambda line: np.max(line.exposed))
    part = float(np.max(line.exposed / priced.timeline.total))
    return (
        f"communication: the device waits for it {waiting:.0%} of the step, most for {line.kind} "
        f"over {line.axis} ({format_size(float(np.max(line.bytes)))} a call, {part:.0%}); "
        f"{line.bottleneck}"
    )


def time_shares(priced: Priced) -> dict[str, float]:
    """Shares of the step: compute, memory and overhead by what binds each kernel, communication,
    bubble, host.

    They sum to 1. Asynchronous kernels run beside the others: waiting for them is the host's.
    """
    timeline, total = priced.timeline, float(np.max(priced.timeline.total))
    share = lambda seconds: float(np.max(seconds)) / total if total else 0.0
    found = {"compute": 0.0, "memory": 0.0, "overhead": 0.0}
    beside = {kernel.name for kernel, _ in kernels(priced.program) if kernel.asynchronous}
    for name, cost in priced.kernels.items():
        if name not in beside:
            found[str(np.ravel(cost.bound)[0])] += share(timeline.by_name.get(name, 0.0))
    bubble = share(timeline.bubble)
    if bubble:  # it is time of kernels, whatever binds them
        rest = 1 - bubble / sum(found.values())
        found = {name: part * rest for name, part in found.items()}
    waiting = {"communication": timeline.exposed_communication, "host": timeline.host}
    return found | {"bubble": bubble} | {name: share(time) for name, time in waiting.items()}
