"""Seconds of calling a program once, before and besides its kernels.

    time = overhead + arguments and results x each + fresh bytes / rate

A GPU's host runs ahead of it and its memory is its own: there is nothing to add.
"""

import numpy as np

from scaling.profiles.profile import DispatchFit
from scaling.program.ir import Number, Program
from scaling.simulate.memory import memory_use


def dispatch_time(program: Program, fit: DispatchFit | None) -> Number:
    """Seconds of one call; 0 where devices do not wait for their host."""
    if fit is None:
        return 0.0
    temporary = temporaries(program)
    fresh = np.where(temporary > fit.kept, temporary, 0.0) / fit.fresh_bandwidth
    time = fit.overhead + fit.per_buffer * buffers_of(program) + fresh
    return time if np.ndim(time) else float(time)


def buffers_of(program: Program) -> int:
    """Arguments and results of one device."""
    return sum(buffer.persistent for buffer in program.buffers)


def temporaries(program: Program) -> Number:
    """Bytes on one device at the peak that hold neither arguments nor results."""
    persistent = sum(buffer.bytes for buffer in program.buffers if buffer.persistent)
    peak = program.compiler_peak if program.compiler_peak is not None else memory_use(program).peak
    return np.maximum(peak - persistent, 0.0)
