"""What a run folder holds for a comparison, and how it gets there.

predicted.json      the prediction, written before the first step
program.json        the program that was priced
calibration.json    the profile that it was priced with
measured.json       what the steps took
profile/            a recording of some steps, where one was asked for
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshes.errors import InputError
from scaling.cost.profile import Profile
from scaling.cost.profile_file import read_profile, write_profile
from scaling.prediction import Prediction, prediction_dict
from scaling.price import Priced
from scaling.program import Program
from scaling.program_file import load_program, save_program
from scaling.run import Run, load_run, read_json
from scaling.targets import described

PREDICTED, PROGRAM, CALIBRATION = "predicted.json", "program.json", "calibration.json"
MEASURED, PROFILE = "measured.json", "profile"
MISSING = {
    MEASURED: "the run has not finished a step; train it (on) with `scaling train`",
    PREDICTED: "the run was trained without a prediction: run `scaling calibrate --quick` once on "
    "this machine, then train again",
}


@dataclass(frozen=True)
class RunFolder:
    """The files of one finished run."""

    run: Run
    prediction: dict[str, Any]
    measured: dict[str, Any]
    program: Program | None
    profile: Profile | None
    recording: Path | None


def write_prediction(folder: Path, priced: Priced, prediction: Prediction) -> None:
    """Keep a prediction with all that it was made from."""
    folder.mkdir(parents=True, exist_ok=True)
    document = prediction_dict(prediction) | {"cluster": described(priced.cluster)}
    text = json.dumps(document, indent=1) + "\n"
    (folder / PREDICTED).write_text(text, encoding="utf-8")
    save_program(priced.program, folder / PROGRAM)
    write_profile(priced.profile, folder / CALIBRATION)


def read_folder(folder: Path) -> RunFolder:
    """Everything that a comparison needs.

    Raises:
        InputError: not a run folder, or one without a prediction or a measurement; says which.
    """
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} is no run folder: it has no run.json")
    measured = _document(folder, MEASURED)
    program, profile = folder / PROGRAM, folder / CALIBRATION
    return RunFolder(
        load_run(folder / "run.json"),
        _document(folder, PREDICTED),
        measured,
        load_program(program) if program.is_file() else None,
        read_profile(profile) if profile.is_file() else None,
        folder / PROFILE if (folder / PROFILE).is_dir() else None,
    )


def _document(folder: Path, name: str) -> dict[str, Any]:
    if not (folder / name).is_file():
        raise InputError(f"{folder} has no {name}: {MISSING[name]}")
    document = read_json(folder / name)
    if not isinstance(document, dict):
        raise InputError(f"{folder / name}: expected a table of keys; train the run again")
    return document
