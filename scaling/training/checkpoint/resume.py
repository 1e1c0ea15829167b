"""The start of a run: a fresh state, or the newest intact checkpoint.

state         of that step, on the mesh of today
data          the iterator goes on with the next batch
random keys   follow from `train.seed` and the step, both of which are restored or compared
description   differences from the saved one are named
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from scaling.run import run_dict
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.layer_order import reorder_layers
from scaling.training.checkpoint.steps import interrupted_steps
from scaling.training.data.batches import TrainingBatches
from scaling.training.monitor.metrics import mend_metrics
from scaling.training.prepare import Plan, Programs, initial_state
from scaling.training.run_folder import Options
from scaling.training.step import TrainState
from scaling.training.weights.naming import from_dict, to_dict

METRICS = "metrics"  # key beside the place in the data: records of metrics.jsonl
MAY_DIFFER = ("name", "mesh", "device_order", "train/steps")  # named elsewhere, or on purpose


def start(
    plan: Plan,
    options: Options,
    programs: Programs,
    checkpoints: Checkpoints,
    batches: TrainingBatches,
) -> tuple[TrainState, list[str]]:
    """A fresh state, or the newest intact checkpoint with the data iterator put in its place.

    Returns:
        The state, and lines for the user.

    Raises:
        InputError: no intact checkpoint, or one of another model, optimiser or data.
    """
    if not options.resume:
        return initial_state(plan, programs, options.initial), []
    arrays, place, saved = checkpoints.restore(to_dict(programs.state))
    batches.set_state(place)
    step = int(arrays["step"])
    lines = [f"resumed after step {step}"]
    if jax.process_index() == 0:  # whose lines the checkpoint holds
        lines += mend_metrics(options.folder, place.get(METRICS, ()), step)
    if interrupted := [s for s in interrupted_steps(checkpoints.folder) if s > step]:
        lines.append(f"left out: step {', '.join(map(str, interrupted))}, not saved to its end")
    if changed := list(changes(saved, run_dict(plan.run))):
        lines.append(f"not as it was saved: {', '.join(changed)}")
    return from_dict(programs.state, reorder_layers(arrays, saved, plan.run)), lines


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
