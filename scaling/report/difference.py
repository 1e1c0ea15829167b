"""Two predictions as tables of what changed, in a terminal and in Markdown.

llama3-8b -> llama3-8b: step 5.89 s -> 6.61 s (+721 ms, x1.12)
  mesh: data=8,fsdp=8 -> fsdp=64
  +721 ms, most by all-gather bf16 (+690 ms)
time                          first   second  difference  ratio
  waiting for communication  358 ms  1.08 s      +721 ms   3.01
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from scaling.comparing.breakdown import RESULT
from scaling.comparing.difference import Change, Difference, PartChange
from scaling.comparing.limits import Limit
from scaling.meshes.units import format_memory, format_rate, format_time
from scaling.report.formatting import table_lines
from scaling.report.prediction import TIME_TERMS

MOST_LINES = 12  # of a table
MOST_TEXT = 60  # characters of a line of code
NAMED = 0.001  # of the step or the peak: what changes by less is not told
HEAD = ("first", "second", "difference", "ratio")
TIMES = {"hidden_communication": "hidden communication", **TIME_TERMS}
Show = Callable[[float], str]
Table = tuple[str, Show, list[tuple[str, Change]]]  # what it is of, how its figures are written


def difference_table(found: Difference) -> str:
    """The page of `scaling diff A B`; figures that are 0 in both are left out."""
    names = " -> ".join(found.names)
    first, second, more, ratio = _cells(found.step_time, format_time)
    lines = [
        f"{names}: step {first} -> {second} ({more}, {ratio})",
        *(f"  {name}: {_words(a)} -> {_words(b)}" for name, (a, b) in found.words.items()),
        *(f"  {line}" for line in headlines(found)),
    ]
    for title, show, changes in _tables(found):
        rows = ((f"  {name}", *_cells(c, show)) for name, c in changes if c.first or c.second)
        lines += table_lines((title, *HEAD), rows)
    return "\n".join(lines)


def guard_page(found: Difference, limits: Sequence[Limit], notes: Sequence[str]) -> str:
    """The page of `scaling price --against`, in Markdown: the limits, then whatever changed."""
    shows: dict[str, Show] = {"flops": _flops, **dict.fromkeys(("time", *TIMES), format_time)}
    rows = []
    for limit in limits:
        show, change = shows.get(limit.figure, format_memory), limit.change(found)
        verdict = "**exceeded**" if limit.is_exceeded(found) else "ok"
        rows.append((limit.figure, *_cells(change, show), f"{limit.percent:g} %", verdict))
    failed = sum(limit.is_exceeded(found) for limit in limits)
    verdict = f"{failed} of {len(limits)} limits exceeded" if failed else "within its limits"
    page = [f"### {found.names[1]}: {verdict}", *notes]
    if said := "\n".join(headlines(found)):
        page.append(f"```text\n{said}\n```")
    page.append(_markdown(("", "base", "now", "difference", "ratio", "may grow by", ""), rows))
    for title, show, changes in _tables(found):
        whole = (found.step_time if show is format_time else found.memory["peak"]).first
        least = NAMED * float(whole or 0.0)
        grown = [(name, c) for name, c in changes if abs(c.difference) > least]
        if grown:
            cells = [(f"`{name}`", *_cells(change, show)) for name, change in grown]
            page.append(_markdown((title, "base", "now", *HEAD[2:]), cells))
    return "\n\n".join(page)


def headlines(found: Difference) -> Iterator[str]:
    """What changed and where, a line for the time, one for the work and one for the memory."""
    if _is_told(found.step_time):
        yield _most(found.step_time, format_time, "a step", found.classes, found.lines, "time")
    if _is_told(flops := found.work["flops"]):
        yield _most(flops, _flops, "", found.classes, found.lines, "flops")
    if _is_told(peak := found.memory["peak"]):
        yield _most(peak, format_memory, "at the peak", found.buffers, (), "bytes") + _cause(found)


def _cause(found: Difference) -> str:
    """Why the memory grew, where the program shows it."""
    grown = [part for part in found.buffers if part.figures["bytes"].difference > 0]
    half = found.memory["peak"].difference / 2
    results = [part for part in grown if f" {RESULT} " in part.name]
    if half > 0 and sum(part.figures["bytes"].difference for part in results) > half:
        return "; results no longer take the place of arguments: is a donation lost?"
    work = found.work["flops"], *(call.moved for call in found.collectives)
    is_same_work = not any(change.difference for change in work)
    for line in found.lines if half > 0 and is_same_work else ():
        count = line.figures["count"]
        if count.difference > 0 and any(part.name.endswith(line.name) for part in grown):
            made = f"{count.second:g} operations of {count.first or 0:g}"
            return f"; XLA made {made} at {_cut(line.name)}"
    return ""


def _is_told(change: Change) -> bool:
    return abs(change.difference) > NAMED * (change.first or 0.0)


def _most(
    change: Change,
    show: Show,
    where: str,
    parts: Sequence[PartChange],
    lines: Sequence[PartChange],
    by: str,
) -> str:
    """`+721 ms a step, most by all-gather bf16 (+690 ms) at step.py:7 x @ w (+650 ms)`."""
    text = f"{_signed(change, show)} {where}".strip()
    for link, several in ((", most by", parts), (" at", lines)):
        same = [p for p in several if p.figures[by].difference * change.difference > 0]
        if same:
            most = max(same, key=lambda part: abs(part.figures[by].difference))
            text += f"{link} {_cut(most.name)} ({_signed(most.figures[by], show)})"
    return text


def _tables(found: Difference) -> Iterator[Table]:
    calls = [(f"{c.kind}[{c.axis}] {c.dtype}", c) for c in found.collectives[:MOST_LINES]]
    parts = lambda every, by: [(_cut(p.name), p.figures[by]) for p in every[:MOST_LINES]]
    memory = [(name.replace("_", " "), change) for name, change in found.memory.items()]
    yield "time", format_time, [(TIMES[name], change) for name, change in found.time.items()]
    yield "classes of operations", format_time, parts(found.classes, "time")
    yield "collectives, seconds", format_time, [(name, c.time) for name, c in calls]
    yield "collectives, bytes", format_memory, [(name, c.moved) for name, c in calls]
    yield "lines of code", format_time, parts(found.lines, "time")
    yield "memory", format_memory, memory
    yield "buffers at the peak", format_memory, parts(found.buffers, "bytes")


def _flops(number: float) -> str:
    return format_rate(number, "FLOPs")


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 3]}..."


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruler = ["---", *["---:"] * (len(head) - 1)]
    cells = [head, ruler, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _signed(change: Change, show: Show) -> str:
    sign = "+" if change.difference > 0 else "-" if change.difference < 0 else ""
    return f"{sign}{show(abs(change.difference))}"


def _cells(change: Change, show: Show) -> tuple[str, str, str, str]:
    first, second = ("-" if x is None else show(x) for x in (change.first, change.second))
    ratio = "-" if change.ratio is None else f"x{change.ratio:.3g}"
    return first, second, _signed(change, show), ratio


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {x}" for name, x in value.items())
    return "-" if value is None else str(value)
