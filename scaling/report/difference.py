"""Two predictions as a table of what changed.

llama3-8b -> llama3-8b: step 5.89 s -> 6.61 s (+721 ms, x1.12)
  mesh: data=8,fsdp=8 -> fsdp=64
time                          first   second  difference  ratio
  waiting for communication  358 ms  1.08 s      +721 ms   3.01
"""

from collections.abc import Callable, Iterable
from typing import Any

from scaling.comparing.difference import Change, Difference
from scaling.meshes.units import format_memory, format_time
from scaling.report.formatting import columns
from scaling.report.prediction import TIME_TERMS

MOST_LINES = 12  # collectives that the table shows
HEAD = ("first", "second", "difference", "ratio")
Show = Callable[[float], str]


def difference_table(found: Difference) -> str:
    """The page of `scaling compare A B`; figures that are 0 in both are left out."""
    step = found.step_time
    times = {"hidden_communication": "hidden communication", **TIME_TERMS}
    names = " -> ".join(found.names)
    both = " -> ".join(_value(x, format_time) for x in (step.first, step.second))
    lines = [
        f"{names}: step {both} ({_signed(step, format_time)}, {_ratio(step)})",
        *(f"  {name}: {_words(a)} -> {_words(b)}" for name, (a, b) in found.words.items()),
        *_section("time", ((times[k], change) for k, change in found.time.items()), format_time),
        *_section(
            "memory",
            ((name.replace("_", " "), change) for name, change in found.memory.items()),
            format_memory,
        ),
    ]
    for title, part, show in (
        ("collectives, seconds", "time", format_time),
        ("collectives, bytes", "moved", format_memory),
    ):
        rows = [
            (f"{line.kind}[{line.axis}] {line.dtype}", getattr(line, part))
            for line in found.collectives[:MOST_LINES]
        ]
        lines += _section(title, rows, show)
    return "\n".join(lines)


def _section(title: str, changes: Iterable[tuple[str, Change]], show: Show) -> list[str]:
    rows = [
        (f"  {name}", *(_value(x, show) for x in (c.first, c.second)), _signed(c, show), _ratio(c))
        for name, c in changes
        if c.first or c.second
    ]
    return columns([(title, *HEAD), *rows]) if rows else []


def _value(value: float | None, show: Show) -> str:
    return "-" if value is None else show(value)


def _signed(change: Change, show: Show) -> str:
    sign = "+" if change.difference > 0 else "-" if change.difference < 0 else ""
    return f"{sign}{show(abs(change.difference))}"


def _ratio(change: Change) -> str:
    return "-" if change.ratio is None else f"x{change.ratio:.3g}"


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {x}" for name, x in value.items())
    return "-" if value is None else str(value)
