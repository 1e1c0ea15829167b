"""A prediction in a notebook: a table of figures and two bars, time and memory, as inline SVG."""

from collections.abc import Callable, Sequence
from html import escape

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.bars import stacked_bars
from scaling.pictures.svg import svg_text
from scaling.program.ir import Number
from scaling.report.prediction import TIME_TERMS, open_lines, rate_words, step_words, verdict
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import Prediction

WIDTH = 560  # pixels of a bar with its legend


def html(
    prediction: Prediction,
    where: str,
    more: Sequence[tuple[str, str]] = (),
    say: Callable[[str], str] = str,
) -> str:
    """Return a table with the main figures, a bar of the step's time and one of the memory.

    `more`: rows after these, each a name and a text. `say` puts options of a command line into the
    caller's words.
    """
    memory = prediction.memory
    terms = [(words, getattr(prediction.time, name)) for name, words in TIME_TERMS.items()]
    parts = [(name.replace("_", " "), getattr(memory, name)) for name in ON_DEVICE]
    tokens, mfu, hfu = rate_words(prediction)
    rows = [
        ("step", step_words(prediction)),
        *(("open", escape(say(text))) for text in open_lines(prediction)),
        ("tokens/s", tokens or "-"),
        ("MFU, HFU", f"{mfu or '-'}, {hfu or '-'}"),
        ("time", _bar(terms, None, format_time)),
        ("memory", f"{_bar(parts, memory.capacity, format_memory)}{verdict(memory)}"),
        ("bottleneck", escape(prediction.bottleneck)),
        *((name, escape(text)) for name, text in more),
        *(("warning", escape(text)) for text in prediction.warnings),
    ]
    cells = "".join(
        f"<tr><th>{name}</th><td style='text-align:left'>{value}</td></tr>" for name, value in rows
    )
    caption = escape(f"{prediction.name} on {where}, {prediction.grade} figures")
    return f"<table><caption>{caption}</caption>{cells}</table>"


def _bar(
    parts: Sequence[tuple[str, Number]], limit: float | None, show: Callable[[Number], str]
) -> str:
    """Return one stacked bar with a legend, and a dashed line at the limit."""
    row = {f"{name} {show(value)}": float(value) for name, value in parts}
    bar = stacked_bars({"": row}, show, limit, with_sums=False)
    return f"<div style='width:{WIDTH}px'>{svg_text(bar)}</div>"
