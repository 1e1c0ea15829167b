"""Step times side by side: a bar for each prediction, cut into its terms, with its range.

A hatched bar does not fit in memory; the black line is the prediction's range.
"""

import math
from collections.abc import Mapping
from pathlib import Path

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.palette import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE
from scaling.pictures.plots.style import SMALL, numbers_as, picture
from scaling.simulate.prediction import Prediction

TERMS = {  # of a step: words and colour
    "compute": ("compute", BLUE),
    "exposed_communication": ("waiting for communication", ORANGE),
    "bubble": ("pipeline bubble", GREY),
    "optimizer": ("optimizer", GREEN),
    "host": ("host", PURPLE),
}
LEAST = 0.005  # of the longest bar: a term that is thinner everywhere has no entry in the legend
ROW = 0.42  # inches of a bar
NOTES = 1.45  # of the width of the longest bar, with room for what stands behind it


def plot_steps(predictions: Mapping[str, Prediction], title: str, path: Path) -> None:
    """Stacked bars of step times, the first one on top.

    Args:
        predictions: by the label of their bar.
        title, path: see `plot_bandwidth`.

    Raises:
        InputError: see `plot_bandwidth`.
    """
    labels, found = list(predictions), list(predictions.values())
    rows, longest = range(len(found)), max(map(_end, found))
    with picture(path, size=(8, 1.2 + ROW * len(found))) as axes:
        left = [0.0] * len(found)
        for term, (words, colour) in TERMS.items():
            widths = [float(getattr(p.time, term)) for p in found]
            shown = words if max(widths) >= LEAST * longest else None
            bars = axes.barh(rows, widths, 0.8, left=left, color=colour, label=shown)
            for bar, p in zip(bars, found, strict=True):
                bar.set_hatch("" if p.memory.fits is not False else "///")
            left = [a + b for a, b in zip(left, widths, strict=True)]
        for row, p in enumerate(found):
            axes.hlines(row, p.step_time_low, _end(p), color=BLACK, linewidth=1)
            axes.text(_end(p), row, f"  {_note(p)}", va="center", fontsize=SMALL)
        axes.set_yticks(list(rows), labels)
        axes.invert_yaxis()
        axes.set(xlim=(0, NOTES * longest), xlabel="time of a step, predicted", title=title)
        numbers_as(axes.xaxis, format_time)
        axes.figure.legend(loc="outside lower center", ncols=len(TERMS))


def _end(prediction: Prediction) -> float:
    """The high end of the range; of one without, the step itself."""
    high = float(prediction.step_time_high)
    return high if math.isfinite(high) else float(prediction.step_time)


def _note(prediction: Prediction) -> str:
    """`6.5 s, MFU 59%, 47 GB`."""
    low, is_open = prediction.step_time_low, not math.isfinite(prediction.step_time_high)
    parts = [f"at least {format_time(low)}" if is_open else format_time(prediction.step_time)]
    parts += [f"MFU {prediction.mfu:.0%}"] if prediction.mfu is not None else []
    parts += [format_memory(round(float(prediction.memory.peak), -8))]
    parts += ["does not fit"] if prediction.memory.fits is False else []
    return ", ".join(parts)
