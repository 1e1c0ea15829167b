"""A finished run against its prediction."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.compare.compare import Comparison, comparison_dict
from scaling.compare.compare import compare as compare_documents
from scaling.compare.folder import PREDICTED, RunFolder, read_folder
from scaling.meshes.errors import InputError
from scaling.simulate.resolve import cluster_from_record

if TYPE_CHECKING:
    from scaling.compare.recorded import RecordedEvent
    from scaling.compare.terms import Recording
    from scaling.meshes.cluster import Cluster
    from scaling.simulate.step import Priced

PAGE, SUFFIXES = "comparison", (".html", ".svg", ".png")  # written beside the run's files


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComparisonResult(Comparison):
    """A comparison that prints as the table of `scaling compare`, with what it was made from."""

    folder: Path
    priced: "Priced | None"  # with its events; None where the folder has no program
    events: "tuple[RecordedEvent, ...]"  # of the profile, all devices

    @property
    def document(self) -> Comparison:
        """The comparison alone."""
        return Comparison(**{f.name: getattr(self, f.name) for f in fields(Comparison)})

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling compare --json` prints."""
        return comparison_dict(self.document)

    def write_page(self) -> Path:
        """Write comparison.html and its plots into the run folder; return the page's path."""
        from scaling.report.comparison_page import write_page

        try:
            return write_page(self.document, self.folder / PAGE)
        except OSError as error:
            raise InputError(f"cannot write to {self.folder}: {error.strerror}") from None

    def trace(self, path: str | Path) -> None:
        """Write the predicted and the measured timeline as two processes of one Perfetto file."""
        from scaling.report.trace import measured_events, trace_events, write_trace

        if self.priced is None:
            raise InputError(f"--trace: {self.folder} has no program; train the run again")
        measured = measured_events(self.events, self.priced.program, process=2)
        try:
            write_trace(trace_events(self.priced) + measured, Path(path))
        except OSError as error:
            raise InputError(f"cannot write {path}: {error.strerror}") from None

    def __str__(self) -> str:
        from scaling.report.comparison import table

        return table(self.document)


def compare(run_dir: str | Path) -> ComparisonResult:
    """Compare a run's measured steps with its prediction: total, terms, collectives, memory.

    >>> import scaling as sc
    >>> comparison = sc.compare("runs/demo")             # doctest: +SKIP
    >>> comparison.step_time.error                       # doctest: +SKIP
    -0.04

    Args:
        run_dir: folder of a run; with a recorded profile, also per term and collective.

    Raises:
        InputError: no run folder, one that lacks a file, files of another run or version.
    """
    folder = Path(run_dir)
    return compare_folder(folder, read_folder(folder))


def compare_folder(folder: Path, files: RunFolder) -> ComparisonResult:
    """As `compare`, for files that are read already."""
    if files.missing:
        comparison = compare_documents(files.prediction, files.measured)
        return ComparisonResult(**vars(comparison), folder=folder, priced=None, events=())
    priced = _priced(files)
    events, recording = _recorded(files)
    seconds = {name: float(time) for name, time in priced.timeline.by_name.items()}
    comparison = compare_documents(
        files.prediction, files.measured, files.program, seconds, recording
    )
    return ComparisonResult(**vars(comparison), folder=folder, priced=priced, events=tuple(events))


def _priced(files: RunFolder) -> "Priced":
    """Price the folder's program again, with the folder's profile."""
    from scaling.simulate.step import price

    assert files.program is not None and files.profile is not None
    return price(files.program, _cluster(files), files.profile, record=True)


def _cluster(files: RunFolder) -> "Cluster":
    """Return the cluster that was priced; the run was measured on such a machine."""
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
    return cluster


def _recorded(files: RunFolder) -> "tuple[list[RecordedEvent], Recording | None]":
    """Return the events of the recorded steps, and their sums; none where nothing was recorded."""
    from scaling.compare.recorded import recorded_events
    from scaling.compare.terms import read_recording

    steps = files.measured.recorded_steps
    if files.recording is None or steps is None or files.program is None:
        return [], None
    events = recorded_events(files.recording)
    return events, read_recording(events, files.program, steps[1] - steps[0] + 1)
