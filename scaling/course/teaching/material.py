"""What a teacher needs of a lesson: it is run once, and its guess, problems and texts are kept.

    found = material(index.numbered("lesson", "1"))
    found.asked.answer, found.problems[0].mistakes, found.before, found.after

Nothing is written by hand twice: the question, the mistakes and the answers are those of the
notebook, computed when this is called.
"""

import re
from dataclasses import dataclass

import marimo as mo

from scaling.course.language import t
from scaling.course.lessons.index import Lesson
from scaling.course.lessons.parts import OPENS, Page, Problem
from scaling.course.teaching.blocks import Block, blocks
from scaling.meshes.errors import InputError
from scaling.questions.answer import GUIDE

CHAPTER = re.compile(re.escape(GUIDE) + r"([\w-]+)")
TAKEAWAY = "**Take away.**"
PUZZLE = "A puzzle, judged by the compiler: {puzzle}."
GUESSED = r"<tr>\s*<td[^>]*><strong>{guess}</strong>.*?</tr>"  # of a ladder


@dataclass(frozen=True)
class Material:
    """A lesson or lab that was run."""

    lesson: Lesson
    chapter: str  # of the guide
    asked: Problem  # the guess, with its answer and the mistakes that are possible
    problems: tuple[Problem, ...]  # at its end
    before: tuple[Block, ...]  # what a reader sees before the guess
    after: tuple[Block, ...]

    @property
    def name(self) -> str:
        """`Lesson 1` or `Lab 1`."""
        kind, _, _ = self.lesson.file.stem.partition("_")
        number = self.lesson.number
        return t("Lab {number}" if kind == "lab" else "Lesson {number}", number=number)

    @property
    def takeaway(self) -> str:
        """What to remember."""
        head, puzzle = takeaway_head(), t(PUZZLE).partition("{")[0]
        found = (b.text for b in self.after if b.tag == "box" and b.text.startswith(head))
        return next(found, "").removeprefix(head).partition(puzzle)[0].strip()


def takeaway_head() -> str:
    """Return the words that the box of a takeaway begins with."""
    return t(TAKEAWAY).strip("*")


def material(lesson: Lesson) -> Material:
    """Return the material of a lesson; it runs for some seconds."""
    outputs, definitions = lesson.run()
    texts = [str(getattr(output, "text", "")) for output in outputs if output is not None]
    (place,) = [i for i, text in enumerate(texts) if t(OPENS) in text]
    before = [block for text in texts[: place + 1] for block in blocks(text)]
    page: Page = definitions["page"]
    if page.asked is None:
        raise InputError(f"{lesson.file.name} does not say what its guess should be")
    after = [block for text in texts[place + 1 :] for block in blocks(text)]
    head = CHAPTER.search(" ".join(block.html for block in before))
    assert head, f"{lesson.file.name} has no heading"
    return Material(
        lesson,
        head[1],
        page.asked,
        tuple(getattr(definitions.get("problems"), "problems", ())),
        tuple(before),
        tuple(_without_guess(block, page) for block in after),
    )


def _without_guess(block: Block, page: Page) -> Block:
    """Return a block without what is said of the guess or of a choice, which nobody has made."""
    if block.tag == "box":
        no = f"{t('No')}: "
        return Block("box", block.html.replace(f"<p>{no}", "<p>"), block.text.removeprefix(no))
    if block.tag == "table":
        row = re.compile(GUESSED.format(guess=re.escape(t("guess"))), re.DOTALL)
        return Block("table", row.sub("", block.html), block.text)
    (said,) = blocks(mo.md(page.guessed).text)
    start = said.html.removesuffix("</p>")
    if not block.html.startswith(start):
        return block
    rest = block.html.removeprefix(start).strip()
    return Block(block.tag, f"<p>{rest}", block.text.removeprefix(said.text).strip())
