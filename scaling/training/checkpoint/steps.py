"""Steps in a folder of checkpoints, by the names in it. Imports no jax.

checkpoints/step_00000200                          saved: Orbax gives this name at the end
            step_00000300.orbax-checkpoint-tmp     interrupted, or being written
"""

import re
from pathlib import Path

TEMPORARY = ".orbax-checkpoint-tmp"  # Orbax's ending
STEP_NAME = re.compile(r"step_(\d{8,})")
INTERRUPTED_NAME = re.compile(rf"step_(\d{{8,}}){re.escape(TEMPORARY)}.*")


def step_path(folder: Path, step: int) -> Path:
    """The folder of one checkpoint."""
    return folder / f"step_{step:08d}"


def saved_steps(folder: Path, name: re.Pattern[str] = STEP_NAME) -> list[int]:
    """Steps of the saved checkpoints, or of other folders of these names, ascending."""
    matches = (name.fullmatch(path.name) for path in folder.glob("step_*"))
    return sorted({int(match[1]) for match in matches if match})


def latest_step(folder: Path) -> int | None:
    """The newest saved step; None if there is none."""
    return max(saved_steps(folder), default=None)


def interrupted_steps(folder: Path) -> list[int]:
    """Steps whose saving did not end, ascending."""
    return saved_steps(folder, INTERRUPTED_NAME)
