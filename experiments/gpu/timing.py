"""Timing of asynchronous device work: windows of calls, each ended by one wait.

    warm up | call call call ... wait | call call call ... wait | ...
            '------- window ---------'

The host runs ahead of the device inside a window, as it does in training; what a window took over
the number of its calls is the time of one call.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import jax


@dataclass(frozen=True)
class Effort:
    """How long and how often to measure."""

    warm_up: int = 3  # calls; the first of them loads the program
    windows: int = 5
    window_seconds: float = 2.0  # what a window should take
    most_calls: int = 100  # in one window: bounds how far the host runs ahead


THOROUGH = Effort()
QUICK = Effort(warm_up=3, windows=2, window_seconds=0.05, most_calls=5)


@dataclass(frozen=True)
class Windows:
    """The raw measurements."""

    calls: int  # in each window
    seconds: tuple[float, ...]  # of each window

    @property
    def each(self) -> list[float]:
        """Seconds of one call, by window."""
        return [seconds / self.calls for seconds in self.seconds]

    @property
    def median(self) -> float:
        """Seconds of one call: the middle window's."""
        return median(self.each)

    def as_dict(self) -> dict[str, Any]:
        """Median and spread of one call in seconds, and the raw windows."""
        return {
            "median": self.median,
            "min": min(self.each),
            "max": max(self.each),
            "calls_per_window": self.calls,
            "window_seconds": list(self.seconds),
        }


def time_windows(call: Callable[[], Any], effort: Effort = THOROUGH) -> Windows:
    """Time `call`, which starts device work and returns what that work makes.

    Args:
        call: returns arrays to wait for.
        effort: how long and how often.
    """
    _window(call, 1)
    rest = max(effort.warm_up - 1, 1)
    estimate = _window(call, rest) / rest
    wanted = round(effort.window_seconds / max(estimate, 1e-9))
    calls = min(max(wanted, 1), effort.most_calls)
    seconds = [_window(call, calls)]
    while len(seconds) < effort.windows:
        seconds.append(_window(call, calls))
    return Windows(calls, tuple(seconds))


def _window(call: Callable[[], Any], calls: int) -> float:
    """Seconds from the first of `calls` calls until all of their work is done."""
    start = time.perf_counter()
    for _ in range(calls):
        made = call()
    jax.block_until_ready(made)
    return time.perf_counter() - start
