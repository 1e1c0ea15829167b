"""What is wrong with a site: links that lead nowhere, and files that are loaded from elsewhere."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Attributes that make a browser load a file while it shows a page; a link to press is none.
LOADS = {
    **{"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"},
    **{"audio": "src", "embed": "src", "object": "data", "link": "href"},
}
# rel of a link that loads nothing
NO_LOAD = {"canonical", "search", "next", "prev", "index", "author", "license", "help"}
WORDS = "texts.js"  # whose addresses are links in words
NAMES = ("http://www.w3.org/",)  # of XML: names of what is drawn, which nothing loads
OWN_SCRIPT = re.compile(r"https?://[^\s\"'`]+")


class _Page(HTMLParser):
    """Collects where a page links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        rel = set(given.get("rel", "").split())
        if LOADS.get(tag) in given and not (tag == "link" and rel & NO_LOAD):
            self.loads.append(given[LOADS[tag]])


def broken_links(site: Path) -> list[str]:
    """Return `page: target` for each link or load inside the site without a file."""
    wrong = []
    for page, parsed in _pages(site):
        for target in {*parsed.links, *parsed.loads}:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or not parts.path:
                continue
            file = page.parent / unquote(parts.path)
            if not (file / "index.html" if file.is_dir() else file).is_file():
                wrong.append(f"{page.relative_to(site)}: {target}")
    return sorted(wrong)


def loads_from_elsewhere(site: Path) -> list[str]:
    """Return `page: address` for each file that a page loads from another host.

    Scripts of marimo and Sphinx are not read: what they load is seen by a browser alone.
    """
    found = [
        f"{page.relative_to(site)}: {target}"
        for page, parsed in _pages(site)
        for target in parsed.loads
        if urlsplit(target).netloc
    ]
    for script in (file for file in site.glob("*.js") if file.name != WORDS):
        text = script.read_text(encoding="utf-8")
        named = (one for one in OWN_SCRIPT.findall(text) if not one.startswith(NAMES))
        found += [f"{script.name}: {address}" for address in named]
    return sorted(found)


def _pages(site: Path) -> Iterator[tuple[Path, _Page]]:
    for page in sorted(site.rglob("*.html")):
        parsed = _Page()
        parsed.feed(page.read_text(encoding="utf-8"))
        yield page, parsed
