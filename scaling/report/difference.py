"""Two predictions as a table of what changed.

llama3-8b -> llama3-8b: step 5.89 s -> 6.61 s (+721 ms, x1.12)
  mesh: data=8,fsdp=8 -> fsdp=64
time                          first   second  difference  ratio
  waiting for communication  358 ms  1.08 s      +721 ms   3.01
"""

from collections.abc import Callable
from typing import Any

from scaling.comparing.difference import Change, Difference
from scaling.meshes.units import format_memory, format_time
from scaling.report.formatting import table_lines
from scaling.report.prediction import TIME_TERMS

MOST_LINES = 12  # collectives that the table shows
HEAD = ("first", "second", "difference", "ratio")
Show = Callable[[float], str]


def difference_table(found: Difference) -> str:
    """The page of `scaling compare A B`; figures that are 0 in both are left out."""
    step = found.step_time
    times = {"hidden_communication": "hidden communication", **TIME_TERMS}
    names = " -> ".join(found.names)
    first, second, more, ratio = _cells(step, format_time)
    lines = [
        f"{names}: step {first} -> {second} ({more}, {ratio})",
        *(f"  {name}: {_words(a)} -> {_words(b)}" for name, (a, b) in found.words.items()),
    ]
    calls = [(f"{c.kind}[{c.axis}] {c.dtype}", c) for c in found.collectives[:MOST_LINES]]
    memory = [(name.replace("_", " "), change) for name, change in found.memory.items()]
    for title, changes, show in (
        ("time", [(times[name], change) for name, change in found.time.items()], format_time),
        ("memory", memory, format_memory),
        ("collectives, seconds", [(name, c.time) for name, c in calls], format_time),
        ("collectives, bytes", [(name, c.moved) for name, c in calls], format_memory),
    ):
        rows = ((f"  {name}", *_cells(c, show)) for name, c in changes if c.first or c.second)
        lines += table_lines((title, *HEAD), rows)
    return "\n".join(lines)


def _cells(change: Change, show: Show) -> tuple[str, str, str, str]:
    first, second = ("-" if x is None else show(x) for x in (change.first, change.second))
    sign = "+" if change.difference > 0 else "-" if change.difference < 0 else ""
    ratio = "-" if change.ratio is None else f"x{change.ratio:.3g}"
    return first, second, f"{sign}{show(abs(change.difference))}", ratio


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {x}" for name, x in value.items())
    return "-" if value is None else str(value)
