"""A run folder whose training has ended: what it could not write then is made again.

measured.json    from metrics.jsonl
metrics.jsonl    the last lines, from the newest checkpoint; torn ones of others are removed
"""

from pathlib import Path

import jax

from scaling.meshes.errors import InputError
from scaling.training.checkpoint.read import place_in_data
from scaling.training.checkpoint.resume import METRICS
from scaling.training.checkpoint.steps import step_path
from scaling.training.launch.consensus import broadcast_from_first
from scaling.training.monitor.metrics import (
    is_torn,
    mend_metrics,
    metrics_files,
    readable_metrics,
)
from scaling.training.monitor.recover_measured import lacks_measured, rebuild_measured
from scaling.training.run_folder import Options, explain_unwritable, lock_run_folder


def mend_finished(folder: Path, step: int) -> list[str]:
    """Write what the folder of a run that ended at `step` lacks; lines for the user.

    Where nothing is lacking nothing is written.

    Raises:
        InputError: the folder still cannot be written to.
    """
    if broadcast_from_first(_ends_at(folder, step) and not lacks_measured(folder)):
        return []
    with lock_run_folder(Options(folder, resume=True)), explain_unwritable(folder):
        if jax.process_index() != 0:
            return []
        place = place_in_data(step_path(folder / "checkpoints", step))
        return mend_metrics(folder, place.get(METRICS, ()), step) + rebuild_measured(folder)


def _ends_at(folder: Path, step: int) -> bool:
    """True if the last lines of all metrics are whole, and the first process's of `step`."""
    try:
        records, _ = readable_metrics(folder)
        torn = any(map(is_torn, metrics_files(folder)))
    except (InputError, OSError):
        return False
    return not torn and any(line.get("step") == step and "loss" in line for line in records)
