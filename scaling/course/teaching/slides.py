"""Slides of a lesson: one HTML file that needs nothing else, made from the lesson's own blocks.

Question and answer stand on slides of their own; solutions of problems stand on none. Arrow keys,
space and the buttons turn the pages; printed, each slide is a page. Without scripts all stand below
one another.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources

from scaling.course.language import language, t
from scaling.course.teaching.blocks import Block
from scaling.course.teaching.material import Material, takeaway_head
from scaling.questions.page import show

FULL = 12.0  # lines of text that a slide holds
LETTERS = 75.0  # of a line
FIGURE = 10.0  # lines that a drawing takes
SHELL = resources.files("scaling.course.teaching") / "slides.html"


@dataclass(frozen=True)
class Slide:
    """One page."""

    title: str
    html: tuple[str, ...]


def deck(material: Material) -> str:
    """Return the slides of a lesson as an HTML file."""
    every = slides(material)
    sections = (
        f'<section aria-label="{number} / {len(every)}"><h1>{escape(slide.title)}</h1>'
        f"<div>{''.join(slide.html)}</div></section>"
        for number, slide in enumerate(every, 1)
    )
    title = _title(material)
    shell = SHELL.read_text(encoding="utf-8")
    words = {"language": language(), "title": title}
    words |= {"all": t("Slides"), "back": t("Back"), "on": t("On")}
    for name, text in words.items():
        shell = shell.replace(f"{{{{{name}}}}}", escape(text))
    return shell.replace("{{slides}}", "\n".join(sections))


def _title(material: Material) -> str:
    return f"{material.name}. {t(material.lesson.title)}"


def slides(material: Material) -> list[Slide]:
    """Return the pages in their order."""
    title = _title(material)
    asked, (answer, unit) = material.asked, material.asked.answer
    assert answer is not None
    lead = [block for block in material.before if block.tag != "h1"]
    problems = "".join(
        f"<li><strong>{escape(t(one.where))}:</strong> {_code(one.text)} "
        f"({escape(t(one.answer[1] or 'a ratio'))})</li>"
        for one in material.problems
    )
    body = [block for block in material.after if _is_shown(block)]
    one_number = t("One number, in {unit}.", unit=t(unit))
    every = list(_sections(t(material.lesson.title), body))
    derived = max((i for i, slide in enumerate(every, 1) if _derives(slide.html[-1])), default=0)
    return [
        *_pages(title, lead),
        Slide(t("Your guess"), (_big(_code(asked.text)), f"<p>{escape(one_number)}</p>")),
        *every[:derived],
        Slide(t("It is"), (_big(escape(show(answer, t(unit)))),)),
        *every[derived:],
        *([Slide(t("Problems"), (f"<ol>{problems}</ol>",))] if problems else []),
        Slide(takeaway_head().rstrip("."), (_big(escape(material.takeaway)),)),
    ]


def _is_shown(block: Block) -> bool:
    """Whether a slide shows it: no pages of commands, and what has a slide of its own but once."""
    is_empty = not block.text.strip() and block.tag != "figure"
    return block.tag != "pre" and not is_empty and not block.text.startswith(takeaway_head())


def _sections(title: str, blocks: Sequence[Block]) -> Iterator[Slide]:
    """Divide blocks at their headings."""
    held: list[Block] = []
    for block in blocks:
        if block.tag in ("h1", "h2", "h3"):
            yield from _pages(title, held)
            title, held = block.text, []
        else:
            held.append(block)
    yield from _pages(title, held)


def _pages(title: str, blocks: Sequence[Block]) -> Iterator[Slide]:
    """Divide the blocks of one heading into pages that hold them."""
    held: list[str] = []
    taken = 0.0
    for block in blocks:
        lines = _lines(block)
        if held and (taken + lines > FULL or _derives(held[-1])):  # the answer comes next
            yield Slide(title, tuple(held))
            held, taken = [], 0.0
        held.append(block.html)
        taken += lines
    if held:
        yield Slide(title, tuple(held))


def _derives(html: str) -> bool:
    """Whether it is the table of a derivation, which has formulas and no answer."""
    return "<table" in html and "<math" in html


def _lines(block: Block) -> float:
    if block.tag == "figure":
        return FIGURE
    if block.tag == "table":
        rows = block.html.count("<tr")
        return max(1.4 * rows if "<math" in block.html else rows, 1.3 * len(block.text) / LETTERS)
    return 1.0 + len(block.text) / LETTERS


def _big(html: str) -> str:
    return f'<p class="big">{html}</p>'


def _code(text: str) -> str:
    """Return a text of Markdown, whose code stands in backticks, as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))
