"""What can be found in the documentation: an entry for each section of a built page."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from scaling.course.web.search import entry

HEADINGS = ("h1", "h2", "h3")
WITHOUT = ("script", "style", "nav", "pre", "aside")  # whose words are not looked through
LETTERS = 600  # of a section that are kept


class _Sections(HTMLParser):
    """Collects id, heading and words of the sections within `article`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[list[str]] = []
        self.id = ""
        self.inside: list[str] = []  # of the elements that decide

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "section":
            self.id = dict(attrs).get("id") or ""
        if tag in HEADINGS and "article" in self.inside:
            self.found.append([self.id, "", ""])
        if tag in (*HEADINGS, *WITHOUT, "article"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.inside:
            while self.inside.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if self.found and "article" in self.inside and not set(self.inside) & set(WITHOUT):
            is_heading = any(tag in HEADINGS for tag in self.inside)
            self.found[-1][1 if is_heading else 2] += data


def document_entries(docs: Path) -> Iterator[dict[str, str]]:
    """Yield an entry of the search for each section of the pages in a folder of Sphinx."""
    for page in sorted(docs.rglob("*.html")):
        name = page.relative_to(docs).as_posix()
        if name.startswith(("_", "search", "genindex", "py-modindex")):
            continue
        parser = _Sections()
        parser.feed(page.read_text(encoding="utf-8"))
        for id, heading, text in parser.found:
            title = heading.removesuffix("#").removesuffix("¶")
            if title.endswith(".py"):  # the text of a source
                continue
            yield entry("docs", title, f"docs/{name}#{id}", " ".join(text.split())[:LETTERS])
