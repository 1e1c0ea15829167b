"""Lessons in three forms: the page of a run, a Jupyter notebook, and in the browser's own Python.

marimo writes the last two. In the browser the project comes from the site's wheel, which the header
names that is put before a lesson here: its own file stays as it is, and the name `scaling` of the
package index, which is not ours, is never asked for.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.site.runtime import LESSONS_LOCK
from experiments.site.stored import cached
from scaling.course.language import VARIABLE, language, speaking, t
from scaling.course.lessons.index import Lesson
from scaling.course.web.pages import OTHERS, Place, frame, spoken
from scaling.course.web.texts import page_text

PACKAGES = ("numpy", "scipy")  # of Pyodide; scipy fits the lines of lesson 3
EXPORT = ("marimo", "-y", "-q", "export")
NOT_PAGES = ("CLAUDE.md", "site.webmanifest")  # that marimo copies beside its scripts
# marimo asks for the versions installed here where its list of Pyodide's cannot be reached, and
# micropip refuses all packages when one has another version.
PINNED = re.compile(rf"({'|'.join(PACKAGES)})(?:==|%3D%3D)[\d.]+")
ELEMENT = "<marimo-wasm"  # of marimo's page, whose attributes say where Python comes from

HEADER = "# /// script\n"
INSTALL = (
    "Run this in an environment that has the project: `pip install '.[lessons]'` in a checkout of "
    "it. The package named `scaling` on the package index is another project's."
)


def export(lesson: Lesson, wheel: Path, out: Path, place: Place, cache: Path) -> None:
    """Write LESSON_read.html, LESSON.ipynb and LESSON.html, which opens in a browser.

    Args:
        cache: where the outputs of runs are kept from one build to the next.
    """
    notebook = out / f"{lesson.file.stem}.ipynb"
    _export("ipynb", lesson, lesson.source, notebook)
    add_install_cell(notebook)
    write_run(lesson, out, place, cache)
    write_opened(lesson, wheel, out, place)
    for other in OTHERS:
        with speaking(other):
            write_run(lesson, out.parent / other / "lessons", spoken(place), cache)


def write_opened(lesson: Lesson, wheel: Path, out: Path, place: Place) -> None:
    """Write LESSON.html, which opens in a browser."""
    page = out / f"{lesson.file.stem}.html"
    _export(
        "html-wasm", lesson, with_header(lesson.file, wheel), page, "--no-sandbox", "--mode", "run"
    )
    open_page(page, place)


def _export(form: str, lesson: Lesson, source: str, out: Path, *words: str) -> None:
    with TemporaryDirectory() as folder:  # marimo keeps sessions beside what it exports
        copy = Path(folder) / lesson.file.name
        copy.write_text(source, encoding="utf-8")
        _run(*EXPORT, form, copy, "-o", out, "-f", *words)


def write_run(lesson: Lesson, out: Path, place: Place, cache: Path) -> None:
    """Write LESSON_read.html in the language that is spoken."""
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / lesson.file.name
        copy.write_text(lesson.source, encoding="utf-8")
        cells = cached(cache, copy, lambda: _run("experiments.site.read", copy))
    page = read_page(lesson, cells, place)
    (out / f"{lesson.file.stem}_read.html").write_text(page, encoding="utf-8")


def read_page(lesson: Lesson, cells: str, place: Place) -> str:
    """Return the page of a run, of the HTML that its cells show."""
    lead = page_text('<p class="lead">{{lessons.as_read}}</p>\n', place.texts)
    title = f"{t(lesson.title)} - scaling"
    return frame(
        "read", f'<main id="main" class="read">\n{lead}{cells}</main>\n', place, "../", title
    )


def open_page(page: Path, place: Place) -> None:
    """Let marimo's page take Python from the site where it is there, else say what is missing."""
    text = PINNED.sub(r"\1", page.read_text(encoding="utf-8"))
    if (page.parent.parent / "pyodide" / LESSONS_LOCK).is_file():
        folder = "../pyodide/"
        given = (
            f'data-pyodide-index-url="{folder}" data-pyodide-lockfile-url="{folder}{LESSONS_LOCK}"'
        )
        assert ELEMENT in text, f"marimo's page has no {ELEMENT}"
        text = text.replace(ELEMENT, f"{ELEMENT} {given}", 1)
    scripts = "".join(
        f'<script defer src="../{file}"></script>' for file in ("texts.js", "open.js")
    )
    assert "</head>" in text
    page.write_text(text.replace("</head>", f"{scripts}\n</head>", 1), encoding="utf-8")


def add_install_cell(notebook: Path) -> None:
    """Put a cell on top that says how to install the project."""
    import nbformat  # of the extra `site`

    found = nbformat.read(notebook, as_version=4)
    found.cells.insert(0, nbformat.v4.new_markdown_cell(INSTALL))
    nbformat.write(found, notebook)


def with_header(file: Path, wheel: Path) -> str:
    """Return a lesson that says what it needs (PEP 723): this wheel, and packages of Pyodide."""
    needs = ", ".join(f'"{name}"' for name in (f"jax-scaling @ {wheel.resolve()}", *PACKAGES))
    line, text = f"# dependencies = [{needs}]\n", file.read_text(encoding="utf-8")
    if text.startswith(HEADER):
        return HEADER + line + text.removeprefix(HEADER)
    return f"{HEADER}{line}# ///\n{text}"


def tidy(out: Path) -> None:
    """Remove what marimo copies and no page needs."""
    for name in NOT_PAGES:
        (out / name).unlink(missing_ok=True)


def _run(*words: object) -> str:
    """Return what a module prints; uv, which marimo calls, is looked for beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "JAX_PLATFORMS": "cpu", VARIABLE: language()}
    command = [sys.executable, "-m", *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
