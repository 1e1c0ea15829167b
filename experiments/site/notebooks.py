"""Lessons in three forms: in the browser's own Python, as the page of a run, as a Jupyter notebook.

marimo writes all three. In the browser the project comes from the site's wheel, which the header
names that is put before a lesson here: its own file stays as it is, and the name `scaling` of the
package index, which is not ours, is never asked for. Pages of a run load marimo's scripts, which
marimo's export takes from a CDN, from the folder where the others have them.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from scaling.lessons.shelf import Lesson

PACKAGES = ("numpy", "scipy")  # of Pyodide; scipy fits the lines of lesson 3
CDN = "https://cdn.jsdelivr.net/npm/@marimo-team/frontend@{}/dist"  # marimo's get_default_asset_url
NOT_PAGES = ("CLAUDE.md", "site.webmanifest")  # that marimo copies beside its scripts


def export(lesson: Lesson, wheel: Path, out: Path) -> None:
    """Write LESSON.html, LESSON_read.html and LESSON.ipynb into a folder."""
    name = lesson.file.stem
    with TemporaryDirectory() as folder:
        copy = Path(folder) / lesson.file.name
        copy.write_text(with_header(lesson.file, wheel), encoding="utf-8")
        _marimo("html-wasm", copy, out / f"{name}.html", "--mode", "run", "--no-sandbox")
    read = out / f"{name}_read.html"
    _marimo("html", lesson.file, read, "--no-include-code", "--no-sandbox", "--", "--guess", "1")
    text = read.read_text(encoding="utf-8")
    read.write_text(text.replace(CDN.format(version("marimo")), "."), encoding="utf-8")
    _marimo("ipynb", lesson.file, out / f"{name}.ipynb", "--no-sandbox")


def with_header(file: Path, wheel: Path) -> str:
    """Return a lesson that says what it needs (PEP 723): this wheel, and packages of Pyodide."""
    needs = ", ".join(f'"{name}"' for name in (f"scaling @ {wheel.resolve()}", *PACKAGES))
    header = f"# /// script\n# dependencies = [{needs}]\n# ///\n"
    return header + file.read_text(encoding="utf-8")


def tidy(out: Path) -> None:
    """Remove what marimo copies and no page needs."""
    for name in NOT_PAGES:
        (out / name).unlink(missing_ok=True)


def _marimo(form: str, source: Path, target: Path, *more: str) -> None:
    """Run marimo's export; uv, which it calls, is looked for beside this Python."""
    command = [sys.executable, "-m", "marimo", "-y", "-q", "export", form, str(source)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "JAX_PLATFORMS": "cpu"}
    words = [*command, "-o", str(target), "-f", *more]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
