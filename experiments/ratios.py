"""Two durations of one run, measured in turn: their ratio, and a table of such ratios.

Seconds differ between machines and hours; a ratio of neighbours in time says more.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

Timer = Callable[[], float]  # does something once, returns its seconds


@dataclass(frozen=True)
class Ratio:
    """Two durations of the same run."""

    name: str
    what: str
    seconds: float  # median
    baseline: float  # seconds, median
    ratios: tuple[float, ...]  # round by round

    @property
    def ratio(self) -> float:
        """The middle round's."""
        return median(self.ratios)


def compare(name: str, what: str, timed: Timer, baseline: Timer, rounds: int) -> Ratio:
    """Time both in turn, after one round that does not count."""
    timed()
    baseline()
    pairs = [(timed(), baseline()) for _ in range(rounds)]
    ours, theirs = zip(*pairs, strict=True)
    return Ratio(name, what, median(ours), median(theirs), tuple(a / b for a, b in pairs))


def table(results: list[Ratio]) -> str:
    """Results for a reader: ratio, its spread over rounds, both durations."""
    lines = [f"{'benchmark':<32}{'ratio':>7}  {'spread':<14}{'ms':>9}{'baseline':>10}  what"]
    for result in results:
        spread = f"{min(result.ratios):.3f}-{max(result.ratios):.3f}"
        lines.append(
            f"{result.name:<32}{result.ratio:>7.3f}  {spread:<14}{1e3 * result.seconds:>9.1f}"
            f"{1e3 * result.baseline:>10.1f}  {result.what}"
        )
    return "\n".join(lines)


def seconds(call: Callable[[], object]) -> float:
    """Seconds of the wall clock."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def python(*words: str) -> Timer:
    """A Python process from start to end; what it prints is thrown away."""
    command = [sys.executable, *words]
    return lambda: seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
