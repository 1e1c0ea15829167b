"""Writes the static site: pages, lessons, the project's wheel, the documentation.

make site                      all of it, in build/site
python -m http.server -d build/site
"""

import argparse
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.site import notebooks
from experiments.site.check import broken_links, loads_from_elsewhere
from experiments.site.pages import ROOT, build_wheel, write_answers, write_pages
from scaling.course.lessons.index import labs, lessons
from scaling.course.quizzes.quiz import quizzes


def main() -> int:
    """Write the site, say what it loads from elsewhere; returns 1 if a link leads nowhere."""
    parser = argparse.ArgumentParser(prog="python -m experiments.site")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--docs", type=Path, default=ROOT / "build" / "docs")
    given = parser.parse_args()
    if not (given.docs / "index.html").is_file():
        raise SystemExit(f"{given.docs} has no documentation; make site writes it first")
    write(given.out, given.docs)
    for line in loads_from_elsewhere(given.out):
        print(f"loads {line}")
    wrong = broken_links(given.out)
    print("\n".join(f"leads nowhere: {line}" for line in wrong) or f"{given.out}: all links lead")
    return 1 if wrong else 0


def write(out: Path, docs: Path) -> None:
    """Replace the site in a folder; what is no site is left alone."""
    if out.exists() and not (out / "answers.json").is_file():
        raise SystemExit(f"{out} is there and holds no site; remove it, or write --out elsewhere")
    shutil.rmtree(out, ignore_errors=True)
    (out / "lessons").mkdir(parents=True)
    with TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        place = out / "wheel" / wheel.name
        place.parent.mkdir()
        shutil.copyfile(wheel, place)
    write_pages(out, place)
    write_answers(out, quizzes())
    shutil.copytree(docs, out / "docs", ignore=shutil.ignore_patterns(".*"))
    for lesson in (*lessons(), *labs()):
        print(lesson.file.stem, flush=True)
        notebooks.export(lesson, place, out / "lessons")
    notebooks.tidy(out / "lessons")


if __name__ == "__main__":
    raise SystemExit(main())
