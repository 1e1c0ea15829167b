"""Answers that the site brings, so that its pages need no Python and no network: stored/NAME.js.

Each is a script, which a page that was opened from a file may load too. `keep(NAME, JSON)`, or for
a large one `keep(NAME, "base64 of gzip")`. What takes long is kept in a folder from one build to
the next, named by the sources that it was computed with.
"""

import base64
import gzip
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scaling.course.explorer.programs import programs
from scaling.course.language import speaking
from scaling.course.quizzes.quiz import Quiz
from scaling.course.web.ask import all_quizzes, all_sweeps, ask, one_quiz
from scaling.course.web.pages import OTHERS
from scaling.course.web.search import all_entries

ROOT = Path(__file__).parents[2]
SOURCES = ("scaling", "models", "meshes", "experiments/site")
SHOWN_ONLY = ("notebooks", "web", "__pycache__")  # folders that no computed answer depends on
PACKAGES = ("numpy", "marimo")
LARGE = 20_000  # letters from which JSON is packed


def asked(what: str, **given: object) -> Any:
    """Return the answer to a question of a page."""
    found = json.loads(ask(json.dumps({"what": what, "with": given})))
    assert "answer" in found, found
    return found["answer"]


def write_small(out: Path, of: Sequence[Quiz], more: Iterable[dict[str, str]] = ()) -> None:
    """Write what is computed at once: quizzes and their answers, programs, what can be found.

    Args:
        more: entries of the search besides those of the course.
    """
    documents = list(more)
    for spoken in ("en", *OTHERS):
        folder = out if spoken == "en" else out / spoken
        up = "" if spoken == "en" else "../"
        with speaking(spoken):
            answers = {quiz.id: one_quiz({"id": quiz.id}) for quiz in of}
            found = [*all_entries({}), *({**d, "address": up + d["address"]} for d in documents)]
            shown: dict[str, Any] = {
                "answers": answers,
                "quizzes": all_quizzes({}),
                "search": found,
            }
            shown |= {"programs": programs({}), "sweeps": all_sweeps({})}
            for name, value in shown.items():
                keep(folder / "stored" / f"{name}.js", name, value)


def write_steps(out: Path, keys: Sequence[str], cache: Path) -> None:
    """Write the explorer's steps as built, and the first picture, some at a time."""
    names = [*(f"program-{key}" for key in keys), "splits"]
    missing = [name for name in names if not (cache / f"{name}.js").is_file()]
    spawned = get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawned) as pool:
        for _ in pool.map(_write_step, missing, [cache] * len(missing), chunksize=8):
            pass
    (out / "stored").mkdir(exist_ok=True)
    for name in names:
        shutil.copyfile(cache / f"{name}.js", out / "stored" / f"{name}.js")


def _write_step(name: str, folder: Path) -> None:
    kind, _, key = name.partition("-")
    keep(folder / f"{name}.js", name, asked("explorer", program=key) if key else asked(kind))


def keep(file: Path, name: str, value: Any) -> None:
    """Write the script that gives a page a value."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    if len(text) > LARGE:
        packed = gzip.compress(text.encode(), mtime=0)
        text = json.dumps(base64.b64encode(packed).decode())
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")  # so that an interrupted build leaves no half a file
    part.write_text(f"keep({json.dumps(name)}, {text});\n", encoding="utf-8")
    part.replace(file)


def cache_folder(above: Path) -> Path:
    """Return the folder of these sources below `above`, which loses those of other sources."""
    digest = hashlib.sha256(" ".join(map(version, PACKAGES)).encode())
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.is_file() and not set(file.parts) & set(SHOWN_ONLY):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    found = above / digest.hexdigest()[:16]
    for other in above.glob("*"):
        if other != found:
            shutil.rmtree(other)
    found.mkdir(parents=True, exist_ok=True)
    return found


def cached(folder: Path, source: Path, make: Callable[[], str]) -> str:
    """Return a text that is made of a file with these sources, from the folder where it is kept."""
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    file = folder / f"{source.stem}-{digest}"
    if not file.is_file():
        file.write_text(make(), encoding="utf-8")
    return file.read_text(encoding="utf-8")
