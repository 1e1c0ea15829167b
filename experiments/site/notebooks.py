"""Lessons in three forms: in the browser's own Python, as the page of a run, as a Jupyter notebook.

marimo writes all three. In the browser the project comes from the site's wheel, which the header
names that is put before a lesson here: its own file stays as it is, and the name `scaling` of the
package index, which is not ours, is never asked for. Pages of a run load marimo's scripts, which
marimo's export takes from a CDN, from the folder where the others have them.
"""

import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from scaling.course.lessons.index import Lesson

PACKAGES = ("numpy", "scipy")  # of Pyodide; scipy fits the lines of lesson 3
CDN = "https://cdn.jsdelivr.net/npm/@marimo-team/frontend@{}/dist"  # marimo's get_default_asset_url
NOT_PAGES = ("CLAUDE.md", "site.webmanifest")  # that marimo copies beside its scripts

HEADER = "# /// script\n"
INSTALL = (
    "Run this in an environment that has the project: `pip install '.[lessons]'` in a checkout of "
    "it. The package named `scaling` on the package index is another project's."
)


def export(lesson: Lesson, wheel: Path, out: Path) -> None:
    """Write LESSON_read.html, LESSON.ipynb and LESSON.html, which opens in a browser."""
    name = lesson.file.stem
    with TemporaryDirectory() as folder:  # marimo keeps sessions beside what it exports
        copy = Path(folder) / lesson.file.name
        shutil.copyfile(lesson.file, copy)
        _marimo("ipynb", copy, out / f"{name}.ipynb")
        _marimo("html", copy, out / f"{name}_read.html", "--no-include-code", "--", "--guess", "1")
        copy.write_text(with_header(lesson.file, wheel), encoding="utf-8")
        _marimo("html-wasm", copy, out / f"{name}.html", "--mode", "run")
    add_install_cell(out / f"{name}.ipynb")
    load_from_here(out / f"{name}_read.html")


def load_from_here(page: Path) -> None:
    """Let the page of a run load marimo's scripts from its own folder."""
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(CDN.format(version("marimo")), "."), encoding="utf-8")


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


def _marimo(form: str, source: Path, target: Path, *more: str) -> None:
    """Run marimo's export; uv, which it calls, is looked for beside this Python."""
    command = [sys.executable, "-m", "marimo", "-y", "-q", "export", form, str(source)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = os.environ | {"PATH": path, "JAX_PLATFORMS": "cpu"}
    words = [*command, "-o", str(target), "-f", "--no-sandbox", *more]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
