"""Steps after which a checkpoint is saved: every N steps, every ten minutes, or at the end only.

By time process 0's clock decides, and all processes save after the same step. At
steps that all know beforehand process 0 broadcasts after how many steps it looks again: as many as
it expects in half of the time left, or in a minute; 0 when the time is up.

    saved |--|----------|----------|---  ...  ----------|-----|--|-| saved
             60 s       60 s                            half of the rest
"""

import time

from scaling.train.launch.agreement import broadcast_from_first

INTERVAL = 600.0  # s between checkpoints by time: what a crash costs at most
LOOK = 60.0  # s between looks at the clock, so that steps that become slower are noticed
FIRST_LOOK = 2  # steps after a save: one has finished by then, the other may be in flight


class CheckpointSchedule:
    """Decides after each step whether to save; every process of a job calls it at every step."""

    def __init__(self, every: int | None, step: int):
        """Start after `step` finished steps; `every` is `train.checkpoint_every`.

        That is a number of steps, 0 for at the end only, or None for by time.
        """
        self._every = every
        self._since, self._first = time.monotonic(), step
        self._next_look = step + FIRST_LOOK

    def is_due(self, step: int) -> bool:
        """True if a save is due after `step`, which may still be in flight."""
        if self._every is not None:
            return self._every > 0 and step % self._every == 0
        if step < self._next_look:
            return False
        wait = broadcast_from_first(self._steps_to_wait(step))
        self._next_look = step + (wait or FIRST_LOOK)
        if wait == 0:
            self._since, self._first = time.monotonic(), step
        return wait == 0

    def _steps_to_wait(self, step: int) -> int:
        """Steps until the next look; 0 to save now."""
        elapsed = time.monotonic() - self._since
        if elapsed >= INTERVAL:
            return 0
        step_time = elapsed / (step - self._first - 1)  # the newest may be in flight
        return max(1, int(min((INTERVAL - elapsed) / 2, LOOK) / max(step_time, 1e-9)))
