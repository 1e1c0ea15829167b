"""Parts of pages: tables in columns, long lines folded, evidence and workload in words."""

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from scaling.profiles.profile import Evidence

if TYPE_CHECKING:
    from scaling.run import Run


def evidence_words(evidence: Evidence, grade: str = "") -> str:
    """`calibrated: who measured what (2026-11); 77 points, mean error 18.7% on points left out`."""
    date = f" ({evidence.date})" if evidence.date else ""
    text = f"{grade or evidence.grade}: {evidence.source}{date}"
    points = f"{evidence.samples:,} points, " if evidence.samples > 2 else ""
    if evidence.held_out_error is not None:
        return f"{text}; {points}mean error {evidence.held_out_error:.1%} on points left out"
    if evidence.mean_error is not None and points:
        return f"{text}; {points}mean error {evidence.mean_error:.1%}"
    return text


def workload(run: "Run", with_remat: bool = False) -> str:
    """`512 sequences x 8,192 tokens = 4,194,304 tokens a step, bf16`, and how it is split."""
    batch, n = run.batch, run.batch.microbatches
    size = f"{batch.global_batch:,} sequences x {batch.seq_len:,} tokens = {batch.tokens:,} tokens"
    split = f", {n} microbatch{'es' * (n > 1)}, remat {run.remat}" if with_remat else ""
    return f"{size} a step, {run.precision.compute}{split}"


CELLS = re.compile(r"\S {2,}(?=\S)")  # what stands between two columns of a table
FIGURE = re.compile(r"(?<=\d) (?=[kKMGTP]?i?(?:B|FLOPs?|[num]?s)\b)")  # between number and unit
UNBROKEN = "\u00a0"
USUAL_WIDTH = 100  # characters of a line where there is no terminal


def terminal_width() -> int:
    """Characters that a line of the terminal has."""
    return shutil.get_terminal_size((USUAL_WIDTH, 24)).columns


def folded(text: str, width: int | None = None) -> str:
    """Text whose sentences have no line longer than `width`, by default the terminal's.

    What goes on stands four characters further in. Rows of tables stay as they are.
    """
    wrapper = textwrap.TextWrapper(
        width or terminal_width(), break_long_words=False, break_on_hyphens=False
    )
    lines: list[str] = []
    for line in text.split("\n"):
        inner = line.lstrip()
        if len(line) <= wrapper.width or len(CELLS.findall(inner)) > 2:
            lines.append(line)
            continue
        wrapper.initial_indent = " " * (len(line) - len(inner))
        wrapper.subsequent_indent = wrapper.initial_indent + "    "
        lines += wrapper.wrap(FIGURE.sub(UNBROKEN, inner))
    return "\n".join(lines).replace(UNBROKEN, " ")


def table_lines(
    head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)
) -> list[str]:
    """Lines of rows below their head, as `columns`; none where there are no rows."""
    return columns([head, *body], left) if (body := list(rows)) else []


def columns(rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Lines with the columns of `left` (indices) flush left, all others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
