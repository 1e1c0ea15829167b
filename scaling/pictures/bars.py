"""Bars to the right, a row for each case: the parts of a whole, or quantities side by side.

stacked_bars   where the time or the memory goes
grouped_bars   two or three quantities of each case
dots           a mark for each quantity on one scale, such as how far numbers are off
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from scaling.pictures.axes import Scale, ticks_below
from scaling.pictures.legend import Look, legend, mark
from scaling.pictures.palette import BLUE, COLOURS, GREY, ORANGE, SKY, VERMILION
from scaling.pictures.shapes import (
    FONT,
    INK,
    SMALL,
    WIDTH,
    Line,
    Picture,
    Rect,
    Shape,
    Text,
    text_width,
)

ROW, BAR, GAP, AXIS = 32.0, 22.0, 12.0, 44.0  # pixels: a row, its bar, between groups, an axis
BARS = (BLUE, ORANGE, GREY)
FAINT = 0.4  # opacity of what cannot be
BETWEEN = 8.0  # pixels from a name to its bar
Show = Callable[[float], str]


def stacked_bars(
    rows: Mapping[str, Mapping[str, float]],
    show: Show,
    limit: float | None = None,
    *,
    title: str = "",
    colours: Sequence[str] = COLOURS,
    notes: Sequence[str] = (),
    ranges: Sequence[tuple[float, float]] = (),
    faint: Collection[str] = (),
    axis: str = "",
) -> Picture:
    """Return a bar for each row with its parts, the sum behind it, and a legend.

    Args:
        rows: name of a row -> part -> value; all rows have the same parts.
        show: a value as text.
        limit: where a dashed line is drawn, such as the memory of a device; None: nowhere.
        title: above the picture.
        colours: of the parts, in their order.
        notes: what stands behind each bar; (): its sum.
        ranges: low and high of each bar's thin line; (): none.
        faint: rows whose bars are pale.
        axis: name of the axis below; "": the values stand in the notes alone.
    """
    notes = notes or [show(sum(row.values())) for row in rows.values()]
    ends = [high for _, high in ranges] or [sum(row.values()) for row in rows.values()]
    left, behind = _names_width(rows), max(text_width(note, SMALL) for note in notes) + 12
    most = max(*ends, *(sum(row.values()) for row in rows.values()), limit or 0.0, 1e-300)
    scale = (WIDTH - left - behind) / most
    height = len(rows) * ROW
    shapes: list[Shape] = []
    if axis:
        shapes = ticks_below(Scale(0, most, axis, show), left, most * scale, 0, height)
    for number, (name, row) in enumerate(rows.items()):
        top, x = number * ROW, left
        middle = top + BAR / 2 + 5
        shapes.append(Text(left - BETWEEN, middle, name, "end"))
        for (part, value), colour in zip(row.items(), colours, strict=False):
            if value > 0:
                words = f"{part}: {show(value)}"
                pale = FAINT if name in faint else 1.0
                shapes.append(Rect(x, top, value * scale, BAR, colour, INK, 0.5, pale, "", words))
                x += value * scale
        if ranges:
            x = left + ranges[number][1] * scale
            y, low = top + BAR / 2, left + ranges[number][0] * scale
            shapes.append(Line([(low, y), (x, y)], INK, 1.2))
        shapes.append(Text(x + 6, middle, notes[number], size=SMALL, halo=bool(axis)))
    if limit is not None:
        at = left + limit * scale
        shapes.append(Line([(at, 0), (at, height)], INK, 2, "4 4"))
    parts = {part: colour for part, colour in zip(next(iter(rows.values())), colours, strict=False)}
    shown = {p: Look(c) for p, c in parts.items() if any(row[p] > 0 for row in rows.values())}
    entries, bottom = legend(shown, height + (AXIS if axis else 0), WIDTH)
    return Picture(title, WIDTH, bottom + 4, [*shapes, *entries])


def grouped_bars(
    groups: Sequence[tuple[str, Sequence[float]]],
    names: Sequence[str],
    show: Show,
    title: str = "",
) -> Picture:
    """Return a group of bars for each name of `groups`, each with its value behind it.

    Args:
        groups: the name of each group and its values, one for each of `names`.
        names: of the bars of a group, up to three.
        show: writes a value.
        title: above the picture.
    """
    most = max(value for _, values in groups for value in values) or 1.0
    left = _names_width(name for name, _ in groups)
    behind = 12 + max(text_width(show(value), SMALL) for _, values in groups for value in values)
    scale = (WIDTH - left - behind) / most
    shapes, top = legend({name: Look(c) for name, c in zip(names, BARS, strict=False)}, 0, WIDTH)
    top += GAP / 2
    for name, values in groups:
        middle = top + BAR * len(values) / 2
        shapes.append(Text(left - BETWEEN, middle + 5, name, "end"))
        for value, what, colour in zip(values, names, BARS, strict=False):
            words = f"{name}, {what}: {show(value)}"
            bar = Rect(left, top, scale * value, BAR - 2, colour, words=words)
            shapes += [bar, Text(left + scale * value + 6, top + BAR - 7, show(value), size=SMALL)]
            top += BAR
        top += GAP
    return Picture(title, WIDTH, top, shapes)


def dots(
    rows: Mapping[str, Mapping[str, float]],
    looks: Mapping[str, Look],
    scale: Scale,
    *,
    title: str = "",
    at: float | None = None,
    row: float = 22.0,
    width: float = WIDTH,
) -> Picture:
    """Return a row for each name, with a mark for each quantity that it has.

    Args:
        rows: name of a row -> quantity -> value; values beyond the scale stand at its end.
        looks: of the quantities; the first and second stand on one line, the next two below, ...
        scale: the axis.
        title: above the picture.
        at: where a line goes down, such as "right".
        row: pixels of a row.
        width: pixels of the picture.
    """
    size = min(SMALL + 1, row - 4)
    left = _names_width(rows, size)
    across, bottom = width - left - 20, len(rows) * row
    shapes = ticks_below(scale, left, across, 0, bottom)
    lines = {what: number // 2 for number, what in enumerate(looks)}
    x = lambda value: left + scale.share(value) * across
    if at is not None:
        shapes.append(Line([(x(at), 0), (x(at), bottom)], INK, 1))
    for number, (name, values) in enumerate(rows.items()):
        y = (number + 0.5) * row
        shapes.append(Text(left - 12, y + 5, name, "end", size=size))
        for what, value in values.items():
            words = f"{name}, {what}: {scale.show(value)}"
            shift = (lines[what] - (max(lines.values())) / 2) * row * 0.4
            shapes += mark((x(value), y + shift), looks[what], words)
    entries, end = legend(looks, bottom + (AXIS if scale.name else 24), width)
    return Picture(title, width, end + 4, [*shapes, *entries])


def _names_width(names: Iterable[str], size: float = FONT) -> float:
    """Pixels left of the bars."""
    return 16 + max(text_width(name, size) for name in names)


def ratios(rows: Mapping[str, float], right: float) -> Picture:
    """Return how far numbers are off, each a dot on a logarithmic scale; at its ends also beyond.

    Args:
        rows: name -> what was said over what is so, above 0.
        right: relative distance from 1 up to which it is right.
    """
    looks = {"right": Look(VERMILION, "o"), "off": Look(SKY, "o")}
    show = lambda ratio: f"{ratio:.3g}" if ratio >= 1 else f"1/{1 / ratio:.3g}"
    scale = Scale(1 / 8, 16, "times what is so", show, base=2)
    kinds = {name: "right" if abs(r - 1) <= right else "off" for name, r in rows.items()}
    return dots({name: {kinds[name]: r} for name, r in rows.items()}, looks, scale, at=1)
