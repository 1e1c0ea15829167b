"""Topics of the guide by its sections, words and symbols, and what answers each of them here.

    find("all-gather")  ->  topics, the best first: commands, lessons, quizzes, pages of docs/

A word that is one of a topic's counts most, then its title, its section, and what its quizzes ask
and where.
Symbols are matched as they are written: B is not b.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, reduce
from itertools import groupby
from operator import getitem
from typing import Any

from scaling.course.language import said, t
from scaling.course.lessons.index import lessons
from scaling.course.quizzes.command_lines import result_of
from scaling.course.quizzes.quiz import find as find_quiz
from scaling.meshes.errors import InputError
from scaling.meshes.reading import package_toml, read
from scaling.meshes.result import Result
from scaling.questions.answer import GUIDE

EXAMPLES = ("all-gather", "MFU", "bubble", "KV cache")
WORD, TITLE, SECTION, ASKED = 8, 4, 2, 1  # what a match counts; chosen by this project
SHOWN, NAMED = 2, 4  # topics of a short page with all that answers them, and those that are named


@dataclass(frozen=True)
class Topic:
    """One idea of the guide; its fields are the keys of the file."""

    title: str
    section: str  # "gpus: quiz 2 Q3"
    words: tuple[str, ...]
    commands: tuple[str, ...]  # computed when shown; `COMMAND :: PART` shows a part of the answer
    symbols: tuple[str, ...] = ()
    others: tuple[str, ...] = ()  # commands that are only named
    lessons: tuple[int, ...] = ()
    quizzes: tuple[str, ...] = ()
    docs: tuple[str, ...] = ()  # FILE.md, or FILE.md#heading

    @property
    def chapter(self) -> str:
        return self.section.partition(":")[0]

    @property
    def guide(self) -> str:
        """Where the guide has it."""
        return GUIDE + self.section.replace(":", ",", 1)

    def matches(self, word: str) -> int:
        """How well a word names it; 0: not at all."""
        low, spaced = _spelled(word), f" {_spelled(word)}"
        known = [_spelled(entry) for entry in self.words]
        section = _spelled(self.section)
        if word in self.symbols or low in (*known, _spelled(self.chapter), section):
            return WORD
        if len(low) < 2:
            return 0
        titles = _spelled(self.title), _spelled(t(self.title))
        if any(spaced in f" {text}" for text in (*known, *titles)):
            return TITLE
        if spaced in f" {section}" or word in self.quizzes:
            return SECTION
        quizzes = map(find_quiz, self.quizzes)
        asked = _spelled(" ".join(f"{quiz.section} {quiz.question}" for quiz in quizzes))
        return ASKED if spaced in f" {asked}" else 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it, without computing anything."""
        listed = ("words", "symbols", "commands", "others", "lessons", "quizzes", "docs")
        lists = {name: list(getattr(self, name)) for name in listed}
        return {"title": self.title, "section": self.section, "guide": self.guide, **lists}


@dataclass(frozen=True)
class TopicFile:
    """The file."""

    topic: tuple[Topic, ...]


@cache
def topics() -> tuple[Topic, ...]:
    """Return all topics, in the guide's order."""
    return read(TopicFile, package_toml("course/finder/topics.toml"), "topics.toml").topic


@dataclass(frozen=True, repr=False)
class Found(Result):
    """The topics that words name, the best first; printed with their commands computed."""

    words: str
    topics: tuple[Topic, ...]
    is_whole: bool = False  # whether every topic is shown in full

    def __str__(self) -> str:
        shown = self.topics if self.is_whole else self.topics[:SHOWN]
        lines = [line for topic in shown for line in _lines(topic)]
        if rest := self.topics[len(shown) :]:
            names = "; ".join(t(topic.title).partition(":")[0] for topic in rest[:NAMED])
            names += "; ..." * (len(rest) > NAMED)
            lines.append(t("{n} more by --all: {names}", n=len(rest), names=names))
        return "\n".join(lines)

    def line(self) -> str:
        return f"{self.words}: {'; '.join(topic.title for topic in self.topics)}"

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.words, "topics": [topic.to_dict() for topic in self.topics]}


def find(words: str, is_whole: bool = False) -> Found:
    """Return the topics that all words name together, or that each word does by itself.

    Raises:
        InputError: no topic has them; the nearest words are named.
    """
    asked = words.split()
    if not asked:
        raise InputError("write a word of the guide, such as scaling learn find all-gather")
    together = {topic: topic.matches(words) for topic in topics()}
    each = {topic: [topic.matches(word) for word in asked] for topic in topics()}
    points = {one: len(asked) * together[one] or all(n) * sum(n) for one, n in each.items()}
    found = sorted((one for one in topics() if points[one]), key=lambda one: -points[one])
    if not found:
        known = sorted({word for topic in topics() for word in (*topic.words, *topic.symbols)})
        near = get_close_matches(words, known, n=4, cutoff=0.5) or EXAMPLES
        chapters = ", ".join(dict.fromkeys(topic.chapter for topic in topics()))
        raise InputError(
            f"the index has no {words!r}; it has words such as {', '.join(near)}, and the chapters "
            f"{chapters}"
        )
    return Found(words, tuple(found), is_whole)


def _spelled(text: str) -> str:
    """Return a text in small letters, `all-gather` as `all gather`."""
    return text.lower().replace("-", " ")


def _lines(topic: Topic) -> Iterator[str]:
    yield t(topic.title)
    for line, asked in groupby(topic.commands, lambda command: command.partition(" :: ")[0]):
        yield f"  $ scaling {line}"
        for _, *parts in (command.split(" :: ") for command in asked):
            yield f"    {said(reduce(getitem, parts, result_of(line)).line())}"
    yield from (f"  $ scaling {command}" for command in topic.others)
    titles = {lesson.number: t(lesson.title) for lesson in lessons()}
    learn: Sequence[str] = [f"lesson {n} ({titles[n]})" for n in topic.lessons]
    learn = [*learn, *(f"quiz {id}" for id in topic.quizzes)]
    yield from [f"  scaling learn: {', '.join(learn)}"] if learn else []
    pages = ", ".join(f"docs/{page}" for page in topic.docs)
    read = t("  read: {pages}; guide: {guide}") if pages else t("  guide: {guide}")
    yield read.format(pages=pages, guide=topic.guide)
