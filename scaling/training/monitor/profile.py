"""Records a profile of some steps with `jax.profiler`, to be read by XProf or TensorBoard.

jax writes `FOLDER/plugins/profile/DATE/HOST.xplane.pb`, where TensorBoard's profile plugin, which
is XProf, looks for the recordings below its --logdir (docs.jax.dev/en/latest/profiling.html).

Starting a recording takes a while, and writing it longer. So the timer of steps waits for those in
flight before either: `begins` and `ends` say when.
"""

import warnings
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import jax

from scaling.meshes.errors import InputError, is_count

PROFILE = "profile"  # folder of the recordings in a run folder


def parse_range(text: str, steps: int) -> tuple[int, int]:
    """First and last step of `FROM:TO`, both recorded, counted from 1.

    Raises:
        InputError: not two numbers, or not within 1..steps.
    """
    first, colon, last = text.partition(":")
    if not (colon and is_count(first) and is_count(last)):
        raise InputError(f"--record-profile {text!r}: expected FROM:TO, two step numbers: 10:12")
    if not 1 <= int(first) <= int(last) <= steps:
        raise InputError(
            f"--record-profile {text}: the steps must lie within 1..{steps}, the first not after "
            "the last"
        )
    return int(first), int(last)


def how_to_open(folder: Path, steps: tuple[int, int] | None) -> str:
    """One line: the commands that show the recordings in a folder, and where.

    As in docs.jax.dev/en/latest/profiling.html; 6006 is TensorBoard's own port.
    """
    first, last = steps or (0, 0)
    return (
        f"recorded steps {first} to {last}: `pip install xprof`, then `xprof --port 8791 {folder}` "
        f"and http://localhost:8791, or `tensorboard --logdir {folder}` and "
        "http://localhost:6006/#profile"
    )


class ProfileRecorder(AbstractContextManager["ProfileRecorder"]):
    """Records steps `first` to `last` into a folder; does nothing if there is no range."""

    def __init__(self, folder: Path, steps: tuple[int, int] | None):
        self._folder = folder
        self._first, self._last = steps or (0, 0)
        self._recording = False
        self.recorded: tuple[int, int] | None = None  # the steps whose recording is finished

    def begins(self, step: int) -> bool:
        """True if the recording begins before this step."""
        return step == self._first

    def ends(self, step: int) -> bool:
        """True if the recording ends after this step."""
        return self._recording and step == self._last

    def before(self, step: int, previous: Any) -> None:
        """Called before a step is dispatched; a recording begins when `previous` is there."""
        if self.begins(step):
            jax.block_until_ready(previous)
            jax.profiler.start_trace(self._folder)
            self._recording = True

    def after(self, step: int, result: Any) -> bool:
        """Called after a step was dispatched; waits for the last recorded one, and writes.

        Returns:
            True if it has written; where it cannot a warning is given, and the run goes on.
        """
        if not self.ends(step):
            return False
        jax.block_until_ready(result)
        self.recorded = (self._first, self._last)
        return self._stop()

    def __exit__(self, *error: object) -> None:
        self._stop()

    def _stop(self) -> bool:
        """Write what is recorded; True if that was possible."""
        if not self._recording:
            return False
        self._recording = False
        try:
            jax.profiler.stop_trace()
        except (OSError, jax.errors.JaxRuntimeError) as error:
            warnings.warn(f"no recording is written to {self._folder}: {error}", stacklevel=2)
            return False
        return True
