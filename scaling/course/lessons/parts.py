"""What lessons and labs are made of: a heading, a locked guess, and the page that it opens.

    field = parts.guess(mo, "From which batch ...?", "tokens")     a cell that shows the field
    page = parts.opened(mo, field)                                 a cell below: stops without one
    page.show("## The ladder", page.ladder(found))                 cells that it opens

A lesson is a marimo notebook, `mo` the module marimo. A cell that uses what a stopped cell defines
does not run, so nothing that comes from the page stands there before the guess. Numbers in texts
are computed, never typed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from scaling.course.ladder.rungs import Ladder
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.common_mistakes import diagnose
from scaling.pictures.shapes import Picture
from scaling.pictures.svg import svg_text
from scaling.questions.answer import GUIDE, Answer, Value
from scaling.questions.page import show

NUMBERS = {2: "Two", 3: "Three"}
OPENS = "the rest of the lesson opens after your guess"


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


def opened(mo: Any, field: Any) -> "Page":
    """Return the page below a guess; without a guess stop the cell, and all that need the page."""
    return Page(mo, guessed(mo, field))


def guessed(mo: Any, field: Any) -> float:
    """Return the reader's guess; without one stop the cell.

    A lesson that runs as a script or a test has no reader: its guess is 1. Where it is only shown
    (marimo export), `--guess X` after `--` gives one.
    """
    shown = mo.cli_args().get("guess")
    if field.value is None and (shown or mo.app_meta().mode in (None, "script", "test")):
        return float(shown or 1.0)
    mo.stop(field.value is None)
    return float(field.value)


@dataclass(frozen=True)
class Problem:
    """A problem at the end of a lesson; the answer is computed, in its unit."""

    where: str
    text: str
    unit: str  # "": a ratio
    answer: float | None  # None: whatever the reader has measured is right
    mistakes: tuple[str, ...] = ()  # possible here, of `scaling.course.quizzes.common_mistakes`
    tolerance: float = 0.03  # relative, within which a number is right
    why: str | Callable[[float], str] = ""  # said to a right number; may depend on a measured one


def on_paper(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved by hand; see `Problem`."""
    return Problem("On paper", text, unit, answer, **more)


def in_simulator(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved with a command or a control of the lesson; see `Problem`."""
    return Problem("In the simulator", text, unit, answer, **more)


def on_trainer(text: str, unit: str, answer: float | None, **more: Any) -> Problem:
    """Return a problem to be solved by training or measuring; see `Problem`."""
    return Problem("On the trainer", text, unit, answer, **more)


@dataclass(frozen=True)
class Page:
    """What a lesson shows below its guess; every method returns what a cell can show."""

    mo: Any  # the module marimo
    guess: float = 1.0  # the reader's

    def show(self, *items: Any) -> Any:
        """Return items below one another; a text is Markdown."""
        return self.mo.vstack([self.mo.md(i) if isinstance(i, str) else i for i in items])

    def ladder(self, ladder: Ladder) -> Any:
        """Return a ladder as a table: rung, number, step from the rung below, what it adds."""
        rows = []
        for rung, step in ladder.steps:
            value = "none" if rung.value is None else show(rung.value, ladder.unit)
            rows.append((f"**{rung.name}**", value, step, rung.adds))
        names = ("rung", "", "step", "what it adds")
        return self.mo.md(f"{ladder.question}\n\n{_table(names, rows)}")

    def formula(self, answer: Answer) -> Any:
        """Return an answer with its formula, numbers and command's page one click away."""
        binds = f", bound by {answer.binds}" if answer.binds else ""
        details = {"formula and numbers": self.mo.md(f"```\n{answer}\n```")}
        line = f"**{answer.name}**: {show(answer.answer, answer.unit)}{binds}"
        return self.show(line, self.mo.accordion(details))

    def table(self, rows: Sequence[Mapping[str, Value]]) -> Any:
        """Return rows as a table; a heading `name (unit)` says how its cells are written."""
        if not rows:
            return self.mo.md("")
        units = {name: name.partition(" (")[2].rstrip(")") for name in rows[0]}
        cells = [[show(row[name], unit) for name, unit in units.items()] for row in rows]
        return self.mo.md(_table([name.partition(" (")[0] for name in units], cells))

    def picture(self, drawn: Picture, alt: str) -> Any:
        """Return a drawing with its description, as screen readers and tests take it."""
        words = escape(alt, quote=True)
        figure = f'<figure role="img" aria-label="{words}">{svg_text(drawn)}</figure>'
        return self.mo.Html(figure)

    def takeaway(self, text: str, lesson: int | None = None) -> Any:
        """Return the box with what to remember, and the puzzles of a lesson's number."""
        lines = [f"**Take away.** {text}"]
        for puzzle in puzzles():
            if puzzle.lesson == lesson:
                command = f"scaling learn puzzle {puzzle.number}"
                lines.append(f"A puzzle, judged by the compiler: *{puzzle.title}* (`{command}`).")
        return self.mo.callout(self.mo.md("\n\n".join(lines)), kind="success")

    def where_wrong(self, text: str, rows: Sequence[Mapping[str, Value]]) -> Any:
        """Return where the model of this lesson is wrong, with predicted and measured figures."""
        return self.show(f"## Where the model is wrong\n\n{text}", self.table(rows))

    def fields(self, problems: Sequence[Problem]) -> Any:
        """Return the fields of problems, one marimo element; its `value` has their numbers."""
        rows = ((one.where, one.text, one.unit or "a ratio") for one in problems)
        return self.mo.ui.array([self.problem(*row) for row in rows])

    def exercises(self, fields: Any, *more: Any, title: str = "") -> Any:
        """Return the fields of problems under a heading, and what else belongs to them."""
        return self.show(f"## {title or f'{NUMBERS[len(fields)]} problems'}", *fields, *more)

    def verdicts(self, problems: Sequence[Problem], fields: Any) -> Any:
        """Return what is said to the number in each field: nothing until there is one."""
        said = []
        for one, field in zip(problems, fields, strict=True):
            if one.answer is not None:
                how = (one.mistakes, one.tolerance, str(one.why))
                said.append(self.verdict(field, one.answer, one.unit, *how))
            elif field.value is not None:
                said.append(one.why(field.value) if callable(one.why) else one.why)
        return self.show(*said)

    def problem(self, where: str, text: str, unit: str) -> Any:
        """Return the field of one problem; `where` says how it is to be solved."""
        label = f"**{where}:** {text} ({unit})"
        return self.mo.ui.number(label=label, value=None, full_width=True)

    def verdict(
        self,
        field: Any,
        answer: float,
        unit: str,
        mistakes: Sequence[str] = (),
        tolerance: float = 0.03,
        why: str = "",
    ) -> Any:
        """Return what is said to the number in a field; the parameters are those of `Problem`."""
        if field.value is None:
            return self.mo.md("")
        found = diagnose(float(field.value), answer, tolerance, mistakes)
        if found.right:
            text = f"Right: {show(answer, unit)}. {why}"
            return self.mo.callout(self.mo.md(text), kind="success")
        return self.mo.callout(self.mo.md(str(found).replace("\n", "\n\n")), kind="warn")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    is_figure = lambda cell: cell in ("", "none") or cell.lstrip("+-")[:1].isdigit()
    columns = ([row[i] for row in rows] for i in range(len(names)))
    sides = ["---:" if all(map(is_figure, column)) else ":---" for column in columns]
    lines = [names, sides, *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines
    )
