"""Predicted beside measured: as text, and as one self-contained HTML page with its plot beside it.

step time: 81 ms predicted, 86 ms measured, error -5.8%, spread 2.1% over 47 steps

The HTML page follows the reader's light or dark theme and needs no more width than a phone has.
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from scaling.comparing.comparison import Comparison, Pair
from scaling.meshes.units import format_range, format_size, format_time
from scaling.pictures.bars import grouped_bars
from scaling.pictures.files import write_picture
from scaling.pictures.palette import BLUE, ORANGE
from scaling.report.formatting import columns

MOST_LINES = 12  # collectives and kernels that the table shows
NOTHING = 1e-9  # of the largest figure of a table: what rounding leaves
SMALL = 0.01  # of the step: what matches nothing is shown from here on
ROUNDED = 3  # decimals of an error that are shown: 5.8 %
HEAD = ("predicted", "measured", "error")
Row = tuple[str, ...]
COLOURS = (BLUE, ORANGE)  # predicted, measured
STYLE = f"""
:root {{ color-scheme: light dark; --predicted: {COLOURS[0]}; --measured: {COLOURS[1]} }}
@media (prefers-color-scheme: dark) {{ :root {{ --predicted: #56b4e9; --measured: #f0c060 }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem;
  overflow-wrap: anywhere }}
h1 {{ font-size: 1.4rem }}
table {{ border-collapse: collapse; width: 100%; margin: 1rem 0; font-size: .9rem }}
td, th {{ padding: .2rem .3rem; text-align: right; border-bottom: 1px solid #8885 }}
td:first-child, th:first-child {{ text-align: left }}
td:not(:first-child), th:not(:first-child) {{ overflow-wrap: normal }}
.bar {{ height: .7rem; min-width: 1px }}
.predicted {{ background: var(--predicted) }}
.measured {{ background: var(--measured) }}
"""


def table(comparison: Comparison) -> str:
    """The comparison as a page of text."""
    lines = head_lines(comparison)
    for title, rows in sections(comparison).items():
        lines += columns([(title, *HEAD), *((f"  {row[0]}", *row[1:]) for row in rows)])
    return "\n".join(lines)


def head_lines(comparison: Comparison) -> list[str]:
    """Name, setting, step time with its range, memory and warnings, one line each."""
    step = comparison.step_time
    spread = "" if step.spread is None else f", spread {step.spread:.1%}"
    count = f"{step.steps} step{'s' * (step.steps != 1)}"
    memory = words(comparison.memory, format_size)
    if comparison.memory.measured is None and comparison.compiled_memory is not None:
        memory += f", {format_size(comparison.compiled_memory)} planned by the compiler"
    span, told = format_range(*comparison.step_range), words(step.seconds)
    if math.isinf(comparison.step_range[1]) and step.seconds.measured is not None:
        told = f"{span} predicted, {format_time(step.seconds.measured)} measured"
    return [
        f"{comparison.name} on {comparison.machine}, {comparison.grade} figures",
        comparison.setting,
        f"step time: {told}{spread} over {count}; range {span}",
        f"memory of a device: {memory}",
        *([comparison.explanation] if comparison.explanation else []),
        *(f"note: {text}" for text in comparison.warnings),
    ]


def sections(comparison: Comparison) -> dict[str, list[Row]]:
    """Title -> rows of (name, predicted, measured, error); empty ones are left out.

    Single kernels are left out where they cannot be compared.
    """
    kernels = () if comparison.shares_cores else comparison.kernels
    calls = []  # name; the first instruction and the number of others; collective
    for call in comparison.collectives[:MOST_LINES]:
        first, *others = call.instructions or [""]
        more = f" and {len(others)} more" if others else ""
        name = f"{call.kind}[{call.axis}] {format_size(call.bytes)}"
        calls.append((name, f" ({first}{more})" if first else "", call))
    found = {
        "time": _rows(_nonzero(comparison.time)),
        "seconds over all devices": _rows(_nonzero(comparison.sums)),
        "seconds by class": _rows(_nonzero(comparison.classes)),
        "collectives": [_row(name + which, call.seconds) for name, which, call in calls],
        "bytes of collectives": [
            _row(name, call.step_bytes, format_size)
            for name, _, call in calls
            if call.step_bytes.measured is not None
        ],
        "kernels that differ most": [
            _row(f"{k.name} {k.origin}".strip(), k.seconds)
            for k in kernels[:MOST_LINES]
            if k.seconds.error is None or round(k.seconds.error, ROUNDED)
        ],
        **_alone(comparison),
    }
    return {title: rows for title, rows in found.items() if rows}


def _alone(comparison: Comparison) -> dict[str, list[Row]]:
    """What only the profile or only the program has; nothing where names mean little."""
    match, step = comparison.match, comparison.step_time.seconds
    if match is None or not match.by_name:
        return {}
    least = SMALL * min(step.predicted or 0.0, step.measured or 0.0)
    large = lambda seconds: [
        item for item in list(seconds.items())[:MOST_LINES] if item[1] >= least
    ]
    recorded, predicted = large(match.recorded_only), large(match.predicted_only)
    return {
        "recorded, not in the program": [_row(name, Pair(None, s)) for name, s in recorded],
        "in the program, not recorded": [_row(name, Pair(s, None)) for name, s in predicted],
    }


def words(pair: Pair, unit: Callable[[float], str] = format_time) -> str:
    """`81 ms predicted, 86 ms measured, error -5.8%`."""
    shown = [
        f"{unit(value)} {name}" if value is not None else f"not {name}"
        for name, value in (("predicted", pair.predicted), ("measured", pair.measured))
    ]
    return ", ".join(shown + ([f"error {_error(pair)}"] if pair.error is not None else []))


def _nonzero(pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """The pairs that are more than nothing on either side, by name in words."""
    sizes = {name: pair.larger for name, pair in pairs.items()}
    least = NOTHING * max(sizes.values(), default=0.0)
    return {name.replace("_", " "): pairs[name] for name, size in sizes.items() if size > least}


def _rows(pairs: Mapping[str, Pair]) -> list[Row]:
    return [_row(name, pair) for name, pair in pairs.items()]


def _row(name: str, pair: Pair, unit: Callable[[float], str] = format_time) -> Row:
    shown = ["-" if value is None else unit(value) for value in (pair.predicted, pair.measured)]
    return (name, *shown, _error(pair))


def _error(pair: Pair) -> str:
    """`-5.8%`; `+0.0%` for whatever rounds to nothing."""
    return "-" if pair.error is None else f"{round(pair.error, ROUNDED) + 0.0:+.1%}"


def write_page(comparison: Comparison, stem: Path) -> Path:
    """Write STEM.html, STEM.svg and STEM.png; returns the page's path."""
    draw_bars(comparison, stem.with_suffix(".svg"), stem.with_suffix(".png"))
    page = stem.with_suffix(".html")
    page.write_text(html_of(comparison), encoding="utf-8")
    return page


def html_of(comparison: Comparison) -> str:
    """The page's text."""
    title = html.escape(f"{comparison.name}: predicted and measured")
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    parts = [
        f"<h1>{title}</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in (*head_lines(comparison), versions)),
        _html_bars(_bars(comparison)),
        *(_html_table(name, rows) for name, rows in sections(comparison).items()),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{STYLE}</style>"
    )
    body = "".join(parts)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _bars(comparison: Comparison) -> dict[str, Pair]:
    return _nonzero({"step": comparison.step_time.seconds, **comparison.time})


def _html_bars(pairs: dict[str, Pair]) -> str:
    """One block per term: its name, and a bar for each of the two figures."""
    longest = max((pair.larger for pair in pairs.values()), default=1.0)
    blocks = []
    for name, pair in pairs.items():
        values = ("predicted", pair.predicted), ("measured", pair.measured)
        known = [(kind, value) for kind, value in values if value is not None]
        label = ", ".join(f"{format_time(value)} {kind}" for kind, value in known)
        rows = "".join(
            f'<div class="bar {kind}" style="width:{100 * value / longest:.1f}%"></div>'
            for kind, value in known
        )
        blocks.append(f"<div>{html.escape(name)}: {label}{rows}</div>")
    return "".join(blocks)


def draw_bars(comparison: Comparison, *paths: Path) -> None:
    """Draw step time and every term, predicted beside measured."""
    shown = _bars(comparison)
    groups = [(name, (pair.predicted, pair.measured)) for name, pair in shown.items()]
    title = f"{comparison.name}: seconds of a step"
    write_picture(grouped_bars(groups, ("predicted", "measured"), format_time, title), *paths)


def _html_table(title: str, rows: Sequence[Row]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (title, *HEAD))
    return f"<table><tr>{head}</tr>{cells}</table>"
