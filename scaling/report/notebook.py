"""A prediction in a notebook: a table of figures and two bars, time and memory, as inline SVG."""

from collections.abc import Callable
from html import escape

from scaling.meshes.units import format_time
from scaling.program.ir import Number
from scaling.report.formatting import format_memory, percent, three_digits
from scaling.report.prediction import MEMORY_PARTS, TIME_TERMS
from scaling.simulate.prediction import Prediction

WIDTH, HEIGHT = 480, 16  # pixels of a bar
# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#999999", "#009e73")


def html(prediction: Prediction, where: str) -> str:
    """Return a table with the main figures, a bar of the step's time and one of the memory."""
    terms = [(words, getattr(prediction.time, name)) for name, words in TIME_TERMS.items()]
    owners = [(name.replace("_", " "), getattr(prediction.memory, name)) for name in MEMORY_PARTS]
    memory = prediction.memory
    rows = [
        (
            "step",
            f"{format_time(prediction.step_time)} ({format_time(prediction.step_time_low)} to "
            f"{format_time(prediction.step_time_high)})",
        ),
        ("tokens/s", _optional(prediction.tokens_per_second, three_digits)),
        ("MFU, HFU", f"{_optional(prediction.mfu, percent)}, {_optional(prediction.hfu, percent)}"),
        (
            "time",
            _bar([(n, float(t), format_time(t)) for n, t in terms], float(prediction.step_time)),
        ),
        (
            "memory",
            _bar(
                [(n, float(b), format_memory(b)) for n, b in owners],
                max(float(memory.peak), memory.capacity or 0.0),
            )
            + f"<br>{_verdict(prediction)}",
        ),
        ("bottleneck", escape(prediction.bottleneck)),
        *(("warning", escape(text)) for text in prediction.warnings),
    ]
    cells = "".join(
        f"<tr><th>{name}</th><td style='text-align:left'>{value}</td></tr>" for name, value in rows
    )
    caption = escape(f"{prediction.name} on {where}, {prediction.grade} figures")
    return f"<table><caption>{caption}</caption>{cells}</table>"


def _verdict(prediction: Prediction) -> str:
    memory = prediction.memory
    if memory.capacity is None:
        return format_memory(memory.peak)
    state = "fits" if memory.fits else "<b>DOES NOT FIT</b>"
    return f"{format_memory(memory.peak)} of {format_memory(memory.capacity)}: {state}"


def _bar(parts: list[tuple[str, float, str]], full: float) -> str:
    """Return one stacked bar with a legend; `full` is the value of the whole width."""
    left, shapes, legend = 0.0, [], []
    for (name, value, text), colour in zip(parts, COLOURS, strict=False):
        if value <= 0:
            continue
        width = WIDTH * value / (full or 1.0)
        label = escape(f"{name} {text}")
        shapes.append(
            f"<rect x='{left:.1f}' width='{width:.1f}' height='{HEIGHT}' fill='{colour}'>"
            f"<title>{label}</title></rect>"
        )
        legend.append(f"<span style='color:{colour}'>&#9632;</span> {label}")
        left += width
    frame = f"<rect width='{WIDTH}' height='{HEIGHT}' fill='none' stroke='#999999'/>"
    svg = f"<svg width='{WIDTH}' height='{HEIGHT}' role='img'>{''.join(shapes)}{frame}</svg>"
    return f"{svg}<br><small>{' '.join(legend)}</small>"


def _optional(value: Number | None, show: Callable[[Number], str]) -> str:
    return "-" if value is None else show(value)
