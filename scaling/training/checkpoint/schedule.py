"""Steps after which a checkpoint is saved: every N steps, and when the last one is old enough.

By time process 0's clock decides, and all processes save after the same step. At
steps that all know beforehand process 0 broadcasts after how many steps it looks again: as many as
it expects in half of the time left, or in a minute; 0 when the time is up.

    saved |--|----------|----------|---  ...  ----------|-----|--|-| saved
             60 s       60 s                            half of the rest

The time is ten minutes, and more where a save stops the steps for more than 5 % of it.
"""

import time

from scaling.training.launch.consensus import broadcast_from_first

INTERVAL = 600.0  # s between checkpoints by time: what a crash costs at most
SHARE = 0.05  # of a run's time, for saves that nobody has asked for; chosen by this project
LOOK = 60.0  # s between looks at the clock, so that steps that become slower are noticed
FIRST_LOOK = 2  # steps after a save: one has finished by then, the other may be in flight


class CheckpointSchedule:
    """Decides after each step whether to save; every process of a job calls it at every step."""

    def __init__(self, every: int | None, minutes: float | None, step: int):
        """Start after `step` finished steps.

        Args:
            every: steps between saves; 0 or None: no number of steps. `train.checkpoint_every`.
            minutes: between saves, whatever they cost; 0: none by time; None: see above, and none
                by time where `every` is 0. `train.checkpoint_minutes`.
        """
        self._every, self._asked = every, minutes is not None
        self._by_time = bool(minutes) if minutes is not None else every != 0
        self._interval = 60 * minutes if minutes else INTERVAL  # s
        self._restart(step)

    def is_due(self, step: int) -> bool:
        """True if a save is due after `step`, which may still be in flight."""
        due = (self._every and step % self._every == 0) or self._time_is_up(step)
        if due:
            self._restart(step)
        return bool(due)

    def saved(self, seconds: float) -> str:
        """Take note that a save has stopped the steps for `seconds`.

        Returns:
            A line for the user where saves become rarer for it for the first time; else "".
        """
        if self._asked or not self._by_time:
            return ""
        before, self._interval = self._interval, max(INTERVAL, seconds / SHARE)
        if before != INTERVAL or self._interval == INTERVAL:
            return ""
        return (
            f"a checkpoint stops the steps for {seconds:.0f} s: saved every "
            f"{self._interval / 60:.0f} minutes, so that saves take {SHARE:.0%} of the time "
            "(train.checkpoint_minutes sets it)"
        )

    def _restart(self, step: int) -> None:
        self._since, self._first = time.monotonic(), step
        self._next_look = step + FIRST_LOOK

    def _time_is_up(self, step: int) -> bool:
        """Process 0's verdict, at the steps at which it looks."""
        if not self._by_time or step < self._next_look:
            return False
        elapsed, wait = time.monotonic() - self._since, 0  # steps until the next look
        if elapsed < self._interval:
            step_time = elapsed / (step - self._first - 1)  # the newest may be in flight
            wait = max(1, int(min((self._interval - elapsed) / 2, LOOK) / max(step_time, 1e-9)))
        wait = broadcast_from_first(wait)
        self._next_look = step + wait
        return wait == 0
