"""Pictures of predictions and runs, by kind."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.api.public_api import entrance
from scaling.meshes.errors import InputError, check_keys
from scaling.pictures.files import check_picture, write_picture
from scaling.pictures.memory import step_memory
from scaling.pictures.mesh import mesh_axes
from scaling.pictures.roofline import step_roofline
from scaling.pictures.scatter import ScatterPoint, scatter
from scaling.pictures.shapes import Picture
from scaling.pictures.steps import step_bars
from scaling.pictures.timeline import timeline

if TYPE_CHECKING:
    from scaling.api.compare import ComparisonResult
    from scaling.api.result import PredictionResult

KINDS = ("time", "memory", "roofline", "timeline", "mesh")  # of one prediction
MOST_BARS = 40  # of `plot_side_by_side`: more cannot be read


def picture_paths(
    option: str, texts: Iterable[str], kinds: tuple[str, ...], default: str | None = None
) -> dict[str, Path]:
    """Return kind -> file from texts such as `timeline=step.svg`; a mere file is of the default.

    Raises:
        InputError: a text without a kind, an unknown kind, one that is given twice, no picture.
    """
    found: dict[str, Path] = {}
    for text in texts:
        kind, equals, name = text.partition("=")
        if not equals and default is not None:
            kind, name = default, text
        if not kind or not name:
            raise InputError(
                f"{option} {text}: write KIND=FILE, such as {kinds[0]}=picture.svg; kinds are "
                f"{', '.join(kinds)}"
            )
        check_keys([kind], kinds, option, "kind")
        if kind in found:
            raise InputError(f"{option} {kind} is given twice; give it once")
        check_picture(f"{option} {kind}", Path(name))
        found[kind] = Path(name)
    return found


def plot_prediction(result: "PredictionResult", kind: str, path: Path) -> None:
    """Write one picture of a prediction."""
    check_keys([kind], KINDS, "plot", "kind")
    check_picture("plot", path)
    write_picture(prediction_picture(result, kind), path, option="plot")


def prediction_picture(result: "PredictionResult", kind: str) -> Picture:
    """Return one picture of a prediction, of KINDS."""
    from scaling.api.result import price_program
    from scaling.simulate.step import partition_devices

    title = f"{result.name} on {result.mesh} of {result.cluster.name}"
    if kind == "time":
        return step_bars({result.mesh: result}, title)
    if kind == "mesh":
        program = result.pricing.program
        per_node = result.cluster.devices_per_node
        devices = partition_devices(program, result.cluster)
        return mesh_axes(dict(program.mesh), per_node, title, devices)
    priced = price_program(result.pricing, record=kind != "roofline")
    if kind == "roofline":
        return step_roofline(priced, title)
    if kind == "timeline":
        return timeline(priced, title)
    return step_memory(priced, result.memory.capacity, title)


@entrance
def plot_side_by_side(
    predictions: "Mapping[str, PredictionResult] | Sequence[PredictionResult]",
    path: Path | str,
    title: str = "",
) -> None:
    """Draw the step times of several predictions as stacked bars, with their ranges.

    >>> import scaling as sc
    >>> where = {"cluster": "dgx-h100", "source": "analytic"}
    >>> steps = [sc.predict("gpt2-124m", mesh=mesh, **where) for mesh in ("data=8", "fsdp=8")]
    >>> sc.plot_side_by_side(steps, "steps.svg", "GPT-2 on 8 H100")    # doctest: +SKIP

    Args:
        predictions: by the label of their bar, or a sequence: labels are then name and mesh.
        path: of the picture (.png, .svg, .pdf).
        title: above it.

    Raises:
        InputError: no prediction, or too many; another suffix, a file that cannot be written.
    """
    if not isinstance(predictions, Mapping):
        several = len({p.name for p in predictions}) > 1
        labels = [f"{p.name} {p.mesh}" if several else p.mesh for p in predictions]
        predictions = {
            f"{number}. {label}": p
            for number, (label, p) in enumerate(zip(labels, predictions, strict=True), 1)
        }
    if not 0 < len(predictions) <= MOST_BARS:
        raise InputError(f"plot {path}: give 1 to {MOST_BARS} predictions, not {len(predictions)}")
    write_picture(step_bars(predictions, title), Path(path))


@entrance
def plot_comparisons(comparisons: "Sequence[ComparisonResult]", path: Path | str) -> None:
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
    points = [point for each in comparisons for point in _points(each, len(comparisons) > 1)]
    names = ", ".join(dict.fromkeys(each.name for each in comparisons))
    if not points:
        raise InputError(f"--plot {path}: nothing was both predicted and measured")
    write_picture(scatter(points, f"{names}: predicted and measured"), Path(path))


def _points(comparison: "ComparisonResult", several: bool) -> Iterator[ScatterPoint]:
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
