"""What lessons and labs are made of: a heading, a locked guess, the ladder, problems, a takeaway.

Each is a marimo notebook. Its cells call these functions with `marimo` as `mo`; numbers in its
text are computed, never typed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from scaling.course.learn.common_mistakes import diagnose
from scaling.course.learn.ladder import Ladder, step
from scaling.course.learn.puzzle import puzzles
from scaling.pictures.shapes import Picture
from scaling.pictures.svg import svg_text
from scaling.questions.answer import GUIDE, Answer, Value
from scaling.questions.page import show

NUMBERS = {2: "Two", 3: "Three"}
OPENS = "the rest of the lesson opens after your guess"


@dataclass(frozen=True)
class Problem:
    """A problem at the end of a lesson; the answer is computed, in its unit."""

    where: str
    text: str
    unit: str  # "": a ratio
    answer: float | None  # None: whatever the reader has measured is right
    slips: tuple[str, ...] = ()  # that are possible here (`scaling.course.learn.common_mistakes`)
    tolerance: float = 0.03  # relative, within which a number is right
    why: str | Callable[[float], str] = ""  # said to a right number; may depend on a measured one


def heading(
    mo: Any, number: int | str, title: str, minutes: int, able: str, needs: str, chapter: str
) -> Any:
    """Return the top of a lesson: what one can do after it, and what it takes.

    Args:
        mo: the module marimo.
        number, title: of the lesson; of a lab "Lab 1".
        minutes: that it takes.
        able: what the reader can do afterwards, after "Afterwards you can".
        needs: what it takes to run: "no jax", "jax with 8 fake devices".
        chapter: of the guide, such as "roofline".
    """
    return mo.md(
        f"# {number}. {title}\n\n*{minutes} minutes; needs {needs}; the guide's chapter "
        f"[{chapter}]({GUIDE}{chapter}).* Afterwards you can {able}."
    )


def guess(mo: Any, question: str, unit: str) -> Any:
    """Return an empty field for a number; its `value` is None until one is written."""
    label = f"{question} ({unit}; {OPENS})"
    return mo.ui.number(label=label, value=None, full_width=True)


def guessed(mo: Any, field: Any) -> float:
    """Return the reader's guess; without one stop the cell and all that follow from it.

    A lesson that runs as a script or a test has no reader: its guess is 1. Where it is only shown
    (marimo export), `--guess X` after `--` gives one.
    """
    shown = mo.cli_args().get("guess")
    if field.value is None and (shown or mo.app_meta().mode in (None, "script", "test")):
        return float(shown or 1.0)
    mo.stop(field.value is None)
    return float(field.value)


def ladder_view(mo: Any, ladder: Ladder) -> Any:
    """Return a ladder as a table: rung, number, step from the rung below, what it adds."""
    rows, below = [], None
    for rung in ladder.rungs:
        value = "none" if rung.value is None else show(rung.value, ladder.unit)
        rows.append((f"**{rung.name}**", value, step(below, rung), rung.adds))
        if rung.value is not None and rung.name != "guess":
            below = rung
    return mo.md(f"{ladder.question}\n\n{_table(('rung', '', 'step', 'what it adds'), rows)}")


def formula_view(mo: Any, answer: Answer) -> Any:
    """Return an answer with its formula, numbers and command's page one click away."""
    binds = f", bound by {answer.binds}" if answer.binds else ""
    line = f"**{answer.name}**: {show(answer.answer, answer.unit)}{binds}"
    details = mo.accordion({"formula and numbers": mo.md(f"```\n{str(answer)}\n```")})
    return mo.vstack([mo.md(line), details])


def table_view(mo: Any, rows: Sequence[Mapping[str, Value]]) -> Any:
    """Return rows as a table; a heading `name (unit)` says how its cells are written."""
    if not rows:
        return mo.md("")
    units = {name: name.partition(" (")[2].rstrip(")") for name in rows[0]}
    cells = [[show(row[name], unit) for name, unit in units.items()] for row in rows]
    return mo.md(_table([name.partition(" (")[0] for name in units], cells))


