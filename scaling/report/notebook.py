"""A prediction in a notebook: a table of figures and two bars, time and memory, as inline SVG."""

from collections.abc import Callable, Sequence
from html import escape

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.palette import COLOURS
from scaling.program.ir import Number
from scaling.report.prediction import TIME_TERMS, open_lines, rate_words, step_words, verdict
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import Prediction

WIDTH, HEIGHT = 480, 16  # pixels of a bar


def html(prediction: Prediction, where: str) -> str:
    """Return a table with the main figures, a bar of the step's time and one of the memory."""
    memory, step = prediction.memory, prediction.step_time
    terms = [(words, getattr(prediction.time, name)) for name, words in TIME_TERMS.items()]
    parts = [(name.replace("_", " "), getattr(memory, name)) for name in ON_DEVICE]
    tokens, mfu, hfu = rate_words(prediction)
    full = max(float(memory.peak), memory.capacity or 0.0)
    rows = [
        ("step", step_words(prediction)),
        *(("open", escape(text)) for text in open_lines(prediction)),
        ("tokens/s", tokens or "-"),
        ("MFU, HFU", f"{mfu or '-'}, {hfu or '-'}"),
        ("time", _bar(terms, float(step), format_time)),
        ("memory", f"{_bar(parts, full, format_memory)}<br>{verdict(memory)}"),
        ("bottleneck", escape(prediction.bottleneck)),
        *(("warning", escape(text)) for text in prediction.warnings),
    ]
    cells = "".join(
        f"<tr><th>{name}</th><td style='text-align:left'>{value}</td></tr>" for name, value in rows
    )
    caption = escape(f"{prediction.name} on {where}, {prediction.grade} figures")
    return f"<table><caption>{caption}</caption>{cells}</table>"


def _bar(parts: Sequence[tuple[str, Number]], full: float, show: Callable[[Number], str]) -> str:
    """Return one stacked bar with a legend; `full` is the value of the whole width."""
    left, shapes, legend = 0.0, [], []
    for (name, value), colour in zip(parts, COLOURS, strict=False):
        if value <= 0:
            continue
        width = WIDTH * float(value) / (full or 1.0)
        label = escape(f"{name} {show(value)}")
        shapes.append(
            f"<rect x='{left:.1f}' width='{width:.1f}' height='{HEIGHT}' fill='{colour}'>"
            f"<title>{label}</title></rect>"
        )
        legend.append(f"<span style='color:{colour}'>&#9632;</span> {label}")
        left += width
    frame = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#999999'/>"
    svg = f"<svg width='{WIDTH}' height='{HEIGHT}' role='img'>{''.join(shapes)}{frame}</svg>"
    return f"{svg}<br><small>{' '.join(legend)}</small>"
