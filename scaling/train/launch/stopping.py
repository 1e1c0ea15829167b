"""When a run stops early: signals, agreed among all processes, and numbers that are not finite."""

import signal
import threading
from pathlib import Path
from types import FrameType

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from scaling.meshes.errors import InputError
from scaling.train.checkpoint.checkpoints import Checkpoints


class NotFinite(RuntimeError):
    """The loss or the gradient norm became NaN or infinite."""


class StopSignal:
    """Turns SIGTERM and SIGINT into a flag, so that the step in flight ends and is saved.

    Outside the main thread Python delivers no signals, and this does nothing.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> "StopSignal":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:  # a person's second Ctrl-C means: now
            raise KeyboardInterrupt
        self.received = self.received or signal.Signals(number).name


class Vote:
    """Lets all processes stop after the same step, whichever of them was told to.

    A vote is the maximum over one flag per device. It is dispatched with a step and read with that
    step's metrics, so that the host never waits for it.
    """

    def __init__(self, mesh: Mesh):
        self._sharding = jax.NamedSharding(mesh, P(mesh.axis_names))
        self._any = jax.jit(jnp.max)

    def cast(self, stop: bool) -> jax.Array:
        """The agreed flag, int32 scalar; every process calls this at the same step."""
        shape = (self._sharding.mesh.size,)
        mine = np.full(shape, stop, np.int32)
        return self._any(jax.make_array_from_callback(shape, self._sharding, mine.__getitem__))


def stop_on_nan(
    step: int,
    values: dict[str, float],
    batch: tuple[np.ndarray, np.ndarray],
    folder: Path,
    checkpoints: Checkpoints,
) -> None:
    """Save the batch of a step whose numbers are not finite, and stop.

    Args:
        values: the step's metrics.
        batch: inputs and targets, [global_batch, seq_len] each.

    Raises:
        NotFinite: always; the message says what was saved and how to go on.
    """
    path = folder / f"nan_step_{step}.npz"
    if jax.process_index() == 0:
        np.savez(path, step=step, inputs=batch[0], targets=batch[1])
    try:
        checkpoints.wait()
        failed = ""
    except InputError as error:
        failed = f" {error}"
    raise NotFinite(
        f"step {step}: loss {values['loss']}, gradient norm {values['grad_norm']}; its batch is "
        f"saved in {path}. {_advice(step, checkpoints.latest())}{failed}"
    )


def _advice(step: int, saved: int | None) -> str:
    gentler = "Lower train.learning_rate or raise train.warmup_steps, then"
    if saved is None:
        return f"No checkpoint was saved. {gentler} start again in a new --run-dir."
    if saved == step - 1:
        return (
            f"The last checkpoint is step {saved}, whose state led here: remove it to go back "
            f"further. {gentler} --resume."
        )
    return f"The last checkpoint is step {saved}. {gentler} --resume."
