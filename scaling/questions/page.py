"""An answer as text, for a terminal."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from scaling.meshes.formula import substituted
from scaling.meshes.units import format_rate, format_size, format_time
from scaling.questions.answer import Answer, Input, Value

GUIDE = "https://jax-ml.github.io/scaling-book/"
DAY = 86_400.0  # s
HOURS = 7200.0  # s from which a time is in hours
MOST_DIGITS = 1e15  # from here on floats are not whole numbers by themselves
EXPONENT = 1e18  # FLOPs from which a power of ten says more than a prefix
RATES = ("bytes/s", "FLOP/s", "Hz", "W")  # with a decimal prefix
NONE: frozenset[Input] = frozenset()
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "s": lambda seconds: _time(seconds),
    "bytes": format_size,
    "FLOPs": lambda n: f"{plain(n)} FLOPs" if n >= EXPONENT else format_rate(n, "FLOPs"),
    **{unit: partial(format_rate, unit=unit.replace("bytes", "B")) for unit in RATES},
}


def page(answer: Answer) -> str:
    """Return the page: answer, formula with its numbers, what binds, parts, table, notes.

    A formula gives the number above it; after `textbook =` it gives the textbook's in the brackets.
    """
    return "\n".join(_lines(answer))


def show(value: Value, unit: str) -> str:
    """Return a value with its unit: `1.04 ms`, `2,475 tokens/device`."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if unit in FORMATS:
        return FORMATS[unit](value)
    whole = abs(value) < MOST_DIGITS and value == int(value)
    number = (
        f"{int(value):,}" if whole else f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    )
    return f"{number} {unit}".rstrip()


def _lines(answer: Answer, indent: str = "", shown: frozenset[Input] = NONE) -> Iterator[str]:
    """Return the lines of an answer; inputs that stand above it are not explained again."""
    inner = indent + "  "
    yield f"{indent}{answer.name}: {show(answer.answer, answer.unit)}{_beside(answer)}"
    if answer.formula:
        numbers = {i.symbol: plain(i.value) for i in answer.inputs}
        whose = "textbook " * (answer.answer != answer.ideal)
        yield f"{inner}{whose}= {answer.formula}"
        yield f"{inner}{' ' * len(whose)}= {substituted(answer.formula, numbers)}"
    new = [i for i in answer.inputs if i not in shown]
    width = max((len(i.symbol) for i in new), default=0)
    for given in new:
        value = show(given.value, given.unit)
        yield f"{inner}{given.symbol.ljust(width)}  {value}  {given.meaning}".rstrip()
    if answer.binds:
        yield f"{inner}binds: {answer.binds}"
    shown = shown.union(answer.inputs)
    for part in answer.parts:
        if part.formula or part.inputs or part.rows or part.parts or part.binds:
            yield from _lines(part, inner, shown)
            shown = shown.union(part.inputs)
        else:
            beside = f"  ({'; '.join(part.notes)})" if part.notes else ""
            yield f"{inner}{part.name}: {show(part.answer, part.unit)}{_beside(part)}{beside}"
    yield from (inner + line for line in _table(answer.rows))
    yield from (f"{inner}note: {note}" for note in answer.notes)
    if answer.section and not indent:
        chapter, _, section = answer.section.partition(": ")
        yield f"{inner}guide: {GUIDE}{chapter}{', ' * bool(section)}{section}"


def _time(seconds: float) -> str:
    """Return a time; long ones in hours or days."""
    if seconds >= DAY:
        return f"{seconds / DAY:,.3g} days"
    return f"{seconds / 3600:.3g} h" if seconds >= HOURS else format_time(seconds)


def _beside(answer: Answer) -> str:
    """Return the number that is not given, the textbook's or the fitted one, in brackets."""
    if answer.ideal is None or answer.fitted is None or answer.ideal == answer.fitted:
        return ""
    word, other = "textbook", answer.ideal
    if answer.answer == answer.ideal:
        word, other = "fitted", answer.fitted
    return f" ({word} {show(other, answer.unit)})"


def plain(value: float) -> str:
    """Return a number as arithmetic takes it: 989e12, 8, 0.5."""
    if abs(value) < 1e5:
        return f"{value:g}"
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def _table(rows: tuple[Mapping[str, Value], ...]) -> Iterator[str]:
    """Return the lines of a table; a heading is `name (unit)`, and its cells have that unit."""
    if not rows:
        return
    names = list(rows[0])
    units = {name: name.partition(" (")[2].rstrip(")") for name in names}
    cells = [[name.partition(" (")[0] for name in names]]
    cells += [[show(row[name], units[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip()
