"""An answer on twelve lines: the number, its formula, what binds, and the parts that matter most.

`--all` prints the page, with every part's formula and all tables; JSON has everything either way.
"""

import re
import textwrap

from scaling.questions.answer import Answer, beside, formula_lines, guide_line, in_one_unit
from scaling.questions.page import show, table

LINES, WIDTH = 12, 100  # of a short page; chosen by this project
MOST_ROWS = 5  # of a table that stands on it
# Columns of tables that are the answer themselves: axes of a mesh, a sweep.
AXES, SWEEP = "axis", "binds in the textbook"
# Parts that are asked for most, in the order in which they are shown; all others follow.
ASKED = (
    "largest batch within the step time",
    "request latency",
    "prefill",
    "bubble of the pipeline",
    "pipeline: .*",
    "hop to the next stage",
    "largest tensor axis",
    "smallest expert width F",
    "fewest tokens with fsdp and tensor",
    "tokens per device from which a ring over context is hidden",
    "sums in the switch",
    "data parallelism between .*",
    "microbatches for each stage .*",
    "tokens/s",
    "tokens/s of a user",
    "a million tokens",
    "largest batch",
    "fewest devices for weights and batch",
    "training with failures",
    "an epoch",
    "MFU",
    "money",
    "device hours",
    "energy",
    "fewest devices for weights and optimizer",
    "step",
    "steps",
    "training FLOPs of a token",
    "active parameters",
    "weights and optimi[sz]er",
    "activations kept",
    "KV cache of a token",
    "FLOPs of the training",
    "tokens by Chinchilla's rule",
    "peak bf16",
    "memory",
    "memory bandwidth",
    "vector rate",
    "FLOPs per cycle of a matrix unit",
)


def short_page(answer: Answer) -> str:
    """Return the answer on at most `LINES` lines; the whole page where that is no longer."""
    whole = str(answer).split("\n")
    if len(whole) <= LINES:
        return "\n".join(whole)
    answer = in_one_unit(answer)
    lines = [f"{answer.name}: {show(answer.answer, answer.unit)}{beside(answer)}"]
    columns = answer.rows[0].keys() if answer.rows else ()
    if SWEEP in columns:
        step = -(-len(answer.rows) // (LINES - 3))  # beside the number, the headings, the last line
        rows = answer.rows[::step]
    else:
        lines += ["  " + line for line in formula_lines(answer)]
        # The symbols of the formula on one or two lines, as many as fit there.
        given = [f"{i.symbol} {show(i.value, i.unit)} {i.meaning}".strip() for i in answer.inputs]
        symbols = iter(textwrap.wrap("; ".join(given), WIDTH - 2, max_lines=2, placeholder=" ..."))
        lines += ["  " + line for line in symbols]
        lines += [f"  binds: {answer.binds}"] if answer.binds else []
        rows = answer.rows[:MOST_ROWS] if AXES in columns else ()
    lines += ["  " + line for line in table(rows)]
    lines += [f"  note: {note}" for note in answer.notes[:1]]
    shown = sorted(answer.parts, key=_place)[: max(LINES - 1 - len(lines), 0)]
    lines = [*lines, *(f"  {_line(part)}" for part in shown)][: LINES - 1]
    left = len(whole) - len(lines)
    return "\n".join([*lines, f"  {left} more lines by --all{guide_line(answer, '; ')}"])


def _line(part: Answer) -> str:
    """A part with what limits it."""
    limit = f"; {part.binds}" if part.binds else ""
    return f"{part.name}: {show(part.answer, part.unit)}{beside(part)}{limit}"


def _place(part: Answer) -> int:
    """Where a part stands on the page; last what has no answer."""
    if part.answer is None:
        return len(ASKED) + 1
    asked = (i for i, name in enumerate(ASKED) if re.fullmatch(name, part.name))
    return next(asked, len(ASKED))
