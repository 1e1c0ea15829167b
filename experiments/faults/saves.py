"""Saves of a small state in a process of its own, and what a new process finds of them.

    save FOLDER KEEP STEPS GAP      some seconds apart; prints "saved N" after each
    restore FOLDER                  prints the step that a run would go on from
    record FOLDER LOG KEEP STEPS    with their file calls written down
    refuse FOLDER ERRNO ONCE        with an error from the nth file call on, for each n; ONCE: of it

`record` and `refuse` need `calls.c`, preloaded.
"""

import ctypes
import json
import os
import shutil
import sys
import time
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.checkpoint import checkpoints as module
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.run_folder.steps import TEMPORARY, saved_steps

SOON = 60  # s for a save; more is a hang


def state_of(step: int) -> dict[str, jax.Array]:
    """Arrays that tell of which step they are."""
    return {
        "matrix": jnp.full((64, 32), float(step)),
        "vector": jnp.arange(5000) * step,
        "step": jnp.int32(step),
    }


def save(checkpoints: Checkpoints, step: int) -> None:
    """Save and wait for its end."""
    checkpoints.save(step, state_of(step), {"next": step}, {"name": "faults"})
    checkpoints.wait()


def restored(folder: Path) -> int:
    """The step that a new process goes on from, all its arrays right; 0: none, -1: wrong arrays."""
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    wanted = {
        name: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)
        for name, x in state_of(0).items()
    }
    try:
        with warnings.catch_warnings(action="ignore"), Checkpoints(folder) as checkpoints:
            state, place, _ = checkpoints.restore(wanted)
    except InputError:
        return 0
    step = int(state["step"])
    same = all(np.array_equal(state[name], x) for name, x in state_of(step).items())
    return step if same and place == {"next": step} else -1


def say(folder: Path, keep: int, steps: int, gap: float) -> None:
    """Save steps so many seconds apart, and say so after each."""
    with Checkpoints(folder, keep) as checkpoints:
        for step in range(1, steps + 1):
            save(checkpoints, step)
            print(f"saved {step}", flush=True)
            time.sleep(gap if step < steps else 0)
        sys.stdin.read()


def record(folder: Path, log: Path, keep: int, steps: int) -> None:
    """Save steps in a new folder; `saved N` stands in the log after each."""
    _calls().faults_set(os.fsencode(folder), 0, 0, os.fsencode(log))
    with Checkpoints(folder / "checkpoints", keep) as checkpoints:
        for step in range(1, steps + 1):
            save(checkpoints, step)
            with log.open("a") as lines:
                lines.write(f"0\tsaved\t{step}\t\n")


def refuse(folder: Path, error: int, once: bool) -> None:
    """Save with an error from the first call on, the second ...; a line for each."""
    at, within = 0, True
    while within:
        at += 1
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        outcome, within = _refused(folder / "checkpoints", -at if once else at, error)
        print(json.dumps({"at": at, **outcome}), flush=True)


def _refused(folder: Path, at: int, error: int) -> tuple[dict, bool]:
    """One such save among others that succeed; False if it has fewer calls."""
    calls, saved = _calls(), True
    with Checkpoints(folder, 1) as checkpoints:
        save(checkpoints, 1)
        calls.faults_set(os.fsencode(folder), at, error, b"")
        try:
            save(checkpoints, 2)
        except InputError:
            saved = False
        within = calls.faults_calls() >= abs(at)
        calls.faults_set(b"", 0, 0, b"")
        found = restored(folder)
        save(checkpoints, 3)
    with Checkpoints(folder, 1) as checkpoints:
        save(checkpoints, 4)
    left = [path.name for path in folder.iterdir() if TEMPORARY in path.name]
    steps, again = saved_steps(folder), restored(folder)
    return {"saved": saved, "found": found, "left": left, "then": steps, "again": again}, within


def _calls() -> ctypes.CDLL:
    """The functions of `calls.c`, which is preloaded."""
    calls = ctypes.CDLL(None)
    calls.faults_set.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_char_p)
    calls.faults_calls.restype = ctypes.c_long
    return calls


def main() -> None:
    """Do what the command line says."""
    what, folder, *rest = sys.argv[1:]
    module.LIMIT = SOON
    if what == "restore":
        print(restored(Path(folder)))
    elif what == "save":
        say(Path(folder), int(rest[0]), int(rest[1]), float(rest[2]))
    elif what == "record":
        record(Path(folder), Path(rest[0]), *map(int, rest[1:]))
    else:
        refuse(Path(folder), int(rest[0]), rest[1] == "1")


if __name__ == "__main__":
    main()
