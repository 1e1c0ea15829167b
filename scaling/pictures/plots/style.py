"""How every picture looks, and how it is written: PNG, SVG or PDF, the same bytes every time.

    with picture(path) as axes:        # matplotlib's axes, in our style
        axes.plot(sizes, rates)

Pictures are drawn to files, never to a screen. An SVG carries no date, and the names inside it are
drawn from a fixed salt.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaling.meshes.errors import InputError
from scaling.pictures.palette import COLOURS

SIZE = (7.0, 4.0)  # inches
DPI = 150
PICTURES = (".png", ".svg", ".pdf")
DATED = {".svg": "Date", ".pdf": "CreationDate"}  # what matplotlib would write of its own accord
SMALL = 8  # points: labels beside marks, legends
STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "lines.markersize": 5,
    "hatch.linewidth": 0.6,
    "text.parse_math": False,  # dollars in the name of a cluster are no formula
    "svg.hashsalt": "scaling",
}


@contextmanager
def picture(
    *paths: Path, option: str = "--plot", size: tuple[float, float] = SIZE, **grid: Any
) -> Iterator[Any]:
    """Give the axes of an empty picture, and write it to every path once they are drawn on.

    Args:
        paths: their suffixes say the formats.
        option: that names them, for messages.
        size: width and height in inches.
        grid: arguments of matplotlib's `Figure.subplots`.

    Raises:
        InputError: a suffix that is not one of PICTURES, or a file that cannot be written.
    """
    for path in paths:
        check_picture(option, path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    settings: Any = {**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}
    with rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        yield figure.subplots(**grid)
        for path in paths:
            _save(figure, path, option)


def check_picture(option: str, path: Path | None) -> None:
    """Raise InputError for a file that is no picture, before there is anything to draw."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise InputError(f"{option} {path}: end the name with {', '.join(PICTURES)}")


def numbers_as(axis: Any, show: Callable[[float], str]) -> None:
    """Write the numbers of an axis, `axes.xaxis` or `axes.yaxis`, as `show` does; none between."""
    axis.set_major_formatter(lambda value, place: show(value) if value else "0")
    axis.set_minor_formatter(lambda value, place: "")


def legend_beside(axes: Any) -> None:
    """Put the legend to the right of the axes, where it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), borderaxespad=0)


def _save(figure: Any, path: Path, option: str) -> None:
    dated = DATED.get(path.suffix.lower())
    try:
        figure.savefig(path, dpi=DPI, metadata={dated: None} if dated else None)
    except OSError as error:
        raise InputError(f"{option} {path}: cannot write the picture: {error}") from None