def takeaway(mo: Any, text: str, lesson: int | None = None) -> Any:
    """Return the box with what to remember, and the puzzles of a lesson's number."""
    lines = [f"**Take away.** {text}"]
    for puzzle in puzzles():
        if puzzle.lesson == lesson:
            command = f"scaling learn puzzle {puzzle.number}"
            lines.append(f"A puzzle, judged by the compiler: *{puzzle.title}* (`{command}`).")
    return mo.callout(mo.md("\n\n".join(lines)), kind="success")


def where_wrong(mo: Any, text: str, rows: Sequence[Mapping[str, Value]]) -> Any:
    """Return where the model of this lesson is wrong, with predicted and measured figures."""
    return mo.vstack([mo.md(f"## Where the model is wrong\n\n{text}"), table_view(mo, rows)])


def problem(mo: Any, where: str, text: str, unit: str) -> Any:
    """Return a problem's field. `where` is "on paper", "in the simulator" or "on the trainer"."""
    return mo.ui.number(label=f"**{where}:** {text} ({unit})", value=None, full_width=True)


def on_paper(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved by hand; see `Problem`."""
    return Problem("On paper", text, unit, answer, **more)


def in_simulator(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved with a command or a control of the lesson; see `Problem`."""
    return Problem("In the simulator", text, unit, answer, **more)


def on_trainer(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved by training or measuring; see `Problem`."""
    return Problem("On the trainer", text, unit, answer, **more)


def fields(mo: Any, problems: Sequence[Problem]) -> Any:
    """Return the fields of problems, one marimo element; its `value` has their numbers."""
    return mo.ui.array(
        [problem(mo, one.where, one.text, one.unit or "a ratio") for one in problems]
    )


def exercises(mo: Any, fields: Any, *more: Any, title: str = "") -> Any:
    """Return the problems of a lesson under a heading, and what else belongs to them."""
    title = title or f"{NUMBERS[len(fields)]} problems"
    return mo.vstack([mo.md(f"## {title}"), *fields, *more])


def verdicts(mo: Any, problems: Sequence[Problem], fields: Any) -> Any:
    """Return what is said to the number in each field: nothing until there is one."""
    said = []
    for one, field in zip(problems, fields, strict=True):
        if one.answer is not None:
            words = {"slips": one.slips, "tolerance": one.tolerance, "why": one.why}
            said.append(verdict(mo, field, one.answer, one.unit, **words))
        elif field.value is not None:
            said.append(mo.md(one.why(field.value) if callable(one.why) else one.why))
    return mo.vstack(said)


def verdict(
    mo: Any,
    field: Any,
    answer: float,
    unit: str,
    slips: Sequence[str] = (),
    tolerance: float = 0.03,
    why: str = "",
) -> Any:
    """Return what is said to the number in a problem's field: nothing until there is one.

    Args:
        field: of `problem`.
        answer: computed, in `unit`.
        slips: that are possible here (`scaling.course.learn.common_mistakes`).
        tolerance: relative, within which the number is right.
        why: said to a right number.
    """
    if field.value is None:
        return mo.md("")
    found = diagnose(float(field.value), answer, tolerance, slips)
    if found.right:
        text = f"Right: {show(answer, unit)}. {why}"
        return mo.callout(mo.md(text), kind="success")
    return mo.callout(mo.md(str(found).replace("\n", "\n\n")), kind="warn")


def picture(mo: Any, drawn: Picture, alt: str) -> Any:
    """Return a drawing with its description, as screen readers and tests take it."""
    words = escape(alt, quote=True)
    return mo.Html(f'<figure role="img" aria-label="{words}">{svg_text(drawn)}</figure>')


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    sides = [
        "---:" if all(_is_figure(row[i]) for row in rows) else ":---" for i in range(len(names))
    ]
    lines = [names, sides, *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines
    )


def _is_figure(cell: str) -> bool:
    return cell in ("", "none") or cell.lstrip("+-")[:1].isdigit()
