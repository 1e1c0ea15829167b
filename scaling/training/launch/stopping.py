"""Early ends of a run: signals, agreed among all processes, and numbers that are not finite."""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from scaling.meshes.durable import sync
from scaling.meshes.errors import InputError
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.run_folder.steps import how_to_go_on


class NotFinite(RuntimeError):
    """The loss or the gradient norm became NaN or infinite."""


class StopSignal:
    """SIGTERM and SIGINT end a run before its next step, so that the last one can be saved.

    In a job of several processes jax's preemption service catches SIGTERM on any of them and lets
    all stop before the same step; SIGINT becomes SIGTERM. In a single process both set a flag.
    Outside the main thread Python delivers no signals, and this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._several = jax.process_count() > 1
        self._before: dict[int, object] = {}

    def before_step(self, step: int) -> str:
        """Name of the signal that ends the run before `step`; "" to go on.

        Every process calls it before each step.
        """
        if self._several and not multihost_utils.reached_preemption_sync_point(step):
            return ""
        return self.received or (signal.SIGTERM.name if self._several else "")

    def stop(self) -> None:
        """Do as if SIGTERM had come."""
        self._receive(signal.SIGTERM, None)

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT,) if self._several else (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:  # a person's second Ctrl-C means: now
            raise KeyboardInterrupt
        self.received = self.received or signal.Signals(number).name
        if self._several:
            os.kill(os.getpid(), signal.SIGTERM)


def stop_on_nan(
    step: int,
    values: dict[str, float],
    batch: Mapping[str, Any],
    folder: Path,
    checkpoints: Checkpoints,
    remedy: str,
) -> None:
    """Save the batch of a step whose metrics `values` are not finite, and stop.

    A job of several processes saves what the first one has of it. `batch`: its arrays by name.

    Raises:
        NotFinite: always; the message names the saved files and the way to go on.
    """
    path, failed = folder / f"nan_step_{step}.npz", ""
    saved = f"is saved in {path}"
    if jax.process_index() == 0:
        try:
            path.unlink(missing_ok=True)  # what is a link is not written through
            np.savez(path, step=step, **batch)
            sync(path)
            sync(folder)
        except OSError as error:
            saved = f"could not be saved ({path}: {error.strerror})"
    try:
        checkpoints.wait()
    except InputError as error:
        failed = f" {error}"
    led = checkpoints.latest() == step - 1
    further = "; its state led here: remove it to go back further" if led else ""
    norm = f", gradient norm {values['grad_norm']}" if "grad_norm" in values else ""
    raise NotFinite(
        f"step {step}: loss {values['loss']}{norm}; its batch "
        f"{saved}. {remedy}; {how_to_go_on(folder)}{further}.{failed}"
    )
