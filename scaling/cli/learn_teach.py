"""`scaling learn teach | class | grade`: what a teacher needs of the course."""

import importlib.util
from pathlib import Path

from scaling.cli.show import show
from scaling.course.language import t
from scaling.course.lessons.index import labs, lessons
from scaling.course.puzzles.grade import grade
from scaling.meshes.errors import InputError


def teach(name: str | None, output: Path | None) -> int:
    """Write the pack of a lesson or lab, or of all, and print its files."""
    if output is None:
        raise InputError("write scaling learn teach 1 --output FOLDER; without a number: all")
    _check_marimo()
    from scaling.course.teaching.pack import write
    from scaling.course.teaching.plans import taught

    for file in write((*lessons(), *labs()) if name is None else [taught(name)], output):
        print(t("wrote {file}", file=file))
    return 0


def hold_class(name: str | None, port: int | None) -> int:
    """Collect the guesses of a class until Ctrl-C, and print how they lie."""
    if name is None or port is None:
        raise InputError(
            "write scaling learn class 1 --port 8000, or your own question in quotes for the 1: "
            "the network is not listened to without a port"
        )
    from scaling.course.teaching.class_page import Question, Room, hold

    if name.rstrip().endswith("?"):
        return hold(Room(Question(name.strip(), "")), port)
    _check_marimo()
    from scaling.course.teaching.material import material
    from scaling.course.teaching.plans import taught

    asked = material(taught(name)).asked
    question = Question(asked.text, asked.answer[1], asked.answer[0], asked.mistakes)
    return hold(Room(question), port)


def grade_folder(name: str | None, source: str, json: bool) -> int:
    """Print the judgement of all answers below a folder."""
    if name is None:
        raise InputError("write scaling learn grade FOLDER, where the answers of a class are")
    return show(grade(Path(name), source), json)


def _check_marimo() -> None:
    if importlib.util.find_spec("marimo") is None:
        raise InputError("lessons need marimo: pip install 'jax-scaling[lessons]'")
