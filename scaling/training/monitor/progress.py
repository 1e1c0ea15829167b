"""The progress of a run on stderr: a live line on a terminal, a plain line now and then elsewhere.

step 120/300 | loss 2.3456 | 12,345 tokens/s | MFU 41.0% | HFU 43.5% | 83 ms/step | 0:00:15 left
step 130/300 | loss 2.3451 | 12,345 tokens/s | 83 ms/step | checkpoints 1.2% | 0:00:14 left
"""

import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Column

PLAIN_LINES = 10  # lines of a run that is not watched: the first step, then each tenth
ABOVE_PEAK = (
    "MFU is above 100%: the steps are faster than the peak that the calibration of this machine "
    "found, as where it was busy then; `scaling calibrate` measures it again"
)
NOT_KNOWN = {"mfu": None, "hfu": None}
BAR_WIDTH = 6  # characters: leaves room for the line on a terminal of 80


@dataclass(frozen=True)
class Predicted:
    """What the prediction before the first step says of one step.

    measured utilisation = predicted utilisation x predicted seconds / measured seconds
    """

    step_time: float  # s
    mfu: float | None  # None: the device's peak is not known
    hfu: float | None

    def at(self, step_time: float) -> Mapping[str, float | None]:
        """`mfu` and `hfu` of a step of `step_time` seconds; None as above."""
        faster = self.step_time / step_time
        both = {"mfu": self.mfu, "hfu": self.hfu}
        return {name: None if value is None else value * faster for name, value in both.items()}


def progress_line(
    step: int,
    total: int,
    loss: float,
    tokens_per_second: float | None,
    step_time: float,
    predicted: Predicted | None = None,
    width: int | None = None,
    checkpoints: float = 0.0,
) -> str:
    """One line: steps, loss, rate, MFU and HFU, seconds per step (measured, predicted), time left.

    Before the time left stands the share of the time that `checkpoints` took. MFU and HFU, the
    rate and that share, then the prediction are left out to fit `width` characters.
    """
    head = f"step {step:,}/{total:,} | loss {loss:.4f} | "
    rate = f"{tokens_per_second:,.0f} tokens/s | " if tokens_per_second else ""
    measured = f"{_duration(step_time)}/step"
    beside = "" if predicted is None else f" (predicted {_duration(predicted.step_time)})"
    left = f" | {timedelta(seconds=round((total - step) * step_time))} left"
    ratios = predicted.at(step_time) if predicted else NOT_KNOWN
    used = "".join(f"{name.upper()} {u:.1%} | " for name, u in ratios.items() if u is not None)
    saves = f" | checkpoints {checkpoints:.1%}" if checkpoints else ""
    full = [(rate + used, saves), (rate, saves), ("", "")]
    lines = [head + more + measured + beside + share + left for more, share in full]
    fitting = (line for line in lines if width is None or len(line) <= width)
    return next(fitting, head + measured + left)


def _duration(seconds: float) -> str:
    """Three digits or so with a unit: 83 ms, 1.25 s."""
    return f"{seconds * 1e3:,.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Shows the steps of one run; use as a context manager."""

    def __init__(
        self,
        total: int,
        first: int = 0,
        stream: TextIO | None = None,
        predicted: Predicted | None = None,
    ):
        """Start the line on `stream` (None: stderr), for a run that goes on after step `first`.

        `predicted` is what was predicted of one step before the first one.
        """
        self._total, self._first, self._predicted = total, first, predicted
        self._stream, self._every = stream or sys.stderr, max(1, (total - first) // PLAIN_LINES)
        self._live, self._task, self._is_noted = None, TaskID(0), False
        if self._stream.isatty():
            text = TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True))
            bar, console = BarColumn(bar_width=BAR_WIDTH), Console(file=self._stream)
            self._live = Progress(bar, text, console=console, redirect_stdout=False)
            self._live.start()
            self._task = self._live.add_task("compiling", total=total - first)

    def update(
        self, step: int, loss: float, rate: float | None, step_time: float, checkpoints: float = 0.0
    ) -> None:
        """Show that `step` steps are done.

        `rate` is in tokens/s (None: not counted), `step_time` in seconds.
        """
        width = self._live.console.width - BAR_WIDTH - 1 if self._live else None
        figures = (loss, rate, step_time, self._predicted, width, checkpoints)
        line = progress_line(step, self._total, *figures)
        mfu = self._predicted.at(step_time)["mfu"] if self._predicted else None
        if mfu is not None and mfu > 1 and not self._is_noted:
            self._is_noted = True
            self.note(ABOVE_PEAK)
        done = step - self._first
        if self._live:
            self._live.update(self._task, completed=done, description=line)
        elif done == 1 or done % self._every == 0 or step == self._total:
            print(line, file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Print a line of its own (a checkpoint, a held-out loss) without breaking the live one."""
        if self._live:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream, flush=True)

    def __exit__(self, *error: object) -> None:
        """End the live line; the last state stays on the screen."""
        if self._live:
            self._live.stop()
