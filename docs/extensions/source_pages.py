"""Links to files of the repository lead to pages with their text, so that they work offline.

    [kernels](../../scaling/simulate/kernels.py)    ->    source/scaling/simulate/kernels.py.html

A folder becomes a list of its files; those that are text have pages too.
"""

import html
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).resolve().parents[2]
TEXTS = {".py", ".md", ".toml", ".sh", ".yaml"}
LARGEST = 100_000  # bytes of a text that gets a page, chosen by this project


class SourceLinks(SphinxTransform):
    """Turns links to files and folders outside docs/ into links to their pages."""

    default_priority = 5  # before links and downloads are resolved

    def apply(self, **options: Any) -> None:
        """Replace the nodes of one page."""
        docs = Path(self.app.srcdir)
        here = (docs / self.env.docname).parent
        for node in list(self.document.findall(_is_link)):
            path = Path(os.path.normpath(here / node["reftarget"].partition("#")[0]))
            if node.get("refdomain") == "doc":  # a Markdown file, named without its ending
                path = path.with_name(f"{path.name}.md")
            inside = path.is_relative_to(ROOT) and not path.is_relative_to(docs)
            if not inside or not path.exists() or not (path.is_dir() or _has_page(path)):
                continue
            name = path.relative_to(ROOT).as_posix()
            _linked(self.app).add(name)
            uri = relative_uri(f"{self.env.docname}.html", f"source/{name}.html")
            link = nodes.reference("", "", *node.children, refuri=uri, internal=True)
            node.replace_self(link)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the transform and the pages."""
    app.add_transform(SourceLinks)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}


def _is_link(node: nodes.Node) -> bool:
    kinds = addnodes.pending_xref | addnodes.download_reference
    return isinstance(node, kinds) and node.get("reftype") == "myst" and bool(node["reftarget"])


def _linked(app: Sphinx) -> set[str]:
    """Names of what pages link to, kept with the environment from build to build."""
    if not hasattr(app.env, "linked_sources"):
        app.env.linked_sources = set()  # type: ignore[attr-defined]
    return app.env.linked_sources  # type: ignore[attr-defined, no-any-return]


def _has_page(path: Path) -> bool:
    named = path.suffix in TEXTS or path.name in ("Makefile", "LICENSE")
    return path.is_file() and named and path.stat().st_size <= LARGEST


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    names = set(_linked(app))
    for name in sorted(names):
        if (ROOT / name).is_dir():
            names |= {
                p.relative_to(ROOT).as_posix() for p in (ROOT / name).iterdir() if _has_page(p)
            }
    for name in sorted(names):
        path = ROOT / name
        body = _listing(path, names) if path.is_dir() else _text(path)
        title = html.escape(name)
        yield f"source/{name}", {"title": title, "body": f"<h1>{title}</h1>{body}"}, "page.html"


def _listing(folder: Path, names: set[str]) -> str:
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__")):
            continue
        label = html.escape(path.name + "/" * path.is_dir())
        known = path.relative_to(ROOT).as_posix() in names
        link = f'<a href="{html.escape(folder.name)}/{html.escape(path.name)}.html">{label}</a>'
        lines.append(f"<li>{link if known else label}</li>")
    return f"<ul>{''.join(lines)}</ul>"


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        return f"<pre>{html.escape(text)}</pre>"
    return highlight(text, lexer, HtmlFormatter())
