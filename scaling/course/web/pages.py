"""The pages: a frame around a body, with the words of `texts`.

A page is read from the server of this machine, or in a site, where lessons have forms to open and
documents lie beside it. Scripts are plain ones, which run in a page that is opened from a file too.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from pathlib import Path

from scaling.course.language import LANGUAGES, language, speaking, t
from scaling.course.lessons.index import Lesson, labs, lessons
from scaling.course.puzzles.puzzle import Puzzle, puzzles
from scaling.course.quizzes.quiz import quizzes
from scaling.course.web.texts import ENGLISH, page_text, script_texts

HERE = Path(__file__).parent
# In the wheel beside this file (pyproject.toml), in a checkout among the documents.
GLOSSARY = (HERE / "glossary.md", HERE.parents[2] / "docs" / "glossary.md")
LISTED = ("explorer", "lessons", "quizzes", "sweeps", "puzzles", "glossary")  # in the line of pages
SCRIPTS: Mapping[str, Sequence[str]] = {  # of a page, in their order
    "index": ("texts.js", "ask.js", "index.js"),
    "quizzes": ("texts.js", "ask.js", "quizzes.js"),
    "explorer": ("texts.js", "ask.js", "explorer.js"),
    "sweeps": ("texts.js", "ask.js", "sweeps.js"),
}
STYLES: Mapping[str, Sequence[str]] = {name: (f"{name}.css",) for name in ("explorer", "sweeps")}
WIDE = ("explorer", "quizzes")  # pages of two columns
MEANING = re.compile(r"^(\|[^|]+\| )(.+)( \|)$", re.MULTILINE)  # of a row of the glossary
LINK = re.compile(r'<a href="(\w+)\.md">(.*?)</a>')  # from one document to another


def kind_of(one: Lesson) -> str:
    """Return "lesson" or "lab", which begins the name of its file."""
    return one.file.stem.partition("_")[0]


def by_command(one: Lesson, place: "Place") -> str:
    """Return the command that opens a lesson, as HTML."""
    return f"<code>scaling learn {kind_of(one)} {one.number}</code>"


@dataclass(frozen=True)
class Place:
    """Where pages are read.

    Attributes:
        is_site: files without a server, with documents beside them.
        links: how a lesson is opened, as HTML.
        hosts: page -> the hosts that it loads from.
        language: of the texts, as HTML names it.
        up: from the page's folder to that of scripts and styles.
    """

    is_site: bool = False
    links: Callable[[Lesson, "Place"], str] = by_command
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    language: str = "en"
    texts: Mapping[str, str] = field(default_factory=lambda: ENGLISH)
    up: str = ""


SERVER = Place()


def plain_page(name: str, place: Place = SERVER) -> str:
    """Return the page of a body, bodies/NAME.html."""
    body = (HERE / "bodies" / f"{name}.html").read_text(encoding="utf-8")
    body = body.replace('href="docs/', f'href="{place.up}docs/')
    shelves = {"lessons": lessons(), "labs": labs(), "quizzes": quizzes(), "puzzles": puzzles()}
    counts = {shelf: len(some) for shelf, some in shelves.items()}
    return frame(name, page_text(body, place.texts, **counts), place)


def glossary_page(place: Place = SERVER) -> str:
    """Return the page of the glossary; in a site documents are linked."""
    from markdown_it import MarkdownIt  # comes with rich; a browser has no need of it

    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    text = markdown.render(glossary_text())
    text = text.replace("<table>", '<table class="words">')
    to = rf'<a href="{place.up}docs/\1.html">\2</a>' if place.is_site else r"\2"
    return frame("glossary", LINK.sub(to, text), place)


def glossary_text() -> str:
    """Return the glossary as Markdown; its terms are English in every language."""
    text = next(file for file in GLOSSARY if file.is_file()).read_text(encoding="utf-8")
    text = MEANING.sub(lambda row: row[1] + t(row[2]) + row[3], text.rstrip("\n"))
    return "\n\n".join(map(t, text.split("\n\n"))) + "\n"


def lessons_page(place: Place = SERVER) -> str:
    """Return the page of lessons and labs, and how each is opened."""
    note = "<p>{{lessons.note}}</p>\n" if place.is_site else ""
    text = f'<h1>{{{{lessons.title}}}}</h1><p class="lead">{{{{lessons.lead}}}}</p>\n{note}'
    for name, found in (("lessons", lessons()), ("labs", labs())):
        rows = (
            f'<tr id="{one.file.stem}"><td>{one.number}. {escape(t(one.title))}</td>'
            f"<td>{place.links(one, place)}</td></tr>\n"
            for one in found
        )
        text += f'<h2 id="{name}">{{{{lessons.{name}}}}}</h2>\n'
        text += f'<table class="list"><tbody>\n{"".join(rows)}</tbody></table>\n'
    return frame("lessons", page_text(text, place.texts), place)


def puzzles_page(place: Place = SERVER) -> str:
    """Return the page of puzzles, with the commands that begin and judge each."""
    text = '<h1>{{puzzles.title}}</h1><p class="lead">{{puzzles.lead}}</p>\n'
    tasks = (_puzzle(puzzle, place.texts) for puzzle in puzzles())
    return frame("puzzles", page_text(text, place.texts) + "".join(tasks), place)


def _puzzle(puzzle: Puzzle, texts: Mapping[str, str]) -> str:
    may = ", ".join(f"<code>{escape(key)}</code>" for key in puzzle.may)
    if puzzle.changes:
        may += f" ({page_text('{{puzzles.changes}}', texts, number=puzzle.changes)})"
    goals = escape(", ".join(map(str, puzzle.goals)))
    number, lesson = puzzle.number, page_text("{{puzzles.lesson}}", texts, number=puzzle.lesson)
    return page_text(
        f'<article id="puzzle-{number}"><h2>{number}. {escape(t(puzzle.title))}</h2>\n'
        f"<p>{_with_code(t(puzzle.story).strip())}</p>\n"
        f"<dl><dt>{{{{puzzles.goal}}}}</dt><dd>{goals}</dd>"
        f"<dt>{{{{puzzles.may}}}}</dt><dd>{may}</dd></dl>\n"
        f"<details><summary>{{{{puzzles.hint}}}}</summary><p>{_with_code(t(puzzle.hint))}</p></details>\n"
        f'<p class="small">{lesson}. {{{{puzzles.how}}}}</p></article>\n',
        texts,
        number=number,
    )


def _with_code(text: str) -> str:
    """Return a text as HTML, what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def frame(name: str, body: str, place: Place = SERVER, up: str = "", title: str = "") -> str:
    """Return a whole page.

    Args:
        name: of the page: whose entry of the line is marked, whose scripts run.
        up: from the page's folder to that of all pages, such as "../".
        title: of the browser's tab; default: that of the page.
    """
    current = {one: ' aria-current="page"' if one == name else "" for one in ("index", *LISTED)}
    links = "\n".join(
        f'  <a href="{up}{one}.html"{current[one]}>{{{{all.{one}}}}}</a>' for one in LISTED
    )
    assets = up + place.up
    docs = f'\n  <a href="{assets}docs/index.html">{{{{all.docs}}}}</a>' if place.is_site else ""
    other = f"ko/{name}" if place.language == "en" else f"../{name}"
    switch = f'\n  <a href="{up}{other}.html" class="language">{{{{all.language}}}}</a>'
    if name not in ("index", *LISTED) or up:
        switch = ""
    title = title or ("scaling" if name == "index" else f"{{{{{name}.title}}}} - scaling")
    styles = "".join(
        f'\n  <link rel="stylesheet" href="{assets}{file}">'
        for file in ("style.css", *STYLES.get(name, ()))
    )
    scripts = "".join(
        f'\n  <script defer src="{up if file in WRITTEN else assets}{file}"></script>'
        for file in SCRIPTS.get(name, ())
    )
    width = ' class="wide"' if name in WIDE else ""
    from_up = f' data-up="{place.up}"' if place.up else ""
    backend = "pyodide" if place.is_site else "server"
    head = f"""<!doctype html>
<html lang="{place.language}" data-backend="{backend}"{from_up}>
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <title>{title}</title>
  <link rel="icon" href="{assets}icon.svg">{styles}{scripts}
</head>
<body{width}>
<a class="skip" href="#main">{{{{all.skip}}}}</a>
<header><nav class="top" aria-label="{{{{all.pages}}}}">
  <a href="{up}index.html"{current["index"]}>scaling</a>
{links}{docs}{switch}
</nav></header>
"""
    foot = f"<footer><p>{_loads(name, place)}</p></footer>\n</body>\n</html>\n"
    main = body if "<main" in body else f'<main id="main">\n{body}</main>\n'
    return page_text(head, place.texts) + main + page_text(foot, place.texts)


