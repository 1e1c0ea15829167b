"""The wall time of a run by what it is spent on.

    began | imports, data, compile, restore | steps | checkpoint | steps | evaluation | steps ...
            start                             useful  the loop stands still

    goodput = seconds of steps that the run keeps / seconds since it began

With `--restarts` a run began with its first attempt: what a crash costs, the steps after the last
checkpoint included, is in the wall time and not in the useful time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from scaling.meshes.errors import InputError
from scaling.training.run_folder.folder import Options, own_folder
from scaling.training.run_folder.metrics import readable_metrics, step_times

PAUSES = ("checkpoints", "evaluation")


@dataclass
class Clock:
    """Sums of the wall time of one run."""

    began: float  # unix time
    useful: float = 0.0  # s, of steps that are kept
    saves: int = 0  # checkpoints
    data: float = 0.0  # s that the host waited for batches; hidden while a step is in flight
    first: float = field(default_factory=time.time)  # unix time at which the loop began
    pauses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PAUSES, 0.0))
    reported: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PAUSES, 0.0))

    @contextmanager
    def pause(self, what: str) -> Iterator[None]:
        """Add the seconds within it to one of PAUSES."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.pauses[what] += time.perf_counter() - started

    def since_last(self, what: str) -> float:
        """Seconds of such pauses since the last call for them."""
        before, self.reported[what] = self.reported[what], self.pauses[what]
        return self.pauses[what] - before

    @property
    def goodput(self) -> float:
        """Useful time over wall time, so far."""
        return self._share(self.useful)

    @property
    def checkpoint_share(self) -> float:
        """Share of the wall time so far in which checkpoints stopped the steps."""
        return self._share(self.pauses["checkpoints"])

    def _share(self, seconds: float) -> float:
        return seconds / max(time.time() - self.began, seconds, 1e-9)

    def figures(self) -> dict[str, Any]:
        """Goodput, seconds by what they went into (`other`: lost steps and the rest), saves."""
        total = time.time() - self.began
        parts = {"start": self.first - self.began, "steps": self.useful, **self.pauses}
        other = max(0.0, total - sum(parts.values()))
        return {
            "goodput": self.goodput,
            "wall_time": {"total": total, **parts, "other": other, "data": self.data},
            "checkpoints": {"saves": self.saves, "share": parts["checkpoints"] / total},
        }


def started_clock(options: Options, done: int) -> Clock:
    """The clock of a run of which `done` steps are restored."""
    clock = Clock(options.began)
    if options.resume:
        with suppress(InputError):  # somebody has taken the file away
            records, _ = readable_metrics(own_folder(options.folder))
            clock.useful = sum(step_times(records, options.began, done).values())
    return clock
