"""Pages that are written from text of the project: the glossary, and the list of lessons."""

import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path

from scaling.course.lessons.index import Lesson, labs, lessons

HERE = Path(__file__).parent
# In the wheel beside this file (pyproject.toml), in a checkout among the documents.
GLOSSARY = (HERE / "glossary.md", HERE.parents[2] / "docs" / "glossary.md")
NAMES = {
    "explorer": "Explorer",
    "lessons": "Lessons",
    "quizzes": "Quizzes",
    "sweeps": "Sweeps",
    "glossary": "Glossary",
}
LINK = re.compile(r'<a href="(\w+)\.md">(.*?)</a>')  # from one document to another
Links = Callable[[Lesson], str]  # what stands beside a lesson, as HTML


def glossary_page(docs: bool = False) -> str:
    """Return the page of the glossary; `docs`: the documents lie below it and are linked."""
    from markdown_it import MarkdownIt  # comes with rich; a browser has no need of it

    file = next(file for file in GLOSSARY if file.is_file())
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = markdown.render(file.read_text(encoding="utf-8"))
    text = text.replace("<table>", '<table class="words">')
    return _page("glossary", LINK.sub(r'<a href="docs/\1.html">\2</a>' if docs else r"\2", text))


def lessons_page(links: Links | None = None) -> str:
    """Return the page of lessons and labs; `links` says how each is opened, default: a command."""
    how = links or (lambda one: f"<code>scaling learn {kind_of(one)} {one.number}</code>")
    tables = "".join(
        f"<h2>{name}</h2>\n{_table(found, how)}"
        for name, found in (("Lessons", lessons()), ("Labs", labs()))
    )
    lead = "Each takes 20 to 40 minutes and begins with a guess; what follows opens after it."
    text = f'<h1>Lessons</h1><p class="lead">{lead}</p>\n{NOTE if links else ""}'
    return _page("lessons", text + tables)


def kind_of(one: Lesson) -> str:
    """Return "lesson" or "lab", which begins the name of its file."""
    return one.file.stem.partition("_")[0]


def _table(found: Sequence[Lesson], how: Links) -> str:
    rows = (
        f"<tr><td>{one.number}. {escape(one.title)}</td><td>{how(one)}</td></tr>\n" for one in found
    )
    return f'<table class="list"><tbody>\n{"".join(rows)}</tbody></table>\n'


NOTE = (
    "<p><b>Open</b> a lesson in this browser: Python and marimo are loaded once, which takes a "
    "minute. Or <b>read</b> the page of a run, made with this site. Problems “on the trainer” need "
    "JAX: for these install the project, where the <b>notebook</b> runs too.</p>\n"
)


def _page(name: str, text: str) -> str:
    current = {key: ' aria-current="page"' if key == name else "" for key in NAMES}
    links = "\n".join(
        f'  <a href="{key}.html"{current[key]}>{title}</a>' for key, title in NAMES.items()
    )
    return f"""<!doctype html>
<html lang="en" data-backend="server">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{NAMES[name]} - scaling</title>
  <link rel="icon" href="icon.svg">
  <link rel="stylesheet" href="style.css">
</head>
<body>
<a class="skip" href="#main">To the text</a>
<header><nav class="top" aria-label="Pages">
  <a href="index.html">scaling</a>
{links}
  <a href="docs/index.html" data-only="site">Docs</a>
</nav></header>
<main id="main">
{text}
</main>
</body>
</html>
"""


WRITTEN: Mapping[str, Callable[[], str]] = {  # file of the pages -> what it holds
    "glossary.html": glossary_page,
    "lessons.html": lessons_page,
}
