"""Values with their units, and tables of them, as text for a terminal."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import floor, log10
from typing import Any

from scaling.meshes.units import (
    format_binary,
    format_days,
    format_memory,
    format_rate,
    format_size,
    format_time,
)

Value = float | int | str | None
DAY = 86_400.0  # s
HOURS = 7200.0  # s from which a time is in hours
MOST_DIGITS = 2.0**53  # from here on floats are not whole numbers by themselves
LEAST_DIGITS = 1e-9  # below it a power of ten says more than zeros
EXPONENT = 1e18  # FLOPs from which a power of ten says more than a prefix
BINARY, DECIMAL = "bytes in GiB", "bytes in GB"  # where one page has sizes of both kinds
RATES = ("bytes/s", "FLOP/s", "Hz", "W")  # with a decimal prefix
FORMATS: Mapping[str, Callable[[Any], str]] = {
    "s": lambda seconds: _time(seconds),
    "bytes": format_size,
    BINARY: format_binary,
    DECIMAL: format_memory,
    "FLOPs": lambda n: f"{plain(n)} FLOPs" if n >= EXPONENT else format_rate(n, "FLOPs"),
    **{unit: partial(format_rate, unit=unit.replace("bytes", "B")) for unit in RATES},
}


def show(value: Value, unit: str) -> str:
    """Return a value with its unit: `1.04 ms`, `2,475 tokens/device`."""
    if value is None:
        return "none"
    if isinstance(value, str):
        return value
    if unit in FORMATS:
        return FORMATS[unit](value)
    if abs(value) >= MOST_DIGITS:
        number = plain(value)
    elif value == int(value):
        number = f"{int(value):,}"
    else:
        number = f"{value:,.0f}" if abs(value) >= 1e4 else _digits(value)
    return f"{number} {unit}".rstrip()


def _digits(value: float) -> str:
    """Return a number with four digits, and a small one without a power of ten."""
    if not LEAST_DIGITS <= abs(value) < 1e-4:
        return f"{value:.4g}"
    return f"{value:.{3 - floor(log10(abs(value)))}f}"


def _time(seconds: float) -> str:
    """Return a time; long ones in hours or days."""
    if seconds >= DAY:
        return format_days(seconds)
    return f"{seconds / 3600:.3g} h" if seconds >= HOURS else format_time(seconds)


def plain(value: float) -> str:
    """Return a number as arithmetic takes it: 989e12, 8, 0.5."""
    if abs(value) < 1e5:
        return f"{value:g}"
    return f"{value:.4g}".replace("e+0", "e").replace("e+", "e")


def table(rows: tuple[Mapping[str, Value], ...]) -> Iterator[str]:
    """Return the lines of a table; a heading is `name (unit)`, and its cells have that unit."""
    if not rows:
        return
    names = list(rows[0])
    units = {name: unit_of(name) for name in names}
    cells = [[name.partition(" (")[0] for name in names]]
    cells += [[show(row[name], units[name]) for name in names] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        yield "  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)).rstrip()


def unit_of(heading: str) -> str:
    """Return the unit that the heading of a column states."""
    return heading.partition(" (")[2].rstrip(")")
