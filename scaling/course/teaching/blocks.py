"""What a notebook shows, as plain HTML: its texts, tables, formulas and drawings, no controls.

    blocks(cell.text) -> (Block("h2", "<h2>Why</h2>"), Block("p", "<p>...</p>"), ...)

A control of marimo is an element `marimo-...`, which needs marimo's scripts; only the text of its
boxes is kept. Nothing that is not known as harmless gets through: no script, no address but http.
"""

import json
import re
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser

WHOLE = ("h1", "h2", "h3", "p", "table", "pre", "ul", "ol", "figure")  # each is a block
INSIDE = (
    *("thead", "tbody", "tr", "th", "td", "li", "strong", "em", "code", "a", "br", "sub", "sup"),
    *("math", "mrow", "mi", "mn", "mo", "mtext", "msub", "msup", "mfrac", "msqrt", "mspace"),
    *("svg", "g", "rect", "circle", "line", "polyline", "polygon", "path", "text", "tspan"),
    *("title", "defs", "marker", "pattern", "clippath"),
)
EMPTY = ("br", "mspace")  # without an end
BOX = "marimo-callout-output"
NO_HEADING = re.compile(r"<th\b[^>]*></th>")  # of a column that has none
LINKS = ("http://", "https://")


@dataclass(frozen=True)
class Block:
    """A part of a page that is not divided."""

    tag: str  # "box": what marimo frames
    html: str
    text: str  # without its tags


def blocks(html: str) -> tuple[Block, ...]:
    """Return the blocks of what a cell shows."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return tuple(block for block in reader.found if block.text.strip() or "<svg" in block.html)


class _Reader(HTMLParser):
    """Collects blocks; what stands outside of them is dropped."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[Block] = []
        self.open: list[tuple[str, str]] = []  # (tag as written, tag as kept) within a block
        self.html: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Open a block or an element of one."""
        given = {name: value or "" for name, value in attributes}
        if tag == BOX and not self.open:
            inner = blocks(json.loads(given.get("data-html", '""')))
            html = "".join(block.html for block in inner)
            text = " ".join(block.text for block in inner)
            self.found.append(Block("box", f'<div class="box">{html}</div>', text))
            return
        kept = "p" if given.get("class") == "paragraph" else tag
        if not self.open and kept not in WHOLE:
            return
        if kept not in (*WHOLE, *INSIDE):
            kept = ""  # its inside is kept
        self.open.append((tag, kept))
        if kept:
            self.html.append(f"<{kept}{_attributes(given)}>")
        if tag in EMPTY:
            self.open.pop()

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Keep an element of a drawing that has no inside."""
        if self.open and tag in INSIDE:
            given = {name: value or "" for name, value in attributes}
            self.html.append(f"<{tag}{_attributes(given)}/>")

    def handle_endtag(self, tag: str) -> None:
        """Close an element; of a block, keep it."""
        if not self.open or tag in EMPTY or tag not in (name for name, _ in self.open):
            return
        last = ""
        while last != tag:
            last, kept = self.open.pop()
            if kept:
                self.html.append(f"</{kept}>")
        if not self.open:
            html = NO_HEADING.sub("<td></td>", "".join(self.html))
            self.found.append(Block(kept, html, "".join(self.words)))
            self.html, self.words = [], []

    def handle_data(self, data: str) -> None:
        """Keep a text of a block."""
        if self.open:
            self.html.append(escape(data, quote=False))
            self.words.append(data)


def _attributes(given: dict[str, str]) -> str:
    """Return attributes as they are written, without those that do or load something."""
    words = {
        ("viewBox" if name == "viewbox" else name): value
        for name, value in given.items()
        if not name.startswith("on")
        and name not in ("id", "class", "target", "rel", "src", "srcset", "xlink:href")
        and (name != "href" or value.startswith(LINKS))
        and not (name == "style" and "url(" in value)
    }
    return "".join(f' {name}="{escape(value, quote=True)}"' for name, value in words.items())
