"""Bars and marks in a row for each case.

step_bars      step times cut into their terms, with their ranges; pale: does not fit in memory
stacked_bars   where the time or the memory goes
grouped_bars   two or three quantities of each case
dots           a mark for each quantity on one scale
ratios         how far numbers are off
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from scaling.meshes.units import format_memory, format_time
from scaling.pictures.axes import Scale
from scaling.pictures.chart import Series, chart
from scaling.pictures.legend import Look
from scaling.pictures.palette import BLUE, COLOURS, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION
from scaling.pictures.rows import Bar, Row, boxes, row_frame
from scaling.pictures.shapes import INK, SMALL, WIDTH, Picture
from scaling.simulate.prediction import Prediction

BAR, GAP = 22.0, 10.0  # pixels: a bar, from it to the next
BARS = (BLUE, ORANGE, GREY)
Show = Callable[[float], str]
TERMS = {  # of a step: words and colour
    "compute": ("compute", BLUE),
    "exposed_communication": ("waiting for communication", ORANGE),
    "bubble": ("pipeline bubble", GREY),
    "optimizer": ("optimizer", GREEN),
    "host": ("host", PURPLE),
}


def step_bars(predictions: Mapping[str, Prediction], title: str = "") -> Picture:
    """Return stacked bars of step times, the first one on top; a line is the range."""
    rows: dict[str, Row] = {}
    for label, p in predictions.items():
        bars = stack({words: getattr(p.time, t) for t, (words, _) in TERMS.items()}, format_time)
        low, high = p.step_time_low, p.step_time_high
        pale, is_open = p.memory.fits is False, not math.isfinite(high)
        note = f"at least {format_time(low)}" if is_open else format_time(p.step_time)
        note += f", MFU {p.mfu:.0%}" if p.mfu is not None else ""
        note += f", {format_memory(round(float(p.memory.peak), -8))}"
        note += ", does not fit" if pale else ""
        ends = float(low), float(p.step_time if is_open else high)
        rows[label] = Row(bars, BAR, GAP, note=note, ends=ends, pale=pale)
    most = max(bar for row in rows.values() for bar in (row.bars[-1].end, *(row.ends or ())))
    scale = Scale(0, most, "time of a step, predicted", format_time)
    return boxes(rows, dict(TERMS.values()), scale, title)


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    show: Show,
    limit: float | None = None,
    with_sums: bool = True,
) -> Picture:
    """Return a bar for each row with its parts, the sum behind it, and a legend.

    Args:
        rows: name of a row -> part -> value; all rows have the same parts.
        limit: where a dashed line is drawn, such as the memory of a device; None: nowhere.
        with_sums: False: the sum of a row is written elsewhere, or not known.
    """
    drawn = {
        name: Row(stack(row, show), BAR, GAP, note=show(sum(row.values())) if with_sums else "")
        for name, row in rows.items()
    }
    most = max(*(sum(row.values()) for row in rows.values()), limit or 0.0, 1e-300)
    colours = dict(zip(next(iter(rows.values())), COLOURS, strict=False))
    return boxes(drawn, colours, Scale(0, most, ticks=()), limit=limit)


def stack(parts: Mapping[str, float], show: Show) -> list[Bar]:
    """Return one bar for each part that is more than nothing, one behind the other."""
    ends = [0.0, *accumulate(parts.values())]
    return [
        Bar(ends[number], ends[number + 1], part, f"{part}: {show(value)}")
        for number, (part, value) in enumerate(parts.items())
        if value > 0
    ]


def grouped_bars(
    groups: Sequence[tuple[str, Sequence[float | None]]],
    names: Sequence[str],
    show: Show,
    title: str = "",
) -> Picture:
    """Return a group of bars for each name of `groups`, each with its value behind it.

    Args:
        groups: the name of each group and its values, one for each of `names`; None: not known.
        names: of the bars of a group, up to three.
    """
    rows: dict[str, Row] = {}
    for group, values in groups:
        for number, (value, name) in enumerate(zip(values, names, strict=True)):
            value_text = "not known" if value is None else show(value)
            bar = Bar(0, value or 0.0, name, f"{group}, {name}: {value_text}")
            gap = GAP if number == len(names) - 1 else 2.0
            rows[f"_{group} {name}" if number else group] = Row([bar], BAR, gap, note=value_text)
    most = max((value or 0.0 for _, values in groups for value in values), default=0.0) or 1.0
    return boxes(rows, dict(zip(names, BARS, strict=False)), Scale(0, most, ticks=()), title)


def dots(
    rows: Mapping[str, Mapping[str, float]],
    looks: Mapping[str, Look],
    scale: Scale,
    title: str = "",
    at: float | None = None,
    row: float = 22.0,
    width: float = WIDTH,
) -> Picture:
    """Return a row for each name, with a mark for each quantity that it has.

    Args:
        rows: name of a row -> quantity -> value; values beyond the scale stand at its end.
        looks: of the quantities; the first and second stand on one line, the next two below, ...
        at: where a line goes down, such as "right"; None: nowhere.
    """
    font, lines = min(SMALL + 1, row - 4), (len(looks) - 1) // 2
    frame, tops = row_frame(dict.fromkeys(rows, (row, 0.0)), scale, width, font=font)
    series: dict[str, Series] = {}
    if at is not None:
        series["_at"] = Series(Look(INK, "", "", thick=1), [(at, 0.0), (at, frame.high)])
    for number, (what, look) in enumerate(looks.items()):
        line = row / 2 + (number // 2 - lines / 2) * row * 0.4
        here = [
            (name, values[what], top + line)
            for (name, values), top in zip(rows.items(), tops, strict=True)
            if what in values
        ]
        words = [f"{name}, {what}: {scale.show(value)}" for name, value, _ in here]
        series[what] = Series(look, [(value, y) for _, value, y in here], words=words)
    return chart(title, frame, series)


def ratios(rows: Mapping[str, float], right: float) -> Picture:
    """Return how far numbers are off, each a dot on a logarithmic scale; at its ends also beyond.

    Args:
        rows: name -> what was value_text over what is so, above 0.
        right: relative distance from 1 up to which it is right.
    """
    looks = {"right": Look(VERMILION, "o"), "off": Look(SKY, "o")}
    show = lambda ratio: f"{ratio:.3g}" if ratio >= 1 else f"1/{1 / ratio:.3g}"
    scale = Scale(1 / 8, 16, "times what is so", show, base=2)
    kinds = {name: "right" if abs(r - 1) <= right else "off" for name, r in rows.items()}
    return dots({name: {kinds[name]: r} for name, r in rows.items()}, looks, scale, at=1)
