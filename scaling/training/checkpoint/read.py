"""Reading one checkpoint of Orbax: its arrays, its place in the data and its run description."""

import gc
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from traceback import clear_frames
from typing import Any

import numpy as np
from orbax.checkpoint import v1 as ocp

from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json
from scaling.training.launch.consensus import all_processes, broadcast_from_first
from scaling.training.run_folder.checksums import unsummed
from scaling.training.weights.naming import to_dict

METADATA = "_CHECKPOINT_METADATA"  # JSON of Orbax (0.12.8)
State = Any  # a pytree of jax arrays, or of what describes them
Restored = tuple[State, dict[str, Any], dict[str, Any]]  # state, place in the data, run description
Described = dict[str, str]  # name of an array -> float32[64, 32]
# What Orbax raises of a checkpoint that is damaged, or that another version wrote.
UNREADABLE = (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError)


def describe(state: State) -> Described:
    """The types and shapes of the arrays of a state."""
    return {n: f"{np.dtype(x.dtype)}{list(x.shape)}" for n, x in to_dict(state).items()}


def difference(there: Mapping[str, str], here: Mapping[str, str], partial: bool = False) -> str:
    """The first array that two descriptions differ in; "" if there is none.

    Args:
        partial: `there` may have more arrays.
    """
    for name in here if partial else {**here, **there}:
        if here.get(name) != there.get(name):
            missing = "missing"
            return f"{name} is {there.get(name, missing)} there and {here.get(name, missing)} here"
    return ""


def read_checkpoint(path: Path, abstract_state: State, partial: bool) -> Restored:
    """State, place in the data and run description of an intact checkpoint.

    Args:
        abstract_state: pytree of jax.ShapeDtypeStruct with the shardings wanted.
        partial: the checkpoint may hold more arrays, which are not read.

    Raises:
        InputError: it is one of another model, or cannot be read.
    """
    context = ocp.Context()
    context.pytree.loading.partial_load = partial
    try:
        with _quiet():
            there, custom = described(path)
            place, run = (dict(custom[key]) for key in ("iterator_state", "run"))
            if differs := difference(there, describe(abstract_state), partial):
                raise InputError(
                    f"checkpoint {path} belongs to another run: {differs}. "
                    "Resume with the model and optimizer it was saved with (run.json beside it), "
                    "or start in another --run-dir."
                )
            with context:
                return ocp.load(path, abstract_state, checkpointable_name="state"), place, run
    except InputError:
        raise
    except Exception as error:
        if not isinstance(error, UNREADABLE) and type(error) is not Exception:  # Orbax raises those
            raise
        raise InputError(
            f"checkpoint {path} cannot be read: where its files are as their checksums say, "
            f"another program or version of Orbax wrote it ({error!r:.300})"
        ) from None


def read_or_damage(path: Path, abstract_state: State, partial: bool) -> Restored | str:
    """A checkpoint; or what is wrong with one whose files are not all summed, on all processes.

    Raises:
        InputError: its files are as they were summed, and it does not fit or cannot be read.
    """
    missing = unsummed(path)
    if not broadcast_from_first(bool(missing)):
        return read_checkpoint(path, abstract_state, partial)
    names = ", ".join(f"checksums_{process}.json" for process in missing)
    warnings.warn(
        f"checkpoint {path} lacks {names}, written last in a save: its files are used unchecked",
        stacklevel=3,
    )
    failed, restored = "", None
    try:
        restored = read_checkpoint(path, abstract_state, partial)
    except InputError as error:
        failed = str(error)
    alike = all_processes(restored is not None)
    return restored if alike and restored else failed or "another process cannot read it"


def place_in_data(path: Path) -> dict[str, Any]:
    """What a checkpoint holds beside its arrays as the place in the data; {} if it is damaged."""
    try:
        place: dict[str, Any] = ocp.metadata(path.absolute()).custom_metadata["iterator_state"]
    except UNREADABLE:
        return {}
    return place


def run_of_checkpoint(path: Path) -> dict[str, Any]:
    """The run description in a checkpoint; {} if it is damaged. Unlike Orbax, no device is made."""
    try:
        run: dict[str, Any] = read_json(path / METADATA)["custom_metadata"]["run"]
    except (InputError, LookupError, TypeError):
        return {}
    return run


def described(path: Path) -> tuple[Described, Mapping[str, Any]]:
    """The arrays that Orbax finds in a checkpoint, and what was saved beside them."""
    metadata = ocp.metadata(path, checkpointable_name="state")
    return describe(metadata.metadata), metadata.custom_metadata


@contextmanager
def _quiet() -> Iterator[None]:
    """Say nothing of reads that Orbax leaves unfinished where one fails: a page about each."""
    hook, log = sys.unraisablehook, logging.getLogger("asyncio")
    nothing = lambda record: False
    sys.unraisablehook = lambda unraisable: None
    log.addFilter(nothing)
    try:
        yield
    except Exception as error:
        clear_frames(error.__traceback__)  # which hold them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of those that nobody has begun
            gc.collect()  # now they are told
        raise
    finally:
        sys.unraisablehook = hook
        log.removeFilter(nothing)
