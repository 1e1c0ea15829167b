"""What lessons and labs are made of: a heading, a locked guess, and the page that it opens.

    field = parts.guess("From which batch ...?", "tokens")
    parts.opening("lesson 1", "say whether ...", text, field, ...)     shows the field
    page = parts.opened(field, 217, ["sparse peak"])    a cell below: stops until the page opens
    page.show(page.guessed, page.ladder("tokens", "tokens", textbook=(217, "C / W")))

A lesson is a marimo notebook. A cell that uses what a stopped cell defines does not run, so nothing
that comes from the page stands there before the guess. A wrong first guess is told its mistake and
gets a second try; the right one, or the second, opens the page. Numbers in texts are computed,
never typed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from textwrap import wrap
from typing import Any

import marimo as mo

from scaling.api.collective import price_collective
from scaling.api.predict import predict
from scaling.course.ladder.rungs import Ladder, Rung, ladder
from scaling.course.language import said, svg_said, t
from scaling.course.lessons import index
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.common_mistakes import diagnose
from scaling.meshes.formula import substituted
from scaling.meshes.units import format_time
from scaling.pictures.bars import stacked_bars
from scaling.pictures.shapes import Picture
from scaling.pictures.svg import svg_text
from scaling.program.stored import StoredProgram, stored_programs
from scaling.questions.answer import GUIDE, Answer, Value
from scaling.questions.mathml import mathml
from scaling.questions.page import FORMATS, plain, show
from scaling.simulate.prediction import Prediction

COUNTED = {2: "Two problems", 3: "Three problems"}
OPENS = "the rest of the lesson opens after your guess"
NEAR_ENOUGH = 0.1  # relative, within which a guess is right: it is made without a calculator
WIDE = 84  # characters of a line of code
NO_BREAK = "\N{NO-BREAK SPACE}"  # between a number and its unit
AGAIN = "Write a second guess into the field; then the page opens, with both."


def opening(name: str, able: str, *below: Any, minutes: int, chapter: str, needs: str = "") -> Any:
    """Return the top of a lesson: what one can do after it, what it takes, and what follows.

    Args:
        name: "lesson 1", "lab 2"; `scaling.course.lessons.index` has its title.
        able: what the reader can do afterwards, after "Afterwards you can".
        below: items for `Page.show`.
        minutes: that it takes.
        chapter: of the guide, such as "roofline".
        needs: what it takes to run, such as "jax with 8 fake devices"; "": no jax.
    """
    kind, number = name.split()
    label = t("Lab {number}", number=number) if kind == "lab" else number
    takes = t("*{minutes} minutes; needs {needs}; the guide's chapter {chapter}.*").format(
        minutes=minutes,
        needs=t(needs) if needs else t("no jax"),
        chapter=f"[{chapter}]({GUIDE}{chapter})",
    )
    then = t("Afterwards you can {able}.", able=able)
    return Page().show(
        f"# {label}. {t(index.numbered(kind, number).title)}\n\n{takes} {then}", *below
    )


class GuessField(mo.ui.number):
    """An empty field for a number; it keeps all that were written into it."""

    def __init__(self, question: str, unit: str) -> None:
        self.question, self.unit = question, unit
        self.tries: list[float] = []
        self.is_open = False  # the page below was opened: another chip does not close it
        label = f"{question} ({t(unit)}; {t(OPENS)})"
        keep = self._keep
        super().__init__(label=label, full_width=True, debounce=True, on_change=keep)

    def _keep(self, value: Any) -> None:
        if value is not None:
            self.tries.append(float(value))


def guess(question: str, unit: str) -> GuessField:
    """Return an empty field for a number; its `value` is None until one is written."""
    return GuessField(question, unit)


def opened(
    field: Any,
    answer: float,
    mistakes: Sequence[str],
    tolerance: float = NEAR_ENOUGH,
) -> "Page":
    """Return the page below a guess; until it opens stop the cell, and all that need the page.

    It opens on a right guess or the second one. A wrong first guess is told its mistake.

    Args:
        field: of `guess`.
        answer: in the unit of the field.
        mistakes: that this guess can go wrong by, of `scaling.course.quizzes.common_mistakes`.
        tolerance: relative, within which a guess is right.
    """
    last = guessed(field)
    tries = tuple(field.tries[-2:]) or (last,)
    asked = Problem("Guess", field.question, (answer, field.unit), tuple(mistakes), tolerance)
    found = diagnose(last, answer, tolerance, mistakes)
    field.is_open |= found.right or len(field.tries) != 1
    again = None if field.is_open else _box(False, _lines(f"{found.hint}\n{t(AGAIN)}"))
    mo.stop(not field.is_open, again)
    return Page(last, tries, asked)


def guessed(field: Any) -> float:
    """Return the reader's guess; without one stop the cell.

    A lesson that runs as a script or a test has no reader: its guess is 1. Where it is only shown
    (marimo export), `--guess X` after `--` gives one.
    """
    shown = mo.cli_args().get("guess")
    if field.value is None and (shown or not _has_reader()):
        return float(str(shown or 1.0))
    mo.stop(field.value is None)
    return float(field.value)


def chosen(radio: Any) -> Any:
    """Return what a reader has chosen; until then stop the cell. Without a reader: None."""
    mo.stop(radio.value is None and _has_reader())
    return radio.value


def _has_reader() -> bool:
    return mo.app_meta().mode not in (None, "script", "test")


def _field(label: str) -> Any:
    return mo.ui.number(label=label, value=None, full_width=True)


def powers(label: str, least: int, most: int, value: float = 1) -> Any:
    """Return a slider over the powers of two from 2**least to 2**most."""
    steps = [2**power for power in range(least, most + 1)]
    return mo.ui.slider(steps=steps, value=value, label=t(label), show_value=True)


def dropdown(options: Any, label: str, value: Any = None) -> Any:
    """Return a menu that stands on an option, by default the first."""
    options = options if isinstance(options, Mapping) else list(options)
    return mo.ui.dropdown(options, value=value or next(iter(options)), label=t(label))


def links(cluster: str) -> dict[str, float]:
    """Return link -> bytes/s, of all that a collective over two nodes passes."""
    found = price_collective("all-gather", 2**20, cluster, nodes=2)
    return {level.level: level.bandwidth for level in found.levels}


def stored(group: str) -> list[StoredProgram]:
    """Return the compiled steps of one comparison that come with the package."""
    return [entry for entry in stored_programs() if entry.group == group]


def priced(entries: Iterable[StoredProgram], **factors: float) -> dict[str, Prediction]:
    """Return the steps by their mesh, on a machine whose figures are multiplied: `network=0.5`."""
    what_if = [f"{name} x{factor}" for name, factor in factors.items() if factor != 1]
    found = [(entry.mesh, predict(**entry.arguments, what_if=what_if)) for entry in entries]
    assert len(dict(found)) == len(found), "two entries of one mesh: of two clusters?"
    return dict(found)


def ranges(steps: Mapping[Any, Prediction]) -> list[dict[str, Value]]:
    """Return a row for each step, by its mesh: the predicted time within its range."""
    return [
        {
            "mesh": str(mesh),
            "low (s)": float(step.step_time_low),
            "predicted (s)": float(step.step_time),
            "high (s)": float(step.step_time_high),
        }
        for mesh, step in steps.items()
    ]


def off(predicted: float, measured: float) -> str:
    """Return how far a prediction is from a measurement: `-12%`."""
    return f"{predicted / measured - 1:+z.0%}"


def beside(predicted: float, measured: float) -> dict[str, Value]:
    """Return the cells of a prediction and its measurement, in seconds, and how far it is off."""
    found: dict[str, Value] = {"predicted (s)": float(predicted), "measured (s)": measured}
    return found | {"off by": off(predicted, measured)}


def typed(*commands: str) -> Any:
    """Return commands as one types them, none longer than the page is wide."""
    lines = (" \\\n    ".join(wrap(command, WIDE, break_long_words=False)) for command in commands)
    return mo.md("```sh\n" + "\n".join(lines) + "\n```")


@dataclass(frozen=True)
class Problem:
    """A problem at the end of a lesson; the answer is computed."""

    where: str  # how it is to be solved
    text: str
    answer: tuple[float | None, str]  # None: whatever was measured is right; unit, "": a ratio
    mistakes: tuple[str, ...] = ()  # possible here, of `scaling.course.quizzes.common_mistakes`
    tolerance: float = 0.03  # relative, within which a number is right
    why: str | Callable[[float], str] = ""  # said to a right number; may depend on a measured one


class ProblemFields(mo.ui.array):
    """The fields of problems, one marimo element; its `value` has their numbers."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        rows = ((one.where, one.text, t(one.answer[1] or "a ratio")) for one in problems)
        super().__init__([Page().problem(*row) for row in rows])
        self.problems = problems


