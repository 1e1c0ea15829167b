"""The files of a run folder that a comparison reads.

predicted.json      the prediction, written before the first step
program.json        the program that was priced
calibration.json    the profile that it was priced with
measured.json       what the steps took
profile/            a recording of some steps, where one was asked for
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scaling.compare.documents import MeasuredFile, PredictedFile, read_document
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json
from scaling.models.accounting import count_parameters
from scaling.models.config import ModelConfig, with_positions
from scaling.profiles.io import read_profile, write_profile
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.program.serialization import load_program, save_program
from scaling.run import Run, load_run
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.resolve import cluster_record
from scaling.simulate.step import Priced

PREDICTED, PROGRAM, CALIBRATION = "predicted.json", "program.json", "calibration.json"
MEASURED, PROFILE = "measured.json", "profile"
KEPT = (
    *("run.json", "metrics.jsonl", PREDICTED, PROGRAM, CALIBRATION, MEASURED, PROFILE),
    "checkpoints",
)
MISSING = {
    MEASURED: "the run has not finished a step; train it (on) with `scaling train`",
    PREDICTED: "the run was trained without a prediction: run `scaling calibrate --quick` once on "
    "this machine, then train again",
}


@dataclass(frozen=True)
class RunFolder:
    """The files of one finished run."""

    run: Run
    prediction: PredictedFile
    measured: MeasuredFile
    program: Program | None
    profile: Profile | None
    recording: Path | None

    @property
    def missing(self) -> str:
        """The missing files among program.json and calibration.json; "" if both are there."""
        files = {PROGRAM: self.program, CALIBRATION: self.profile}
        return " and ".join(name for name, found in files.items() if found is None)


def write_prediction(folder: Path, run: Run, priced: Priced, prediction: Prediction) -> None:
    """Keep a prediction of `run` with all that it was made from."""
    folder.mkdir(parents=True, exist_ok=True)
    document = prediction_dict(prediction) | {
        "cluster": cluster_record(priced.cluster),
        "mesh": dict(priced.program.mesh),
        "batch": asdict(run.batch),
        "model": _model_words(run.model, run.batch.seq_len),
    }
    text = json.dumps(document, indent=1) + "\n"
    (folder / PREDICTED).write_text(text, encoding="utf-8")
    save_program(priced.program, folder / PROGRAM)
    write_profile(priced.profile, folder / CALIBRATION)


def _model_words(model: ModelConfig, seq_len: int) -> str:
    """`12 layers, d_model 768, 124,475,904 parameters`."""
    total = count_parameters(with_positions(model, seq_len)).total
    return f"{model.n_layers} layers, d_model {model.d_model}, {total:,} parameters"


def remove_prediction(folder: Path) -> None:
    """Forget what was predicted of an earlier part of the run: the rest has no prediction."""
    for name in (PREDICTED, PROGRAM, CALIBRATION):
        (folder / name).unlink(missing_ok=True)


def read_folder(folder: Path) -> RunFolder:
    """Everything that a comparison needs.

    Raises:
        InputError: not a run folder, or one without a prediction or a measurement; says which. A
            file that is damaged, or of another mesh or batch than run.json.
    """
    if not (folder / "run.json").is_file():
        raise InputError(f"{folder} is no run folder: it has no run.json")
    measured = read_document(MeasuredFile, _document(folder, MEASURED), str(folder / MEASURED))
    predicted = read_document(PredictedFile, _document(folder, PREDICTED), str(folder / PREDICTED))
    program, profile = folder / PROGRAM, folder / CALIBRATION
    found = RunFolder(
        load_run(folder / "run.json"),
        predicted,
        measured,
        load_program(program) if program.is_file() else None,
        read_profile(profile) if profile.is_file() else None,
        folder / PROFILE if (folder / PROFILE).is_dir() else None,
    )
    _check_same_run(folder, found)
    return found


def _check_same_run(folder: Path, found: RunFolder) -> None:
    """The prediction is of the mesh and the batch that were trained."""
    run, predicted = found.run, found.prediction
    trained = run.mesh.sizes if run.mesh else {}
    priced = found.program.mesh if found.program else predicted.mesh
    for name, key, there, here in (
        (PREDICTED, "batch", asdict(predicted.batch), asdict(run.batch)),
        (PREDICTED, "mesh", _larger(predicted.mesh), _larger(trained)),
        (PROGRAM, "mesh", _larger(priced), _larger(trained)),
    ):
        if list(there.items()) != list(here.items()):
            words = [", ".join(f"{k}={n}" for k, n in part.items()) for part in (there, here)]
            raise InputError(
                f"{folder / name} is of another run: its {key} is {words[0] or 'one device'}, "
                f"run.json has {words[1] or 'one device'}; train the run again"
            )


def _larger(sizes: Mapping[str, int]) -> dict[str, int]:
    """The axes of more than one device, in their order."""
    return {axis: size for axis, size in sizes.items() if size != 1}


def _document(folder: Path, name: str) -> Any:
    if not (folder / name).is_file():
        raise InputError(f"{folder} has no {name}: {MISSING[name]}")
    return read_json(folder / name)
