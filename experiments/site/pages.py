"""The pages of the site, as a server sends them but for one word: who answers their questions.

build/site/*.html, *.js, *.css    scaling/course/web/pages, data-backend="pyodide"
build/site/wheel/jax_scaling-*.whl    the project itself, which a worker gives to its Python
build/site/answers.json           our numbers of all quizzes: a browser's Python is slow to start
build/site/docs/                  the documentation, as `make docs` writes it
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from scaling.course.lessons.index import Lesson
from scaling.course.quizzes.quiz import Quiz
from scaling.course.web.ask import computed
from scaling.course.web.server import PAGES
from scaling.course.web.texts import glossary_page, kind_of, lessons_page

ROOT = Path(__file__).parents[2]
HERE, THERE = 'data-backend="server"', 'data-backend="pyodide"'
WHEEL = 'WHEEL = "scaling.whl"'  # in pyodide.js


def build_wheel(folder: Path) -> Path:
    """Build the project's wheel into an empty folder and return its path."""
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def write_pages(out: Path, wheel: Path) -> None:
    """Write all pages, which load the wheel from its place in the site."""
    shutil.copytree(PAGES, out, dirs_exist_ok=True)
    (out / "glossary.html").write_text(glossary_page(docs=True), encoding="utf-8")
    (out / "lessons.html").write_text(lessons_page(links), encoding="utf-8")
    for page in out.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert HERE in text, page
        page.write_text(text.replace(HERE, THERE), encoding="utf-8")
    place, script = wheel.relative_to(out).as_posix(), out / "pyodide.js"
    text = script.read_text(encoding="utf-8")
    assert WHEEL in text
    script.write_text(text.replace(WHEEL, f'WHEEL = "{place}"'), encoding="utf-8")


def write_answers(out: Path, of: Sequence[Quiz]) -> None:
    """Write our numbers and formulas of quizzes."""
    answers = {quiz.id: computed(quiz) for quiz in of}
    (out / "answers.json").write_text(json.dumps(answers, allow_nan=False), encoding="utf-8")


def links(lesson: Lesson) -> str:
    """Return the forms that a lesson has in the site, as links."""
    forms = {".html": "open", "_read.html": "read", ".ipynb": "notebook"}
    name, label = lesson.file.stem, f"{kind_of(lesson)} {lesson.number}"
    return " ".join(
        f'<a href="lessons/{name}{end}" aria-label="{word} {label}">{word}</a>'
        for end, word in forms.items()
    )
