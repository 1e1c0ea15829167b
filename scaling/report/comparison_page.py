"""A comparison as one self-contained HTML page with its plot, and the plot as files beside it."""

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling.compare.compare import Comparison
from scaling.report.comparison import HEAD, head_lines, sections
from scaling.report.plots import figure_with_axes

COLORS = ("#4c72b0", "#dd8452")  # predicted, measured; matplotlib's "deep" pair, safe for most eyes
WITHOUT_LINKS = {"Creator": None, "Date": None, "Format": None, "Type": None}  # SVG's metadata
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .2rem .8rem; text-align: right }
td:first-child, th:first-child { text-align: left }
tr:nth-child(even) { background: #f4f4f4 }
svg { max-width: 100%; height: auto }
"""


def write_page(comparison: Comparison, stem: Path) -> Path:
    """Write STEM.html, STEM.svg and STEM.png; returns the page's path."""
    figure = bars(comparison)
    svg = io.StringIO()
    figure.savefig(svg, format="svg", metadata=WITHOUT_LINKS)
    stem.with_suffix(".svg").write_text(svg.getvalue(), encoding="utf-8")
    figure.savefig(stem.with_suffix(".png"), dpi=150)
    page = stem.with_suffix(".html")
    page.write_text(html_of(comparison, svg.getvalue()), encoding="utf-8")
    return page


def html_of(comparison: Comparison, svg: str) -> str:
    """The page's text; `svg` is the drawing, an XML document."""
    title = html.escape(f"{comparison.name}: predicted and measured")
    versions = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    parts = [
        f"<h1>{title}</h1>",
        *(f"<p>{html.escape(line)}</p>" for line in (*head_lines(comparison), versions)),
        svg[svg.index("<svg") :],
        *(_table(name, rows) for name, rows in sections(comparison).items()),
    ]
    head = f'<meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    body = "".join(parts)
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def bars(comparison: Comparison) -> Any:
    """Step time and every term, predicted beside measured: a matplotlib figure."""
    pairs = {"step": comparison.step_time.seconds, **comparison.time}
    shown = {name: pair for name, pair in pairs.items() if pair.predicted or pair.measured}
    figure, axes = figure_with_axes(width=8, height=1 + 0.5 * len(shown))
    places = range(len(shown))
    for offset, color, name in ((-0.2, COLORS[0], "predicted"), (0.2, COLORS[1], "measured")):
        values = [1e3 * (getattr(pair, name) or 0.0) for pair in shown.values()]
        axes.barh([p + offset for p in places], values, 0.38, color=color, label=name)
    axes.set_yticks(list(places), [name.replace("_", " ") for name in shown])
    axes.invert_yaxis()
    axes.set_xlabel("ms per step")
    axes.legend(frameon=False)
    return figure


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    cells = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (title, *HEAD))
    return f"<table><tr>{head}</tr>{cells}</table>"