def _loads(name: str, place: Place) -> str:
    """What a page loads from other hosts, in words."""
    if not place.is_site:
        return "{{all.here}}"
    if not place.hosts.get(name):
        return "{{all.nothing}}"
    filled = {"hosts": " and ".join(place.hosts[name]), "what": f"{{{{hosts.{name}}}}}"}
    return page_text("{{all.hosts}}", place.texts, **filled)


def texts_script(place: Place = SERVER) -> str:
    """Return the script that gives scripts of a page their words."""
    return script_texts(place.texts)


WRITTEN: Mapping[str, Callable[[Place], str]] = {  # file -> what it holds
    **{
        f"{name}.html": partial(plain_page, name)
        for name in ("index", "quizzes", "explorer", "sweeps")
    },
    "lessons.html": lessons_page,
    "puzzles.html": puzzles_page,
    "glossary.html": glossary_page,
    "texts.js": texts_script,
}
OTHERS = [name for name in LANGUAGES if name != "en"]  # each has all pages in a folder of its name
FILES = [*WRITTEN, *(f"{other}/{name}" for other in OTHERS for name in WRITTEN)]


def written(file: str, place: Place = SERVER) -> str:
    """Return what one of FILES holds: `quizzes.html`, in Korean `ko/quizzes.html`."""
    folder, _, name = file.rpartition("/")
    with speaking(folder or "en"):
        return WRITTEN[name](spoken(place))


def spoken(place: Place) -> Place:
    """Return a place with the words of the language that is spoken, and its folder."""
    texts = {key: t(text) for key, text in ENGLISH.items()}
    up = "" if language() == "en" else "../"
    return replace(place, language=language(), texts=texts, up=up)
