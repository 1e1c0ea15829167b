"""The files of a run folder that a comparison reads.

predicted.json      the prediction, written before the first step
program.json        the program that was priced
calibration.json    the profile that it was priced with
measured.json       what the steps took
profile/            a recording of some steps, where one was asked for

Other keys of the documents are for other readers and are passed over.
"""

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from scaling.meshes.durable import sync, write_whole
from scaling.meshes.errors import InputError, check_range
from scaling.meshes.reading import read, read_json
from scaling.models.accounting import count_parameters
from scaling.models.config import with_positions
from scaling.profiles.io import read_profile, write_profile
from scaling.profiles.profile import Profile
from scaling.program.ir import Program
from scaling.program.serialization import load_program, save_program
from scaling.run import Batch, Run, load_run
from scaling.simulate.prediction import TERMS, Grade, Prediction, prediction_dict
from scaling.simulate.resolve import cluster_from_record, cluster_record
from scaling.simulate.step import Priced, price

T = TypeVar("T", "MeasuredFile", "PredictedFile")
PREDICTED, PROGRAM, CALIBRATION = "predicted.json", "program.json", "calibration.json"
MEASURED, PROFILE = "measured.json", "profile"
KEPT = (
    *("run.json", "metrics.jsonl", PREDICTED, PROGRAM, CALIBRATION, MEASURED, PROFILE),
    "checkpoints",
)
COUNTS = ("nodes", "gpus_per_node", "steps")
MISSING = {
    MEASURED: "no finished step is on record; train it (on) with `scaling train`",
    PREDICTED: "the run was trained without a prediction: run `scaling calibrate --quick` once on "
    "this machine, then train again",
}


@dataclass(frozen=True)
class PredictedMemory:
    """Bytes of one device."""

    peak: float


@dataclass(frozen=True)
class PricedCluster:
    """The cluster that was priced; see `scaling.simulate.resolve.cluster_record`."""

    name: str
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True)
class PredictedFile:
    """predicted.json: a prediction, and of which run on which cluster it is."""

    name: str
    step_time: float  # s
    step_time_low: float
    step_time_high: float | None  # None: a part of the step is not known
    time: Mapping[str, float]  # s, by TERMS
    memory: PredictedMemory
    grade: Grade
    cluster: PricedCluster
    mesh: Mapping[str, int]  # axis sizes, outermost first
    batch: Batch
    model: str = ""  # in words

    def __post_init__(self) -> None:
        if missing := [term for term in TERMS if term not in self.time]:
            raise InputError(f"time: missing {', '.join(missing)}")

    @property
    def setting(self) -> str:
        """Model, mesh and batch: `2 layers, d_model 64; mesh fsdp=8; 16 x 512 tokens`."""
        axes = ",".join(f"{axis}={n}" for axis, n in self.mesh.items() if n > 1) or "one device"
        batch = f"{self.batch.global_batch:,} x {self.batch.seq_len:,} tokens a step"
        pieces = f" in {n} microbatches" if (n := self.batch.microbatches) > 1 else ""
        return "; ".join(filter(None, (self.model, f"mesh {axes}", batch + pieces)))


@dataclass(frozen=True)
class StepTimeFile:
    """Seconds of a step, the median of `steps`; spread: quartile distance over median."""

    measured: float
    spread: float | None
    steps: int

    def __post_init__(self) -> None:
        if not self.measured > 0:
            raise InputError(f"measured={self.measured} must be positive")


@dataclass(frozen=True)
class MemoryFile:
    """Bytes of the fullest device; None: not counted there."""

    measured: int | None
    compiled: int | None


@dataclass(frozen=True)
class MeasuredFile:
    """measured.json: what the steps of a run took, on which machine."""

    name: str
    machine: str  # `8 x cpu, x86_64`
    versions: Mapping[str, str]
    step_time: StepTimeFile
    memory: MemoryFile
    recorded_steps: tuple[int, int] | None  # first and last

    def __post_init__(self) -> None:
        first, last = self.recorded_steps or (1, 1)
        if not 1 <= first <= last:
            raise InputError(
                f"recorded_steps={[first, last]} must be the first and the last step, from 1"
            )


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
    remove_prediction(folder)  # what is a link is not written through
    model = run.model
    parameters = count_parameters(with_positions(model, run.batch.seq_len)).total
    document = prediction_dict(prediction) | {
        "cluster": cluster_record(priced.cluster),
        "mesh": dict(priced.program.mesh),
        "batch": asdict(run.batch),
        "model": f"{model.n_layers} layers, d_model {model.d_model}, {parameters:,} parameters",
    }
    save_program(priced.program, folder / PROGRAM)
    write_profile(priced.profile, folder / CALIBRATION)
    for name in (PROGRAM, CALIBRATION):
        sync(folder / name)
    write_whole(folder / PREDICTED, json.dumps(document, indent=1) + "\n")


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
        load_run(folder / "run.json"),
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
    try:
        cluster = cluster_from_record(stated.name, stated.nodes, stated.gpus_per_node, files.run)
    except InputError as error:
        raise InputError(f"{PREDICTED}: cluster: {error}; train the run again") from None
    kind = "cpu" if cluster.virtual_devices else cluster.accelerator.title
    if f" x {kind}, " not in machine:
        raise InputError(
            f"{PREDICTED}: cluster: {stated.name} has {kind}, but the run was measured on "
            f"{machine}; train the run again"
        )
    try:
        return price(files.program, cluster, files.profile, record=True)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise InputError(
            f"{PROGRAM} cannot be priced ({error!r:.200}); train the run again"
        ) from None


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


def _document(cls: type[T], folder: Path, name: str) -> T:
    """The document of class `cls` in a file."""
    if not (folder / name).is_file():
        raise InputError(f"{folder} has no {name}: {MISSING[name]}")
    return read_document(cls, read_json(folder / name), str(folder / name))


def read_document(cls: type[T], data: Any, where: str) -> T:
    """The document of class `cls` in what `json` made of a file; `where` names the file.

    Raises:
        InputError: a key is missing, or holds what it cannot mean.
    """
    try:
        document = read(cls, _known(cls, data), where)
        _check_numbers(asdict(document), where)
        return document
    except InputError as error:
        raise InputError(f"{error}; train the run again") from None


def _check_numbers(table: Mapping[str, Any], where: str) -> None:
    """Raise InputError for a figure below 0, and for a count below 1."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            _check_numbers(value, f"{where}: {key}")
        elif isinstance(value, int | float):
            check_range(f"{where}: {key}", value, 1 if key in COUNTS else 0)


def _known(hint: Any, data: Any) -> Any:
    """The keys of a table that a dataclass has, also in the tables within it."""
    if not dataclasses.is_dataclass(hint) or not isinstance(data, Mapping):
        return data
    hints = typing.get_type_hints(hint)
    return {key: _known(hints[key], value) for key, value in data.items() if key in hints}
