"""A prediction against the finished run, against a profile of the run, against another one."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import overload

from scaling.api.diff import DifferenceResult, diff
from scaling.api.profile import ProfileComparison
from scaling.api.public_api import Drawn, entrance
from scaling.api.result import PredictionResult
from scaling.comparing.compare import compare_run
from scaling.comparing.folder import RunFolder, read_folder
from scaling.compile.quiet import quiet
from scaling.meshes.errors import InputError
from scaling.pictures.curves import ScatterPoint, scatter
from scaling.pictures.files import write_picture
from scaling.pictures.shapes import Picture

PAGE, SUFFIXES = "comparison", (".html", ".svg", ".png")  # written beside the run's files


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComparisonResult(Drawn, ProfileComparison):
    """A comparison of a run's folder; prints as the table of `scaling compare`."""

    folder: Path

    def picture(self) -> "Picture":
        """Return predicted over measured times: step, collectives and kernels."""
        return _scatter([self])

    def write_page(self) -> Path:
        """Write comparison.html and its plots into the run folder; return the page's path."""
        from scaling.report.comparison import write_page

        try:
            return write_page(self, self.folder / PAGE)
        except OSError as error:
            raise InputError(f"cannot write to {self.folder}: {error.strerror}") from None


@overload
def compare(run_dir: str | Path) -> ComparisonResult: ...
@overload
def compare(
    run_dir: str | Path | PredictionResult, other: str | Path | PredictionResult
) -> DifferenceResult: ...
@entrance
def compare(
    run_dir: str | Path | PredictionResult, other: str | Path | PredictionResult | None = None
) -> ComparisonResult | DifferenceResult:
    """Compare a run's measured steps with its prediction, or a prediction with another one.

    >>> import scaling as sc
    >>> step = sc.compare("runs/tiny").step_time.seconds  # doctest: +SKIP
    >>> step.error == step.predicted / step.measured - 1  # doctest: +SKIP
    True
    >>> p = sc.predict("tiny", cluster="dgx-h100", mesh="fsdp=8")
    >>> sc.compare(p, p.what_if("nvlink x2")).step_time.difference <= 0
    True

    Args:
        run_dir: folder of a run; with a recorded profile, also per term and collective; with
            `other` one of two predictions, or a PredictionResult.
        other: compare two predictions instead, as `scaling diff` does: a file, a run folder, or a
            PredictionResult.

    Raises:
        InputError: no run folder, one that lacks a file, files of another run or version; no
            prediction.
    """
    if other is not None:
        return diff(run_dir, other)
    if isinstance(run_dir, PredictionResult):
        raise InputError("compare: give two predictions, or the folder of a run")
    folder = Path(run_dir)
    return compare_folder(folder, read_run_folder(folder))


def read_run_folder(folder: Path) -> RunFolder:
    """The files of a run; a measured.json that it could not write is made again, with a note."""
    from scaling.training.run_folder.measured import lacks_measured, rebuild_measured
    from scaling.training.run_folder.metrics import device_skew

    notes = rebuild_measured(folder)
    if notes and lacks_measured(folder) and (folder / "run.json").is_file():
        raise InputError(notes[0])
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    files = read_folder(folder)
    with suppress(InputError):  # somebody has taken the metrics away
        return replace(files, skew=device_skew(folder))
    return files


def compare_folder(folder: Path, files: RunFolder) -> ComparisonResult:
    """As `compare`, for files that are read already."""
    with quiet():  # jax reads the recorded profile
        return ComparisonResult(**vars(compare_run(files)), folder=folder)


@entrance
def plot_comparisons(comparisons: Sequence[ComparisonResult], path: Path | str) -> None:
    """Draw predicted over measured times of finished runs: steps, collectives and kernels.

    >>> import scaling as sc
    >>> runs = [sc.compare("runs/a"), sc.compare("runs/b")]            # doctest: +SKIP
    >>> sc.plot_comparisons(runs, "scatter.svg")                       # doctest: +SKIP

    Args:
        comparisons: of `sc.compare`, one run or several.
        path: of the picture (.png, .svg, .pdf).

    Raises:
        InputError: another suffix, a file that cannot be written, nothing that was measured.
    """
    write_picture(_scatter(comparisons), Path(path))


def _scatter(comparisons: Sequence[ComparisonResult]) -> "Picture":
    several = len(comparisons) > 1
    points = [point for run in comparisons for point in _points(run, several)]
    names = ", ".join(dict.fromkeys(run.name for run in comparisons))
    if not points:
        raise InputError("plot: nothing was both predicted and measured")
    return scatter(points, f"{names}: predicted and measured")


def _points(comparison: ComparisonResult, several: bool) -> Iterator[ScatterPoint]:
    """The step with its range, and each collective and kernel that can be compared."""
    name, step = comparison.folder.name, comparison.step_time.seconds
    group = lambda what: f"{name}: {what}" if several else what
    low, high = comparison.step_range
    if step.predicted and step.measured:
        end = high if math.isfinite(high) else None  # a part of the step is not known
        yield ScatterPoint(group("step"), step.measured, step.predicted, low, end)
    kernels = () if comparison.shares_cores else comparison.kernels
    for what, pairs in (("collectives", comparison.collectives), ("kernels", kernels)):
        for pair in pairs:
            if pair.seconds.predicted and pair.seconds.measured:
                yield ScatterPoint(group(what), pair.seconds.measured, pair.seconds.predicted)
