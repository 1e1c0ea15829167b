"""The run folder is the journal of a run: what it was started with, and what is finished.

run.json, data.json     what the run was started with: its description, sums of its data's files
environment.json        what the newest process runs on, and since when
.lock, .lock.held       one job at a time writes here (`lock`)
checkpoints/
  step_00000200/        saved, by this run if `.written` names it (`steps`)
    checksums_0.json    and complete: the disk has given its files back as they were (`checksums`)
    ...                 with the lines of metrics that a power cut may take (`metrics`)
metrics.jsonl           a line for each step (`metrics`); process_1/metrics.jsonl of another process
measured.json           the end of the run, made from those where it is missing (`measured`)

A step is finished when its folder has its name and all its checksums; then its line of metrics is
on the disk or in its folder, and what is left of older steps may go.
"""

from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.run import Run
from scaling.run.own import OwnRun


def default_folder(run: Run | OwnRun) -> Path:
    """Return runs/NAME.

    Raises:
        InputError: the run's name cannot be the name of a folder.
    """
    name = run.name
    if not name or name == ".." or "\0" in name or Path(name).name != name:
        raise InputError(f"the run's name {name!r} cannot be a folder's name; give --run-dir")
    return Path("runs") / name