on_paper = partial(Problem, "On paper")  # to be solved by hand
in_simulator = partial(Problem, "In the simulator")  # with a command or a control of the lesson
on_trainer = partial(Problem, "On the trainer")  # by training or measuring


def same_losses(recipe: str, first: str, second: str, why: str) -> Problem:
    """Return the problem to train a recipe in two ways that compute the same."""
    text = t(
        "train {recipe} for 20 steps with {first}, then with {second}, each in a --run-dir of its "
        "own: divide the last losses",
        **{"recipe": f"`{recipe}`", "first": f"`{first}`", "second": f"`{second}`"},
    )
    return on_trainer(text, (1.0, "ratio"), tolerance=0.001, why=why)


@dataclass(frozen=True)
class Page:
    """What a lesson shows below its guess; every method returns what a cell can show."""

    guess: float = 1.0  # the reader's last
    tries: tuple[float, ...] = ()  # the last two
    asked: Problem | None = None  # what was to be guessed

    @property
    def guessed(self) -> str:
        """The reader's guesses beside the answer, and what a wrong one betrays; Markdown."""
        assert self.asked is not None
        answer, unit = self.asked.answer
        assert answer is not None
        found = diagnose(self.guess, answer, self.asked.tolerance, self.asked.mistakes)
        tries = t(", then ").join(f"**{show(one, '')}**" for one in self.tries)
        far = "" if found.right else f" ({off(self.guess, answer)})"
        line = t(
            "You guessed {tries}; it is **{answer}**{far}.",
            tries=tries,
            answer=_shown(answer, unit),
            far=far,
        )
        perhaps = [t("Perhaps {sentence}", sentence=one.sentence) for one in found.mistakes]
        return " ".join([line, *perhaps])

    def show(self, *items: Any) -> Any:
        """Return items below one another; a text is Markdown, a list of controls is a row."""

        def shown(item: Any) -> Any:
            if isinstance(item, list):
                return mo.hstack(item, justify="start", wrap=True)
            return mo.md(item) if isinstance(item, str) else item

        return mo.vstack([shown(item) for item in items])

    def ladder(
        self,
        asked: str | Ladder,
        unit: str = "",
        scale: float = 1.0,
        **rungs: tuple[Value, str],
    ) -> Any:
        """Return the rungs that a ladder has: number, step from the rung below, what it adds.

        Args:
            asked: a ladder as it is, or what is asked; then a guess is its first rung.
            scale: what the guess is multiplied by, where its unit is not that of the rungs.
            rungs: name -> (number, what it adds); those without a number are left out.
        """
        if isinstance(asked, str):
            given = [
                Rung(name, float(n), adds) for name, (n, adds) in rungs.items() if n is not None
            ]
            asked = ladder(asked, unit, scale * self.guess if self.asked else None, given)
        rows = [
            (f"**{t(rung.name)}**", _shown(rung.value, asked.unit), step, t(rung.adds))
            for rung, step in asked.steps
        ]
        names = (t("rung"), "", t("difference"), t("what it adds"))
        return mo.md(f"{t('*Ladder:*')} {said(asked.question)}\n\n{_table(names, rows)}")

    def derivation(self, *lines: tuple[str, str], numbers: Answer) -> Any:
        """Return steps of a derivation, each a formula and the reason for it, and its numbers.

        Args:
            lines: formulas as `mathml` takes them.
            numbers: whose formula is the one that was derived.
        """
        rows = [(mathml(formula), words) for formula, words in lines]
        steps = f"## {t('Why')}\n\n{_table(('', ''), rows)}"
        return self.show(steps, t("With the numbers of this lesson:"), *self._filled(numbers))

    def formula(self, answer: Answer) -> Any:
        """Return an answer with its formula, typeset; the command's whole page one click away."""
        binds = t(", bound by {what}", what=said(answer.binds)) if answer.binds else ""
        line = f"**{said(answer.name)}**: {_shown(answer.answer, answer.unit)}{binds}"
        return self.show(line, *self._filled(answer))

    def _filled(self, answer: Answer) -> list[Any]:
        """Return a formula with its numbers, typeset; the command's whole page one click away."""
        found: list[Any] = []
        if answer.formula:
            numbers = {given.symbol: plain(given.value) for given in answer.inputs}
            ideal = _shown(answer.answer if answer.ideal is None else answer.ideal, answer.unit)
            meanings = "; ".join(
                f"{mathml(given.symbol)} = {_shown(given.value, given.unit)}"
                + f", {said(given.meaning)}" * bool(given.meaning)
                for given in answer.inputs
            )
            filled = mathml(substituted(answer.formula, numbers))
            found += [f"**{ideal}** = {mathml(answer.formula)} = {filled}"]
            found += [t("with {meanings}.", meanings=meanings)]
        if answer.section or answer.parts or answer.rows:  # there is more to see
            found.append(mo.accordion({t("all its numbers"): mo.md(f"```\n{answer}\n```")}))
        return found

    def table(self, rows: Sequence[Mapping[str, Value]]) -> Any:
        """Return rows as a table; a heading `name (unit)` says how its cells are written."""
        if not rows:
            return mo.md("")
        units = {name: name.partition(" (")[2].rstrip(")") for name in rows[0]}
        cells = [[_shown(row[name], unit) for name, unit in units.items()] for row in rows]
        heads = [t(t(name).partition(" (")[0]) for name in units]
        return mo.md(_table(heads, cells))

    def picture(self, drawn: Picture, alt: str) -> Any:
        """Return a drawing with its description, as screen readers and tests take it."""
        words = escape("; ".join(map(said, alt.split("; "))), quote=True)
        return mo.Html(
            f'<figure role="img" aria-label="{words}">{svg_said(svg_text(drawn))}</figure>'
        )

    def steps(
        self,
        steps: Mapping[Any, Prediction],
        alt: str = "Step times",
        scale: Mapping[Any, float] | None = None,
    ) -> Any:
        """Return a bar for each step, by its mesh: what it computes, waits for, and the rest.

        Args:
            scale: mesh -> what its seconds are multiplied by; default: 1.
        """
        bars = {}
        for mesh, step in steps.items():
            factor, time = (scale or {}).get(mesh, 1.0), step.time
            bars[str(mesh)] = {
                t("compute"): factor * float(time.compute + time.optimizer),
                t("waiting"): factor * float(time.exposed_communication),
                t("other"): factor * float(time.bubble + time.host),
            }
        words = (f"{mesh} {format_time(sum(bar.values()))}" for mesh, bar in bars.items())
        return self.picture(stacked_bars(bars, format_time), f"{t(alt)}: {', '.join(words)}")

    def reply(self, right: bool, text: str) -> Any:
        """Return what is said to a choice."""
        return _box(right, f"{t('Yes') if right else t('No')}: {text}")

    def takeaway(
        self,
        text: str,
        problems: ProblemFields | None = None,
        *more: Any,
        title: str = "",
        lesson: int | None = None,
    ) -> Any:
        """Return the box with what to remember, and below it the problems.

        Args:
            title: of the problems; "": how many there are.
            lesson: the number whose puzzles are named.
        """
        lines = [f"{t('**Take away.**')} {text}"]
        for puzzle in puzzles():
            if puzzle.lesson == lesson:
                command = f"scaling learn puzzle {puzzle.number}"
                named = f"*{t(puzzle.title)}* (`{command}`)"
                lines.append(t("A puzzle, judged by the compiler: {puzzle}.", puzzle=named))
        box = _box(True, "\n\n".join(lines))
        if problems is None:
            return box
        title = title or t(COUNTED[len(problems)])
        return self.show(box, f"## {title}", *problems, *more)

    def where_wrong(self, text: str, rows: Sequence[Mapping[str, Value]]) -> Any:
        """Return where the model of this lesson is wrong, with predicted and measured figures."""
        table = [self.table(rows)] if rows else []
        return self.show(f"{t('## Where the model is wrong')}\n\n{text}", *table)

    def ending(
        self,
        problems: ProblemFields,
        text: str,
        rows: Sequence[Mapping[str, Value]],
        *more: Any,
    ) -> Any:
        """Return the verdicts on the problems, and below them where the model is wrong."""
        return self.show(self.verdicts(problems), self.where_wrong(text, rows), *more)

    def problems(self, *problems: Problem) -> ProblemFields:
        """Return the fields of problems."""
        return ProblemFields(problems)

    def problem(self, where: str, text: str, unit: str) -> Any:
        """Return the field of one problem; `where` says how it is to be solved."""
        return _field(f"**{t(where)}:** {text} ({t(unit)})")

    def verdicts(self, problems: ProblemFields) -> Any:
        """Return what is said to the number in each field: nothing until there is one."""
        said: list[Any] = []
        for one, field in zip(problems.problems, problems, strict=True):
            answer, unit = one.answer
            if answer is not None:
                how = (one.mistakes, one.tolerance, str(one.why))
                said.append(self.verdict(field, answer, unit, *how))
            elif field.value is not None:
                value: Any = field.value
                said.append(one.why(float(value)) if callable(one.why) else one.why)
        return self.show(*said)

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
            return mo.md("")
        value: Any = field.value
        found = diagnose(float(value), answer, tolerance, mistakes)
        right = t("Right: {answer}. {why}", answer=_shown(answer, unit), why=why)
        return _box(found.right, right if found.right else _lines(str(found)))


def _shown(value: Value, unit: str) -> str:
    return said(show(value, unit if unit in FORMATS else t(unit)))


def _lines(text: str) -> str:
    """Return the lines of a text as paragraphs of Markdown."""
    return text.replace("\n", "\n\n")


def _box(right: bool, text: str) -> Any:
    return mo.callout(mo.md(text), kind="success" if right else "warn")


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    is_number = lambda cell: cell.lstrip("+-")[:1].isdigit() and cell.count(" ") < 2
    is_figure = lambda cell: cell in ("", "none") or is_number(cell)  # with a unit at most
    columns = ([row[i] for row in rows] for i in range(len(names)))
    sides = ["---:" if all(map(is_figure, column)) else ":---" for column in columns]
    whole = lambda cell: cell.replace(" ", NO_BREAK) if cell.count(" ") == 1 else cell
    rows = [[whole(cell) if is_figure(cell) else cell for cell in row] for row in rows]
    lines = [names, sides, *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "/") for cell in line) + " |" for line in lines
    )
