"""A step over time: a row for each pipeline stage, its compute above its communication.

stage 0   compute        forward ... backward ... optimizer, hatched where it has no work
          communication  all-gathers, permutes, ...
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.units import format_time
from scaling.pictures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.plots.style import numbers_as, picture
from scaling.simulate.stages import Span, stage_spans
from scaling.simulate.step import Priced

COLOURS = {  # of what runs, in the order of the legend
    "forward": BLUE,
    "remat": SKY,
    "backward": ORANGE,
    "optimizer": GREEN,
    "": GREY,
    "bubble": "#ffffff",
    "communication": PURPLE,
    "permute": VERMILION,
}
WORDS = {
    "remat": "computed again",
    "": "other compute",
    "bubble": "no work",
    "permute": "to the next device",
}
LANES = {"compute": (0.0, 0.5), "communication": (0.54, 0.15), "permute": (0.71, 0.15)}  # top, high
MOST_STAGES = 32  # rows of more are too thin to be read: the first and last ones are drawn
PARTS = 1000  # of a row, each drawn as what fills most of it: finer than a pixel on a screen
ROW = 0.5  # inches of a stage


def plot_timeline(priced: Priced, title: str, path: Path) -> None:
    """Draw what every stage computes and sends over the time of a step.

    Args:
        priced: with its timeline recorded.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    stages = stage_spans(priced)
    rows = list(range(len(stages)))
    if len(rows) > MOST_STAGES:
        rows = [*rows[: MOST_STAGES // 2], *rows[-MOST_STAGES // 2 :]]
    end = max((event.end for event in priced.timeline.events), default=0.0)
    with picture(path, size=(9, 1.6 + ROW * len(rows))) as axes:
        used = set().union(*(_draw(axes, row, stages[s], end) for row, s in enumerate(rows)))
        names = [f"stage {stage}" for stage in rows] if len(stages) > 1 else ["every device"]
        axes.set_yticks([row + 0.43 for row in range(len(rows))], names)
        axes.set(xlim=(0, end), ylim=(len(rows), -0.1), xlabel="time", title=title)
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        numbers_as(axes.xaxis, format_time)
        shown = [_patch(name) for name in COLOURS if name in used]
        axes.figure.legend(handles=shown, loc="outside lower center", ncols=min(5, len(shown)))


def _draw(axes: Any, row: int, spans: Sequence[Span], end: float) -> set[str]:
    """Draw a row; return what it holds, by the names of COLOURS."""
    by_lane: dict[str, list[Span]] = {}
    for span in spans:
        by_lane.setdefault(span.stream, []).append(span)
    held = set()
    for lane, (top, high) in LANES.items():
        for name, bars in _bars(by_lane.get(lane, []), end, least=0.5 * (lane == "compute")):
            axes.add_patch(_boxes(bars, row + top, high, name))
            held.add(name)
    return held


def _boxes(bars: Sequence[tuple[float, float]], top: float, high: float, name: str) -> Any:
    """One shape of all the boxes of a kind in a row: a short text in an SVG."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Shape

    corners = [
        [(start, top), (start + wide, top), (start + wide, top + high), (start, top + high)]
        for start, wide in bars
    ]
    return PathPatch(Shape.make_compound_path_from_polys(np.array(corners)), **_look(name))


def _bars(
    spans: Sequence[Span], end: float, least: float
) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """(kind, its (start, length) pairs) of a row in PARTS equal parts.

    A part is of the kind that fills most of it, and of none where all fill no more than `least`.
    """
    kinds = list(dict.fromkeys(_name(span) for span in spans))
    if not kinds:
        return
    edges = np.linspace(0, end, PARTS + 1)
    filled = np.array([_filled([s for s in spans if _name(s) == k], edges) for k in kinds])
    chosen = np.where(filled.sum(axis=0) > least * end / PARTS, filled.argmax(axis=0), -1)
    borders = np.flatnonzero(np.diff(chosen, prepend=-2, append=-2))
    for number, kind in enumerate(kinds):
        pairs = zip(borders[:-1], borders[1:], strict=True)
        runs = [(a, b) for a, b in pairs if chosen[a] == number]
        if runs:
            yield kind, [(float(edges[a]), float(edges[b] - edges[a])) for a, b in runs]


def _filled(spans: Sequence[Span], edges: np.ndarray) -> np.ndarray:
    """Seconds of each part between two edges that the spans, in order, fill."""
    times = np.array([(span.start, span.end) for span in spans])
    lengths = np.cumsum(times[:, 1] - times[:, 0])
    before = np.stack([np.concatenate([[0.0], lengths[:-1]]), lengths], axis=1)
    return np.diff(np.interp(edges, times.ravel(), before.ravel()))


def _name(span: Span) -> str:
    return span.what if span.what in COLOURS else "communication"


def _look(name: str) -> dict[str, Any]:
    """Fill of a kind; what is no work is hatched."""
    if name == "bubble":
        return {"facecolor": COLOURS[name], "edgecolor": GREY, "hatch": "////", "linewidth": 0.4}
    return {"facecolor": COLOURS[name], "linewidth": 0}


def _patch(name: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(label=WORDS.get(name, name), **_look(name))
