"""Writes the static site: pages, lessons, the project's wheel, Python, the documentation.

make site                      all of it, in build/site
python -m http.server -d build/site
"""

import argparse
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.site import notebooks
from experiments.site.check import broken_links, loads_from_elsewhere
from experiments.site.documents import document_entries
from experiments.site.pages import ROOT, build_wheel, place_of, write_pages
from experiments.site.runtime import LOCK
from experiments.site.stored import cache_folder, write_small, write_steps
from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.quiz import quizzes
from scaling.program.stored import stored_programs

BUILD = ROOT / "build"


def main() -> int:
    """Write the site, say what it loads from elsewhere; returns 1 if a link leads nowhere."""
    parser = argparse.ArgumentParser(prog="python -m experiments.site")
    parser.add_argument("--out", type=Path, default=BUILD / "site")
    parser.add_argument("--docs", type=Path, default=BUILD / "docs")
    parser.add_argument("--pyodide", type=Path, default=BUILD / "pyodide")
    parser.add_argument("--cache", type=Path, default=BUILD / "site-cache")
    given = parser.parse_args()
    if not (given.docs / "index.html").is_file():
        raise SystemExit(f"{given.docs} has no documentation; make site writes it first")
    runtime = given.pyodide if (given.pyodide / LOCK).is_file() else None
    write(given.out, given.docs, runtime, given.cache)
    for line in loads_from_elsewhere(given.out):
        print(f"loads {line}")
    for page, hosts in place_of(runtime).hosts.items():
        print(f"{page} may load from {', '.join(hosts) or 'no other host'}")
    wrong = broken_links(given.out)
    print("\n".join(f"leads nowhere: {line}" for line in wrong) or f"{given.out}: all links lead")
    return 1 if wrong else 0


def write(out: Path, docs: Path, runtime: Path | None, cache: Path) -> None:
    """Replace the site in a folder; what is no site is left alone.

    Args:
        runtime: files of Pyodide; None: a browser loads them from its CDN.
        cache: where what takes long is kept from one build to the next.
    """
    if out.exists() and not (out / "stored" / "answers.js").is_file():
        raise SystemExit(f"{out} is there and holds no site; remove it, or write --out elsewhere")
    shutil.rmtree(out, ignore_errors=True)
    (out / "lessons").mkdir(parents=True)
    with TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        place = out / "wheel" / wheel.name
        place.parent.mkdir()
        shutil.copyfile(wheel, place)
    write_pages(out, place, runtime)
    shutil.copytree(docs, out / "docs", ignore=shutil.ignore_patterns(".*"))
    kept = cache_folder(cache)
    write_small(out, quizzes(), document_entries(docs))
    write_steps(out, [stored.key for stored in stored_programs()], kept)
    where = place_of(runtime)

    def export(lesson: notebooks.Lesson) -> None:
        notebooks.export(lesson, place, out / "lessons", where, kept)
        print(lesson.file.stem, flush=True)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(export, (*lessons(), *labs())))
    notebooks.tidy(out / "lessons")


if __name__ == "__main__":
    raise SystemExit(main())
