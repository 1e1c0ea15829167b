"""The answer to a question: a number with its formula, what was put in, and what binds.

    answer     the number that is given: the fitted one, or the textbook's
    ideal      the textbook's: no latency, every link, unit and memory at its full rate
    fitted     with the figures of the profile, as `scaling predict` prices
    formula    of the textbook's number, computed from its own text (scaling.meshes.formula)

Units are SI: "s", "bytes", "bytes/s", "FLOPs", "FLOP/s"; a count has "tokens", "devices", and a
ratio "".
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scaling.meshes.formula import Input as Input
from scaling.meshes.formula import evaluate, substituted, symbols
from scaling.meshes.result import Result
from scaling.meshes.units import LEAST_PREFIXED, is_binary
from scaling.questions.page import BINARY, DECIMAL, plain, show, table, unit_of
from scaling.questions.page import Value as Value

MOST_WHOLE = 0.75  # of the sizes of a page that is in GiB; chosen by this project
GUIDE = "https://jax-ml.github.io/scaling-book/"


@dataclass(frozen=True, repr=False)
class Answer(Result):
    """One answered question; `parts` answer what it consists of, by the same keys.

    `float(answer)` is its number, and `answer["name"]` the part of that name.
    """

    name: str  # what is asked, in a few words
    answer: Value  # None: there is none, `binds` or `notes` say why
    unit: str = ""
    formula: str = ""
    inputs: tuple[Input, ...] = ()
    binds: str = ""  # the unit, memory or link that limits the answer
    ideal_binds: str = ""  # that limits the textbook's number; "": the same
    section: str = ""  # of the guide: "gpus: data parallelism"
    ideal: Value = None
    fitted: Value = None
    low: Value = None  # ends of the range of the fitted number
    high: Value = None
    parts: tuple["Answer", ...] = ()
    rows: tuple[Mapping[str, Value], ...] = ()  # a table: a sweep, a frontier, mesh axes
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> "Answer":
        """Return the part with that name; KeyError names all parts."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(f"{name!r} is no part of {self.name!r}: {[p.name for p in self.parts]}")

    def __float__(self) -> float:
        """Return the answer as a number; TypeError if it is a word or there is none."""
        if isinstance(self.answer, int | float):
            return float(self.answer)
        raise TypeError(f"{self.name}: {self.answer or 'there is none'} is no number")

    @property
    def figures(self) -> dict[str, Value]:
        """Symbol or part -> its value: what the answer was computed from, and consists of."""
        given = {i.symbol: i.value for i in self.inputs}
        return given | {part.name: part.answer for part in self.parts}

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as JSON has it."""
        given = {i.symbol: {"unit": i.unit, "meaning": i.meaning} for i in self.inputs}
        return {
            "name": self.name,
            "answer": self.answer,
            "unit": self.unit,
            "formula": self.formula,
            "inputs": {i.symbol: i.value for i in self.inputs},
            "symbols": given,
            "binds": self.binds,
            "ideal_binds": self.ideal_binds or self.binds,
            "section": self.section,
            "ideal": self.ideal,
            "fitted": self.fitted,
            "low": self.low,
            "high": self.high,
            "parts": [part.to_dict() for part in self.parts],
            "rows": [dict(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        """Return the page: answer, formula with its numbers, what binds, parts, table, notes.

        A formula gives the number above it; after `textbook =` it gives the textbook's in brackets.
        """
        return "\n".join(_lines(in_one_unit(self)))

    def line(self) -> str:
        return f"{self.name}: {show(self.answer, self.unit)}"


def letters(*inputs: Input) -> dict[str, Input]:
    """Return inputs by their symbols; of two with the same symbol the later one."""
    return {given.symbol: given for given in inputs}


def by_formula(
    name: str,
    unit: str,
    formula: str,
    inputs: tuple[Input, ...] | Mapping[str, Input],
    fitted: Value | Mapping[str, float] = None,
    **more: Any,
) -> Answer:
    """Return an answer whose textbook number is computed from the text of its formula.

    Args:
        formula: over the symbols of `inputs`.
        inputs: of which those count that the formula has; `letters` in the formula's order.
        fitted: the number with fitted figures, or the fitted figures of some symbols, with which
            the same formula gives it; it is then the one that is given.
    """
    used = symbols(formula)
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs[symbol] for symbol in used)
    inputs = tuple(letters(*(given for given in inputs if given.symbol in used)).values())
    values = {given.symbol: given.value for given in inputs}
    assert values.keys() == {*used}, f"{formula} has not the symbols {sorted(values)}"
    ideal = evaluate(formula, values)
    if isinstance(fitted, Mapping):
        fitted = evaluate(formula, {**values, **fitted})
    given = ideal if fitted is None else fitted
    return Answer(name, given, unit, formula, inputs, ideal=ideal, fitted=fitted, **more)


class Lettered:
    """What questions are asked of, with symbols for its figures."""

    @property
    @abstractmethod
    def letters(self) -> dict[str, Input]:
        """Symbols of formulas."""

    def answer(self, name: str, unit: str, formula: str, *others: Input, **more: Any) -> Answer:
        """Return `by_formula` over the letters, with `others` beside or in place of them."""
        return by_formula(name, unit, formula, self.letters | letters(*others), **more)


def number(answer: Answer, ideal: bool) -> float:
    """Return the textbook's number, or the one that is given."""
    return float((answer.ideal if ideal else answer.answer) or 0)


