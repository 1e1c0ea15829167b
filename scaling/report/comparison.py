"""Predicted beside measured, as a page of text.

step time: 81 ms predicted, 86 ms measured, error -5.8%, spread 2.1% over 47 steps
"""

from collections.abc import Callable

from scaling.compare.compare import Comparison, Pair
from scaling.meshes.units import format_size, format_time
from scaling.report.columns import columns

MOST_LINES = 12  # collectives and kernels that the table shows
HEAD = ("predicted", "measured", "error")
SHARED = (
    "devices that share cores: while one waits in a collective the others compute, so kernels are "
    "measured shorter, and collectives longer, than they are priced; their sum can be compared"
)
Row = tuple[str, ...]


def table(comparison: Comparison) -> str:
    """The whole page."""
    parts = [_section(title, rows) for title, rows in sections(comparison).items()]
    return "\n".join([*head_lines(comparison), *parts])


def head_lines(comparison: Comparison) -> list[str]:
    """What was compared, step time and memory, one line each."""
    step = comparison.step_time
    spread = "" if step.spread is None else f", spread {step.spread:.1%}"
    count = f"{step.steps} step{'s' * (step.steps != 1)}"
    memory = words(comparison.memory, format_size)
    if comparison.memory.measured is None and comparison.compiled_memory is not None:
        memory += f", {format_size(comparison.compiled_memory)} planned by the compiler"
    lines = [
        f"{comparison.name} on {comparison.machine}, {comparison.grade} figures",
        f"step time: {words(step.seconds)}{spread} over {count}",
        f"memory of a device: {memory}",
    ]
    return [*lines, SHARED] if comparison.virtual and comparison.kernels else lines


def sections(comparison: Comparison) -> dict[str, list[Row]]:
    """Title -> rows of (name, predicted, measured, error); empty ones are left out."""
    found = {
        "time": _term_rows(comparison),
        "collectives": _collective_rows(comparison),
        "kernels that differ most": _kernel_rows(comparison),
    }
    return {title: rows for title, rows in found.items() if rows}


def words(pair: Pair, unit: Callable[[float], str] = format_time) -> str:
    """`81 ms predicted, 86 ms measured, error -5.8%`."""
    shown = [
        f"{unit(value)} {name}" if value is not None else f"not {name}"
        for name, value in (("predicted", pair.predicted), ("measured", pair.measured))
    ]
    return ", ".join(shown + ([f"error {pair.error:+.1%}"] if pair.error is not None else []))


def _term_rows(comparison: Comparison) -> list[Row]:
    """Terms that are more than nothing on either side."""
    return [
        _row(term.replace("_", " "), pair)
        for term, pair in comparison.time.items()
        if pair.predicted or pair.measured
    ]


def _collective_rows(comparison: Comparison) -> list[Row]:
    """The dearest."""
    return [
        _row(f"{c.kind}[{c.axis}] {format_size(c.bytes)}", c.seconds)
        for c in comparison.collectives[:MOST_LINES]
    ]


def _kernel_rows(comparison: Comparison) -> list[Row]:
    """Those whose prediction is furthest off, in seconds."""
    return [
        _row(f"{k.name} {k.origin}".strip(), k.seconds) for k in comparison.kernels[:MOST_LINES]
    ]


def _section(title: str, rows: list[Row]) -> str:
    return "\n".join(columns([(title, *HEAD), *((f"  {row[0]}", *row[1:]) for row in rows)]))


def _row(name: str, pair: Pair) -> Row:
    shown = [
        "-" if value is None else format_time(value) for value in (pair.predicted, pair.measured)
    ]
    return (name, *shown, "-" if pair.error is None else f"{pair.error:+.1%}")
