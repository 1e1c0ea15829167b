"""What predicted.json and measured.json of a run folder say, as far as a comparison reads them.

Other keys of the documents are for other readers and are passed over.
"""

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from scaling.meshes.errors import InputError, check_range, reworded
from scaling.meshes.reading import read
from scaling.meshes.shape import axes_text, longer
from scaling.profiles.grades import Grade
from scaling.run import Batch
from scaling.simulate.prediction import TERMS

T = TypeVar("T", "MeasuredFile", "PredictedFile")
COUNTS = ("nodes", "gpus_per_node", "steps")


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
    batch: Batch | None  # None: of a run whose batches are not ours
    model: str = ""  # in words

    def __post_init__(self) -> None:
        if missing := [term for term in TERMS if term not in self.time]:
            raise InputError(f"time: missing {', '.join(missing)}")

    @property
    def setting(self) -> str:
        """Model, mesh and batch: `2 layers, d_model 64; mesh fsdp=8; 16 x 512 tokens`."""
        axes = axes_text(longer(self.mesh)) or "one device"
        words = [self.model, f"mesh {axes}"]
        if (batch := self.batch) is not None:
            pieces = f" in {n} microbatches" if (n := batch.microbatches) > 1 else ""
            words.append(f"{batch.global_batch:,} x {batch.seq_len:,} tokens a step{pieces}")
        return "; ".join(filter(None, words))


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


def read_document(cls: type[T], data: Any, where: str) -> T:
    """The document of class `cls` in what `json` made of a file; `where` names the file.

    Raises:
        InputError: a key is missing, or holds what it cannot mean.
    """
    with reworded(after="; train the run again"):
        document = read(cls, _known(cls, data), where)
        _check_numbers(asdict(document), where)
        return document


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