def textbook(answer: Answer) -> Answer:
    """Return the answer with the textbook's number and limit given, and those of all its parts."""
    parts = tuple(textbook(part) for part in answer.parts)
    given = answer.answer if answer.ideal is None else answer.ideal
    binds = answer.ideal_binds or answer.binds
    return replace(answer, answer=given, parts=parts, binds=binds)


def _lines(
    answer: Answer, indent: str = "", shown: frozenset[Input] = frozenset()
) -> Iterator[str]:
    """Return the lines of an answer; inputs that stand above it are not explained again."""
    inner = indent + "  "
    yield f"{indent}{answer.name}: {show(answer.answer, answer.unit)}{beside(answer)}"
    yield from (inner + line for line in formula_lines(answer))
    new = [i for i in answer.inputs if i not in shown]
    width = max((len(i.symbol) for i in new), default=0)
    for given in new:
        value = show(given.value, given.unit)
        yield f"{inner}{given.symbol.ljust(width)}  {value}  {given.meaning}".rstrip()
    if answer.binds:
        yield f"{inner}binds: {answer.binds}"
    shown = shown.union(answer.inputs)
    for part in answer.parts:
        if part.formula or part.inputs or part.rows or part.parts or part.binds:
            yield from _lines(part, inner, shown)
            shown = shown.union(part.inputs)
        else:
            remarks = f"  ({'; '.join(part.notes)})" if part.notes else ""
            yield f"{inner}{part.name}: {show(part.answer, part.unit)}{beside(part)}{remarks}"
    yield from (inner + line for line in table(answer.rows))
    yield from (f"{inner}note: {note}" for note in answer.notes)
    if answer.section and not indent:
        yield guide_line(answer, inner)


def guide_line(answer: Answer, before: str) -> str:
    """Return where the guide asks that, behind `before`; "" where it does not."""
    chapter, _, section = answer.section.partition(": ")
    return f"{before}guide: {GUIDE}{chapter}{', ' * bool(section)}{section}" if chapter else ""


def formula_lines(answer: Answer) -> Iterator[str]:
    """Return the formula, and it with its numbers; nothing where there is none."""
    if answer.formula:
        numbers = {i.symbol: plain(i.value) for i in answer.inputs}
        whose = "textbook " * (answer.answer != answer.ideal)
        yield f"{whose}= {answer.formula}"
        yield f"{' ' * len(whose)}= {substituted(answer.formula, numbers)}"


def in_one_unit(answer: Answer) -> Answer:
    """Return the answer with all its sizes in GB, or in GiB where most of them are whole in it."""
    sizes = [size for size in _sizes(answer) if size >= LEAST_PREFIXED]
    whole = sum(is_binary(size) for size in sizes)
    if whole in (0, len(sizes)):
        return answer
    return _in(answer, BINARY if whole > MOST_WHOLE * len(sizes) else DECIMAL)


def _sizes(answer: Answer) -> Iterator[float]:
    """All sizes in bytes that the page of an answer has."""
    named = [(answer.unit, v) for v in (answer.answer, answer.ideal, answer.fitted)]
    named += [(given.unit, given.value) for given in answer.inputs]
    named += [(unit_of(name), value) for row in answer.rows for name, value in row.items()]
    yield from (
        value for unit, value in named if unit == "bytes" and isinstance(value, int | float)
    )
    for part in answer.parts:
        yield from _sizes(part)


def _in(answer: Answer, unit: str) -> Answer:
    """Return the answer with its sizes in another unit of the page."""
    said = lambda own: unit if own == "bytes" else own
    renamed = lambda name: name.replace("(bytes)", f"({unit})")
    return replace(
        answer,
        unit=said(answer.unit),
        inputs=tuple(replace(given, unit=said(given.unit)) for given in answer.inputs),
        parts=tuple(_in(part, unit) for part in answer.parts),
        rows=tuple({renamed(name): value for name, value in row.items()} for row in answer.rows),
    )


def beside(answer: Answer) -> str:
    """Return the range, and the number that is not given, the textbook's or the fitted one."""
    is_textbook, words = answer.answer == answer.ideal, []
    if None not in (answer.ideal, answer.fitted) and answer.ideal != answer.fitted:
        word, other = ("fitted", answer.fitted) if is_textbook else ("textbook", answer.ideal)
        words.append(f"{word} {show(other, answer.unit)}")
    if answer.low is not None:
        ends = dict.fromkeys(show(end, answer.unit) for end in (answer.low, answer.high))
        words[is_textbook:is_textbook] = [" to ".join(ends)] * (len(ends) > 1)
    return f" ({', '.join(words)})" if words else ""
