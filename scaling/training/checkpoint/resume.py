"""The start of a run: a fresh state, or the newest intact checkpoint; or that it has ended.

state         of that step, on the mesh of today
data          the iterator goes on with the next batch
random keys   follow from `train.seed` and the step, both of which are restored or compared
description   differences from the saved one are named
metrics       lines that the file lacks are written again, at the end measured.json as well
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from scaling.compile.options import compiler_options
from scaling.meshes.durable import write_json
from scaling.run.own import document_of
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.read import place_in_data
from scaling.training.data.sums import DATA
from scaling.training.data.tokenizer import copy_tokenizer
from scaling.training.launch.consensus import broadcast_from_first
from scaling.training.monitor.environment import describe_environment
from scaling.training.protocol import Plan, Training
from scaling.training.run_folder import measured
from scaling.training.run_folder.folder import (
    TOKENIZER,
    Options,
    explain_unwritable,
    lock_run_folder,
    own_folder,
)
from scaling.training.run_folder.metrics import ends_whole, mend_metrics
from scaling.training.run_folder.steps import interrupted_steps, step_path
from scaling.training.weights.naming import from_dict, to_dict

METRICS = "metrics"  # key beside the place in the data: records of metrics.jsonl
MAY_DIFFER = ("name", "mesh", "device_order", "train/steps")  # named elsewhere, or on purpose


def start(
    plan: Plan, training: Training, options: Options, checkpoints: Checkpoints
) -> tuple[Any, int, list[str]]:
    """A fresh state, or the newest intact checkpoint with the data iterator put in its place.

    Returns:
        The state, its finished steps, and lines for the user.

    Raises:
        InputError: no intact checkpoint, or one of another model, optimiser or data.
    """
    if not options.resume:
        return training.init() if training.init else training.state, 0, []
    arrays, place, saved = checkpoints.restore(to_dict(training.state))
    training.data.set_state(place)
    step = checkpoints.latest() or 0  # the one just read: newer ones are known to be damaged
    lines = [f"resumed after step {step}"]
    if jax.process_index() == 0:  # whose lines the checkpoint holds
        lines += mend_metrics(options.folder, place.get(METRICS, ()), step)
    if interrupted := [s for s in interrupted_steps(checkpoints.folder) if s > step]:
        lines.append(f"left out: step {', '.join(map(str, interrupted))}, not saved to its end")
    if changed := list(changes(saved, document_of(plan.run))):
        lines.append(f"not as it was saved: {', '.join(changed)}")
    arrays = training.restored(arrays, saved) if training.restored else arrays
    return from_dict(training.state, arrays), step, lines


def save_start(plan: Plan, folder: Path) -> None:
    """Write what the run is started with, before its first step."""
    if jax.process_index() == 0:
        write_json(folder / "run.json", document_of(plan.run))
        if plan.sums is not None:
            write_json(folder / DATA, plan.sums)
            if plan.run.train.tokenizer is not None:
                copy_tokenizer(plan.run.train.tokenizer, folder / TOKENIZER)
        (folder / measured.MEASURED).unlink(
            missing_ok=True
        )  # of earlier steps, maybe on another mesh
    train, platform = plan.run.train, plan.mesh.devices.flat[0].platform
    options = compiler_options(platform, train.deterministic, train.xla)
    environment = describe_environment(plan.mesh, options=options)
    write_json(own_folder(folder) / measured.ENVIRONMENT, environment)


def mend_finished(folder: Path, step: int) -> list[str]:
    """Write what the folder of a run that ended at `step` lacks; lines for the user.

    Where nothing is lacking nothing is written.

    Raises:
        InputError: the folder still cannot be written to.
    """
    if broadcast_from_first(ends_whole(folder, step) and not measured.lacks_measured(folder)):
        return []
    with lock_run_folder(Options(folder, resume=True)), explain_unwritable(folder):
        if jax.process_index() != 0:
            return []
        place = place_in_data(step_path(folder / "checkpoints", step))
        return mend_metrics(folder, place.get(METRICS, ()), step) + measured.rebuild_measured(
            folder
        )


def changes(saved: Mapping[str, Any], now: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """Settings with another value than the saved run description has: `train/seed 1 (0 before)`.

    Keys that one of them lacks are those of another version of this program, and passed over.
    """
    for key in [key for key in now if key in saved]:
        path, before, value = f"{where}{key}", saved[key], now[key]
        if path in MAY_DIFFER or before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            yield from changes(before, value, f"{path}/")
        else:
            yield f"{path} {value} ({before} before)"
