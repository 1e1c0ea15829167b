"""Brings `scaling/course/ko.po` up to date with the texts of the course.

    python -m experiments.messages     adds texts that are new, drops those that are gone

A text keeps its translation as long as it stays the same, letter by letter. A new one has none
until somebody writes it; tests/scaling/course/test_language.py names those. A text of the engine
(ENGINE) may have a translation, by hand: its f-string, as the source has it, is the msgid.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from scaling.course.finder.topics import topics
from scaling.course.ladder.measured import _table
from scaling.course.ladder.rungs import RUNGS
from scaling.course.language import FIELD, PATTERN, entries
from scaling.course.lessons.index import labs, lessons
from scaling.course.lessons.lab1_programs import FILE as PROGRAMS
from scaling.course.lessons.lab1_programs import cases
from scaling.course.lessons.lab4_errata import NOTHING, OTHER, exhibits
from scaling.course.lessons.translated import Text, name_of, texts
from scaling.course.puzzles.goal import MEASURES
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.common_mistakes import FAR, KNOWN
from scaling.course.quizzes.quiz import quizzes
from scaling.course.sweeps.game import sweep
from scaling.course.teaching.plans import plan
from scaling.course.web.pages import MEANING, glossary_text
from scaling.course.web.texts import ENGLISH
from scaling.program.stored import stored_programs

ROOT = Path(__file__).parents[1]
COURSE, CLI = ROOT / "scaling" / "course", ROOT / "scaling" / "cli"
ENGINE = ("questions", "pictures", "meshes", "api", "collectives", "report", "simulate", "analytic")
CATALOGUE = COURSE / "ko.po"
HEAD = r"""# Korean texts of the course. `python -m experiments.messages` keeps the list of texts.
msgid ""
msgstr ""
"Language: ko\n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"
"""
WORDS = re.compile(r"[A-Za-z]{2,}['*`]*[,.:;)]* +[(*`]*[A-Za-z]{2,}")  # two words: a text, no name
NO_TEXT = re.compile(r"(?:Lab )?\d+\. |scaling [a-z]|--")  # a title with its number; a command


def required() -> dict[str, str]:
    """Return every text that a reader sees and that must have a translation -> its file."""
    found: dict[str, str] = {}
    for where, text in _required():
        found.setdefault(text, where.removeprefix(f"{ROOT}/"))
    return found


def _required() -> Iterator[tuple[str, str]]:
    for shelf in (lessons(), labs()):
        for lesson in shelf:
            yield str(lesson.file), lesson.title
            yield from (
                (str(lesson.file), text) for text in texts(_read(lesson.file)) if _is_text(text)
            )
    for file in _sources():
        tree = ast.parse(_read(file))
        yield from ((str(file), text) for text in (*_calls(tree), *_errors(tree)))
    yield from (("scaling/course/web/texts.toml", text) for text in ENGLISH.values())
    glossary = glossary_text()
    blocks = (block for block in glossary.strip().split("\n\n") if not block.startswith("|"))
    meanings = (row[1] for row in MEANING.findall(glossary))
    yield from (("docs/glossary.md", text) for text in (*blocks, *meanings))
    yield from (("scaling/course/puzzles/goal.py", one.words) for one in MEASURES.values())
    told = (sweep().about, *sweep().choosers.values(), *(p.network for p in sweep().problems))
    yield from (("scaling/course/web/pages/sweeps.json", text) for text in told)
    yield from (("scaling/program/stored", one.group) for one in stored_programs())
    steps = {step for one in (*lessons(), *labs()) for step in plan(one).steps}
    plans = [text for step in sorted(steps, key=str) for text in (step.title, step.what)]
    plans += [text for one in (*lessons(), *labs()) for text in (plan(one).board, *plan(one).ask)]
    yield from (("scaling/course/teaching/plans.toml", text) for text in plans)
    yield from (("scaling/course/finder/topics.toml", topic.title) for topic in topics())
    mistakes = "scaling/course/quizzes/common_mistakes.py"
    yield from ((mistakes, text) for text in (by for _, by in FAR))
    yield from (("scaling/course/ladder/rungs.py", name) for name in RUNGS)
    rows = (row for kind in ("collective", "step", "kernel", "series") for row in _table()[kind])
    for row in rows:
        yield "scaling/course/ladder/measured.toml", row["machine"]
    for quiz in quizzes():
        where = f"scaling/course/quizzes/chapters/{quiz.chapter}.toml"
        named = [answer.name for answer in quiz.answers if WORDS.search(answer.name)]
        reasons = [answer.reason for answer in quiz.answers]
        yield from ((where, text) for text in (quiz.question, quiz.note, *named, *reasons) if text)
    for name, known in KNOWN.items():
        told = (name, known.done, known.check)
        yield from (("scaling/course/quizzes/mistakes.toml", text) for text in told)
    for puzzle in puzzles():
        words = (puzzle.title, puzzle.story, puzzle.hint)
        yield from (("scaling/course/puzzles/tasks", text) for text in words)
    for one in exhibits():
        said = (one.title, one.where, one.claim, one.question.reason)
        yield from (("scaling/course/lessons/data/lab4_errata.toml", text) for text in said)
    yield from (("scaling/course/lessons/lab4_errata.py", text) for text in (OTHER, NOTHING))
    for case in cases():
        yield from ((str(PROGRAMS), text) for text in (case.name, case.cause, case.why))


def optional() -> dict[str, str]:
    """Return strings that may have a translation, such as headings of one word -> their file."""
    found: dict[str, str] = {}
    engine = (file for folder in ENGINE for file in (ROOT / "scaling" / folder).rglob("*.py"))
    for file in (*sorted(COURSE.rglob("*.py")), *sorted(engine)):
        for node in ast.walk(ast.parse(_read(file))):
            if isinstance(node, ast.Constant | ast.JoinedStr):
                for one in (name_of(node), name_of(node).partition(" (")[0]):
                    found.setdefault(one, str(file).removeprefix(f"{ROOT}/"))
    for quiz in quizzes():
        for answer in quiz.answers:
            where = f"scaling/course/quizzes/chapters/{quiz.chapter}.toml"
            found |= {text: where for text in (answer.name, answer.unit) if text not in found}
    return found


def written(translations: dict[str, str]) -> str:
    """Return the catalogue of these translations, in the order of the sources."""
    extra = optional()
    found = required()
    found |= {text: extra[text] for text in translations if text in extra and text not in found}
    filled = {*extra} - {text for text, where in extra.items() if "/course/" in where}
    filled |= {text for file in _sources() for text in _errors(ast.parse(_read(file)))}
    blocks = [
        f"#: {where}\n{f'#, {PATTERN}' + chr(10) if text in filled and _is_filled(text) else ''}"
        f"msgid {_lines(text)}\nmsgstr {_lines(translations.get(text, ''))}\n"
        for text, where in sorted(found.items(), key=lambda item: item[1])
    ]
    return "\n".join([HEAD, *blocks])


def _sources() -> list[Path]:
    return sorted([*COURSE.rglob("*.py"), *CLI.glob("learn*.py")])


def _errors(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of all InputErrors that are raised, an f-string by its source."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "InputError":
            yield from (name_of(one) for one in node.args if isinstance(one, Text))


def _is_filled(text: str) -> bool:
    return bool(FIELD.search(text)) and bool(FIELD.sub("", text).strip())


def _is_text(text: str) -> bool:
    name = re.sub(r"(?: (?:\{.*\}|[\d.]+))?(?:: (?:high|low))?$", "", text)  # of a mistake
    words = WORDS.search(re.sub(r"\{[^{}]*\}", "", text))
    return bool(words) and name not in KNOWN and not NO_TEXT.match(text)


def _calls(tree: ast.Module) -> Iterator[str]:
    """Yield the texts of all calls t("...") and t(NAME), NAME a constant of the module."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign))
    constants = {
        node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "t" and node.args:
            text = node.args[0].value if isinstance(node.args[0], ast.Subscript) else node.args[0]
            text = constants.get(getattr(text, "id", ""), text)
            values = getattr(text, "values", [text])  # of a dict, or of `a or "b"`
            values = [text.body, text.orelse] if isinstance(text, ast.IfExp) else values
            yield from (str(one.value) for one in values if isinstance(one, ast.Constant))


def _lines(text: str) -> str:
    """Return a text as a catalogue has it: a line of it on each line, a long one alone."""
    rows = text.splitlines(keepends=True) or [""]
    quoted = [json.dumps(row, ensure_ascii=False) for row in rows]
    return quoted[0] if len(quoted) == 1 else "\n".join(['""', *quoted])


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")


if __name__ == "__main__":
    known = entries(_read(CATALOGUE)) if CATALOGUE.is_file() else {}
    CATALOGUE.write_text(written(known), encoding="utf-8")
    todo = [text for text in required() if text not in known]
    print(f"{len(required())} texts, {len(todo)} without a translation: {CATALOGUE}")
