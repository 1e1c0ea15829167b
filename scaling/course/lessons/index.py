"""Lessons and labs that come with the package, and serving one to this machine's browser."""

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scaling.course.ladder.rungs import RUNGS
from scaling.course.language import VARIABLE, catalogue, language, t
from scaling.course.lessons.translated import translated
from scaling.course.quizzes.common_mistakes import KNOWN
from scaling.meshes.errors import InputError

FOLDER = Path(__file__).parent / "notebooks"
TITLE = re.compile(r'^app = marimo\.App\(.*app_title="(?:Lab )?(\d+)\. (.*)"\)$', re.MULTILINE)
LOOPBACK = "127.0.0.1"  # nobody but this machine


@dataclass(frozen=True)
class Lesson:
    """A marimo notebook."""

    number: int
    title: str  # in English
    file: Path

    @property
    def source(self) -> str:
        """The notebook in the language that is spoken."""
        text = self.file.read_text(encoding="utf-8")
        text = text.replace(f'. {self.title}")', f'. {t(self.title)}")', 1)
        names = {*KNOWN, *RUNGS}  # which others look up, and show in the language that is spoken
        known = catalogue(language()).items()
        return translated(text, {key: other for key, other in known if key not in names})

    def run(self) -> tuple[Any, Any]:
        """Run it in the language that is spoken: what its cells show, and what they define."""
        with TemporaryDirectory() as folder:
            file = Path(folder) / self.file.name
            file.write_text(self.source, encoding="utf-8")
            spec = importlib.util.spec_from_file_location(file.stem, file)
            assert spec and spec.loader
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module.app.run()


def lessons() -> tuple[Lesson, ...]:
    """Return all lessons, in their order."""
    return _notebooks("lesson")


def labs() -> tuple[Lesson, ...]:
    """Return all labs, in their order."""
    return _notebooks("lab")


@cache
def _notebooks(kind: str) -> tuple[Lesson, ...]:
    found = []
    for file in sorted(FOLDER.glob(f"{kind}_*.py")):
        title = TITLE.search(file.read_text(encoding="utf-8"))
        assert title, f"{file.name} has no title"
        found.append(Lesson(int(title[1]), title[2], file))
    return tuple(found)


def numbered(kind: str, number: str) -> Lesson:
    """Return the "lesson" or "lab" of a number; InputError names those that there are."""
    known = {str(one.number): one for one in _notebooks(kind)}
    if number.strip() not in known:
        raise InputError(f"there is no {kind} {number!r}; there are {', '.join(known)}")
    return known[number.strip()]


def serve(lesson: Lesson) -> int:
    """Serve a notebook on the loopback address and open it; returns marimo's exit code."""
    if importlib.util.find_spec("marimo") is None:
        raise InputError("lessons need marimo: pip install 'jax-scaling[lessons]'")
    with TemporaryDirectory() as folder:
        file = lesson.file
        if language() != "en":
            file = Path(folder) / file.name
            file.write_text(lesson.source, encoding="utf-8")
        command = [sys.executable, "-m", "marimo", "run", str(file), "--host", LOOPBACK]
        spoken = os.environ | {VARIABLE: language()}
        return subprocess.run(command, check=False, env=spoken).returncode
