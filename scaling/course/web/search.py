"""What a reader can find by a word: lessons, labs, quizzes, puzzles, words of the glossary."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from scaling.course.finder.topics import topics
from scaling.course.language import t
from scaling.course.lessons.index import labs, lessons
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.quiz import quizzes
from scaling.course.web.pages import glossary_text, kind_of
from scaling.meshes.errors import check_keys

ROW = re.compile(r"^\| *([^|]+?) *\| *([^|]+?) *\|", re.MULTILINE)  # of the glossary's tables
TEXT = re.compile(r'"""(.*?)"""', re.DOTALL)  # of a notebook
MARKUP = re.compile(r"\]\([^)]*\)|[`*\[\]]|^#+ ", re.MULTILINE)


def all_entries(given: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return kind, title, address and text of all that pages of the course have."""
    check_keys(given, (), "search")
    return list(_entries())


def _entries() -> Iterator[dict[str, str]]:
    for one in (*lessons(), *labs()):
        text = " ".join(map(t, TEXT.findall(one.file.read_text(encoding="utf-8"))))
        place = f"lessons.html#{one.file.stem}"
        yield entry(kind_of(one), f"{one.number}. {t(one.title)}", place, text)
    for quiz in quizzes():
        yield entry("quiz", quiz.section, f"quizzes.html#{quiz.id}", t(quiz.question))
    for puzzle in puzzles():
        place, text = f"puzzles.html#puzzle-{puzzle.number}", f"{t(puzzle.story)} {t(puzzle.hint)}"
        yield entry("puzzle", f"{puzzle.number}. {t(puzzle.title)}", place, text)
    for topic in topics():
        places = [f"quizzes.html#{id}" for id in topic.quizzes]
        places[:0] = [f"lessons.html#lesson_{number:02}" for number in topic.lessons]
        words = " ".join((topic.title, *topic.words, *topic.commands, *topic.others))
        yield entry("topic", t(topic.title), [*places, topic.guide][0], words)
    for word, meaning in ROW.findall(glossary_text()):
        if word.strip("-: "):
            yield entry("word", word, "glossary.html", meaning)


def entry(kind: str, title: str, address: str, text: str) -> dict[str, str]:
    """Return one entry, its texts without markup and on one line."""
    plain = {"title": title, "text": text}
    cleaned = {name: " ".join(MARKUP.sub("", words).split()) for name, words in plain.items()}
    return {"kind": kind, **cleaned, "address": address}
