"""Step times side by side: a bar for each prediction, cut into its terms, with its range.

A pale bar does not fit in memory; the black line is the prediction's range.
"""

import math
from collections.abc import Mapping

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.axes import Scale
from scaling.pictures.bars import BAR, GAP, stack
from scaling.pictures.palette import BLUE, GREEN, GREY, ORANGE, PURPLE
from scaling.pictures.rows import Row, boxes
from scaling.pictures.shapes import Picture
from scaling.simulate.prediction import Prediction

TERMS = {  # of a step: words and colour
    "compute": ("compute", BLUE),
    "exposed_communication": ("waiting for communication", ORANGE),
    "bubble": ("pipeline bubble", GREY),
    "optimizer": ("optimizer", GREEN),
    "host": ("host", PURPLE),
}


def step_bars(predictions: Mapping[str, Prediction], title: str = "") -> Picture:
    """Return stacked bars of step times, the first one on top.

    Args:
        predictions: by the label of their bar.
    """
    rows: dict[str, Row] = {}
    for label, p in predictions.items():
        terms = {words: float(getattr(p.time, term)) for term, (words, _) in TERMS.items()}
        high = p.step_time_high if math.isfinite(p.step_time_high) else p.step_time
        ends, pale = (float(p.step_time_low), float(high)), p.memory.fits is False
        bars = stack(terms, format_time)
        rows[label] = Row(bars, BAR, GAP, note=_note(p), ends=ends, pale=pale)
    most = max(bar for row in rows.values() for bar in (row.bars[-1].end, *(row.ends or ())))
    scale = Scale(0, most, "time of a step, predicted", format_time)
    return boxes(rows, dict(TERMS.values()), scale, title)


def _note(prediction: Prediction) -> str:
    """`6.5 s, MFU 59%, 47 GB`."""
    low, is_open = prediction.step_time_low, not math.isfinite(prediction.step_time_high)
    parts = [f"at least {format_time(low)}" if is_open else format_time(prediction.step_time)]
    parts += [f"MFU {prediction.mfu:.0%}"] if prediction.mfu is not None else []
    parts += [format_memory(round(float(prediction.memory.peak), -8))]
    parts += ["does not fit"] if prediction.memory.fits is False else []
    return ", ".join(parts)
