"""The files of a run folder that a comparison reads.

predicted.json      the prediction, written before the first step
program.json        the program that was priced
calibration.json    the profile that it was priced with
measured.json       what the steps took
profile/            a recording of some steps, where one was asked for
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from scaling.comparing.documents import MeasuredFile, PredictedFile, T, read_document
from scaling.meshes.durable import sync, write_json
from scaling.meshes.errors import InputError, reworded
from scaling.meshes.reading import read_json
from scaling.meshes.shape import MeshShape, longer
from scaling.models.accounting import count_parameters
from scaling.models.config import with_positions
from scaling.profiles.io import read_profile, write_profile
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.program.serialization import load_program, save_program
from scaling.run import Run
from scaling.run.own import OwnRun, load_any
from scaling.simulate.prediction import Prediction, prediction_dict
from scaling.simulate.resolve import cluster_from_record, cluster_record
from scaling.simulate.step import Priced, price

PREDICTED, PROGRAM, CALIBRATION = "predicted.json", "program.json", "calibration.json"
MEASURED, PROFILE = "measured.json", "profile"
KEPT = (
    *("run.json", "metrics.jsonl", PREDICTED, PROGRAM, CALIBRATION, MEASURED, PROFILE),
    "checkpoints",
)
MISSING = {
    MEASURED: "no finished step is on record; train it (on) with `scaling train`",
    PREDICTED: "the run was trained without a prediction: run `scaling calibrate --quick` once on "
    "this machine, then train again",
}


@dataclass(frozen=True)
class RunFolder:
    """The files of one finished run."""

    run: Run | OwnRun
    prediction: PredictedFile
    measured: MeasuredFile
    program: Program | None
    profile: Profile | None
    recording: Path | None
    skew: float | None = None  # measured `moe.skew`; None: not on record

    @property
    def missing(self) -> str:
        """The missing files among program.json and calibration.json; "" if both are there."""
        files = {PROGRAM: self.program, CALIBRATION: self.profile}
        return " and ".join(name for name, found in files.items() if found is None)


def write_prediction(
    folder: Path, run: Run | OwnRun, priced: Priced, prediction: Prediction
) -> None:
    """Keep a prediction of `run` with all that it was made from."""
    folder.mkdir(parents=True, exist_ok=True)
    remove_prediction(folder)  # what is a link is not written through
    document = prediction_dict(prediction) | {
        "cluster": cluster_record(priced.cluster),
        "mesh": dict(priced.program.mesh),
        "batch": asdict(run.batch) if isinstance(run, Run) else None,
        "model": _words(run),
    }
    save_program(priced.program, folder / PROGRAM)
    write_profile(priced.profile, folder / CALIBRATION)
    for name in (PROGRAM, CALIBRATION):
        sync(folder / name)
    write_json(folder / PREDICTED, document)


def _words(run: Run | OwnRun) -> str:
    if isinstance(run, OwnRun):
        return run.function
    model = run.model
    parameters = count_parameters(with_positions(model, run.batch.seq_len)).total
    return f"{model.n_layers} layers, d_model {model.d_model}, {parameters:,} parameters"


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
    measured = _document(MeasuredFile, folder, MEASURED)
    predicted = _document(PredictedFile, folder, PREDICTED)
    program, profile = folder / PROGRAM, folder / CALIBRATION
    found = RunFolder(
        load_any(folder / "run.json"),
        predicted,
        measured,
        load_program(program) if program.is_file() else None,
        read_profile(profile) if profile.is_file() else None,
        folder / PROFILE if (folder / PROFILE).is_dir() else None,
    )
    _check_same_run(folder, found)
    return found


def priced_again(files: RunFolder) -> Priced:
    """The folder's program, priced with its profile on the cluster that the run was measured on.

    Raises:
        InputError: no such cluster, or one of other chips than those measured.
    """
    assert files.program is not None and files.profile is not None
    stated, machine = files.prediction.cluster, files.measured.machine
    with reworded(f"{PREDICTED}: cluster: ", "; train the run again"):
        cluster = cluster_from_record(
            stated.name, stated.nodes, stated.gpus_per_node, files.run.cluster
        )
    kind = "cpu" if cluster.virtual_devices else cluster.accelerator.title
    if f" x {kind}, " not in machine:
        raise InputError(
            f"{PREDICTED}: cluster: {stated.name} has {kind}, but the run was measured on "
            f"{machine}; train the run again"
        )
    try:
        return price(files.program, cluster, files.profile, record=True)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        words = f"{PROGRAM} cannot be priced ({error!r:.200}); train the run again"
        raise InputError(words) from None


def _check_same_run(folder: Path, found: RunFolder) -> None:
    """The prediction is of the mesh and the batch that were trained."""
    run, predicted = found.run, found.prediction
    trained = run.mesh.sizes if isinstance(run.mesh, MeshShape) else run.mesh or {}
    priced = found.program.mesh if found.program else predicted.mesh
    batches = asdict(predicted.batch) if predicted.batch else {}
    for name, key, there, here in (
        (PREDICTED, "batch", batches, asdict(run.batch) if isinstance(run, Run) else {}),
        (PREDICTED, "mesh", longer(predicted.mesh), longer(trained)),
        (PROGRAM, "mesh", longer(priced), longer(trained)),
    ):
        if list(there.items()) != list(here.items()):
            words = [", ".join(f"{k}={n}" for k, n in part.items()) for part in (there, here)]
            raise InputError(
                f"{folder / name} is of another run: its {key} is {words[0] or 'one device'}, "
                f"run.json has {words[1] or 'one device'}; train the run again"
            )


def _document(cls: type[T], folder: Path, name: str) -> T:
    if not (folder / name).is_file():
        raise InputError(f"{folder} has no {name}: {MISSING[name]}")
    return read_document(cls, read_json(folder / name), str(folder / name))
