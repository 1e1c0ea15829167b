"""Predicted beside measured, as a page of text.

step time: 81 ms predicted, 86 ms measured, error -5.8%, spread 2.1% over 47 steps
"""

from collections.abc import Callable, Mapping

from scaling.compare.compare import Comparison, Pair
from scaling.meshes.units import format_size, format_time
from scaling.report.formatting import columns

MOST_LINES = 12  # collectives and kernels that the table shows
HEAD = ("predicted", "measured", "error")
Row = tuple[str, ...]


def table(comparison: Comparison) -> str:
    """The comparison as a page of text."""
    parts = [_section(title, rows) for title, rows in sections(comparison).items()]
    return "\n".join([*head_lines(comparison), *parts])


def head_lines(comparison: Comparison) -> list[str]:
    """Name, setting, step time with its range, memory and warnings, one line each."""
    step = comparison.step_time
    spread = "" if step.spread is None else f", spread {step.spread:.1%}"
    count = f"{step.steps} step{'s' * (step.steps != 1)}"
    low, high = map(format_time, comparison.step_range)
    memory = words(comparison.memory, format_size)
    if comparison.memory.measured is None and comparison.compiled_memory is not None:
        memory += f", {format_size(comparison.compiled_memory)} planned by the compiler"
    return [
        f"{comparison.name} on {comparison.machine}, {comparison.grade} figures",
        comparison.setting,
        f"step time: {words(step.seconds)}{spread} over {count}; range {low} to {high}",
        f"memory of a device: {memory}",
        *(f"note: {text}" for text in comparison.warnings),
    ]


def sections(comparison: Comparison) -> dict[str, list[Row]]:
    """Title -> rows of (name, predicted, measured, error); empty ones are left out.

    Single kernels are left out where they cannot be compared.
    """
    kernels = () if comparison.shares_cores else comparison.kernels
    found = {
        "time": _rows(comparison.time),
        "seconds over all devices": _rows(comparison.sums),
        "collectives": [
            _row(f"{c.kind}[{c.axis}] {format_size(c.bytes)}", c.seconds)
            for c in comparison.collectives[:MOST_LINES]
        ],
        "bytes of collectives": [
            _row(f"{c.kind}[{c.axis}] {format_size(c.bytes)}", c.step_bytes, format_size)
            for c in comparison.collectives[:MOST_LINES]
            if c.step_bytes.measured is not None
        ],
        "kernels that differ most": [
            _row(f"{k.name} {k.origin}".strip(), k.seconds) for k in kernels[:MOST_LINES]
        ],
    }
    return {title: rows for title, rows in found.items() if rows}


def words(pair: Pair, unit: Callable[[float], str] = format_time) -> str:
    """`81 ms predicted, 86 ms measured, error -5.8%`."""
    shown = [
        f"{unit(value)} {name}" if value is not None else f"not {name}"
        for name, value in (("predicted", pair.predicted), ("measured", pair.measured))
    ]
    return ", ".join(shown + ([f"error {pair.error:+.1%}"] if pair.error is not None else []))


def _rows(pairs: Mapping[str, Pair]) -> list[Row]:
    """Rows of the pairs that are more than zero on either side."""
    shown = {name: pair for name, pair in pairs.items() if pair.predicted or pair.measured}
    return [_row(name.replace("_", " "), pair) for name, pair in shown.items()]


def _section(title: str, rows: list[Row]) -> str:
    return "\n".join(columns([(title, *HEAD), *((f"  {row[0]}", *row[1:]) for row in rows)]))


def _row(name: str, pair: Pair, unit: Callable[[float], str] = format_time) -> Row:
    shown = ["-" if value is None else unit(value) for value in (pair.predicted, pair.measured)]
    return (name, *shown, "-" if pair.error is None else f"{pair.error:+.1%}")
