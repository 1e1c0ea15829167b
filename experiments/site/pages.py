"""The pages of the site: those of the server but for who answers their questions.

build/site/*.html, *.js, *.css        scaling/course/web, data-backend="pyodide"
build/site/stored/                    answers that need no Python (stored.py)
build/site/pyodide/                   Python for a browser, as far as it could be had (runtime.py)
build/site/wheel/jax_scaling-*.whl    the project itself, which a worker gives to its Python
build/site/lessons/                   lessons and labs in three forms (notebooks.py)
build/site/docs/                      the documentation, as `make docs` writes it
"""

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.site.runtime import CDN, hosts_of
from scaling.course.language import t
from scaling.course.lessons.index import Lesson
from scaling.course.web.pages import FILES, Place, kind_of, written
from scaling.course.web.server import PAGES

ROOT = Path(__file__).parents[2]
WHEEL = 'WHEEL = "scaling.whl"'  # in pyodide.js
FROM = f'FROM = "{CDN}"'
FORMS = {".html": "open", "_read.html": "read", ".ipynb": "notebook"}  # of a lesson, by its files


def build_wheel(folder: Path) -> Path:
    """Build the project's wheel into an empty folder and return its path."""
    command = ["-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def place_of(runtime: Path | None) -> Place:
    """Return where pages of a site are read that has this runtime, or none."""
    hosts: Mapping[str, Sequence[str]] = {
        "explorer": hosts_of(runtime, ("numpy",)),
        "lessons": hosts_of(runtime, None),
    }
    return Place(is_site=True, links=links, hosts=hosts)


def write_pages(out: Path, wheel: Path, runtime: Path | None = None) -> None:
    """Write all pages, which load the wheel from its place in the site.

    Args:
        runtime: Pyodide's files, which are copied to the site; None: they come from the CDN.
    """
    shutil.copytree(PAGES, out, dirs_exist_ok=True)
    place = place_of(runtime)
    for name in FILES:
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(written(name, place), encoding="utf-8")
    script, folder = out / "pyodide.js", CDN
    if runtime is not None:
        shutil.copytree(runtime, out / "pyodide")
        folder = "./pyodide/"
    text = script.read_text(encoding="utf-8")
    assert WHEEL in text and FROM in text
    text = text.replace(WHEEL, f'WHEEL = "{wheel.relative_to(out).as_posix()}"')
    script.write_text(text.replace(FROM, f'FROM = "{folder}"'), encoding="utf-8")


def links(lesson: Lesson, place: Place) -> str:
    """Return the forms that a lesson has in the site, as links; but to read it is English."""
    name, is_lab = lesson.file.stem, kind_of(lesson) == "lab"
    label = t("Lab {number}" if is_lab else "Lesson {number}", number=lesson.number)
    found = []
    for end, form in FORMS.items():
        up, word = "" if form == "read" else place.up, place.texts[f"lessons.{form}"]
        word += " (English)" * bool(up)
        found.append(f'<a href="{up}lessons/{name}{end}" aria-label="{word} {label}">{word}</a>')
    return " ".join(found)
