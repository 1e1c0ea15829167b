"""The pack of a lesson: `teacher.md` (plan, what students get wrong, solutions) and `slides.html`.

    write([taught("1")], Path("pack"))      pack/lesson_01/teacher.md, pack/lesson_01/slides.html

All numbers are those of the lesson, which is run. What a student gets wrong is the answer times and
over the factor of each mistake that the notebook names: the numbers that one will see in a room.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import scaling
from scaling.course.lessons.index import Lesson
from scaling.course.lessons.parts import Problem
from scaling.course.puzzles.puzzle import puzzles
from scaling.course.quizzes.common_mistakes import mistake
from scaling.course.quizzes.quiz import compute, quizzes
from scaling.course.teaching.material import Material, material
from scaling.course.teaching.plans import plan
from scaling.course.teaching.slides import deck
from scaling.meshes.errors import InputError
from scaling.meshes.reading import writing
from scaling.questions.page import show

AT_HOME = 3  # quizzes of the lesson's chapter


def write(lessons: Sequence[Lesson], folder: Path) -> list[Path]:
    """Write the packs of lessons, each into a folder of its name; return the files.

    Raises:
        InputError: the folder holds something, or cannot be written.
    """
    otherwise = "choose another --output"
    with writing(folder, otherwise):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"--output {folder} must be an empty folder, or a new one")
    files = []
    for lesson in lessons:
        found, own = material(lesson), folder / lesson.file.stem
        for name, text in (("teacher.md", teacher_page(found)), ("slides.html", deck(found))):
            with writing(own, otherwise):
                own.mkdir(parents=True, exist_ok=True)
                (own / name).write_text(text, encoding="utf-8")
            files.append(own / name)
    return files


def teacher_page(found: Material) -> str:
    """Return plan, mistakes and solutions of a lesson, as Markdown."""
    return "\n".join(
        [
            f"# {found.name}. {found.lesson.title}: for the teacher",
            "",
            f"Written by scaling {scaling.__version__} from the lesson itself. Students get "
            f"`slides.html` and `scaling learn {found.name.lower()}`; this page has the answers.",
            "",
            *_plan(found),
            "",
            *_mistakes(found),
            "",
            *_solutions(found),
            "",
            *_at_home(found),
        ]
    )


def _plan(found: Material) -> Iterator[str]:
    own, start = plan(found.lesson), 0
    yield "## 45 minutes\n\n| minutes | | what |\n|---|---|---|"
    for step in own.steps:
        end = start + step.minutes
        yield f"| {start} to {end} | **{step.title}** | {step.what} |"
        start = end
    yield f"\nOn the board: {own.board}\n\nTo ask behind the answer:\n"
    yield from (f"- {question}" for question in own.ask)
    yield f"\nTo remember: {found.takeaway}"


def _mistakes(found: Material) -> Iterator[str]:
    yield "## What students get wrong\n\nWho says such a number has probably done that.\n"
    for one in (found.asked, *found.problems):
        answer, unit = one.answer
        if answer is None or not one.mistakes:
            continue
        yield f"**{one.where}:** {one.text}\n\n| says | probably | how to see it |\n|---|---|---|"
        known = [mistake(name) for name in one.mistakes]
        for factor in dict.fromkeys(each.factor for each in known):
            said = " or ".join(show(number, unit) for number in (answer * factor, answer / factor))
            same = [each for each in known if each.factor == factor]
            done = "<br>".join(each.sentence for each in same)
            yield f"| {said} | {done} | {'<br>'.join(each.check for each in same)} |"
        yield ""


def _solutions(found: Material) -> Iterator[str]:
    yield "## Solutions\n"
    yield from (f"{i}. {line}" for i, line in enumerate(map(_solution, _all(found)), 1))


def _all(found: Material) -> tuple[Problem, ...]:
    return (found.asked, *found.problems)


def _solution(one: Problem) -> str:
    answer, unit = one.answer
    if answer is None:
        return f"*{one.where}:* {one.text}. **Whatever was measured is right.**"
    why = f" {one.why}" if isinstance(one.why, str) else ""
    right = f", right within {one.tolerance:.0%}"
    return f"*{one.where}:* {one.text} **{show(answer, unit)}**{right}.{why}"


def _at_home(found: Material) -> Iterator[str]:
    yield "## At home\n\n| command | asks | answer |\n|---|---|---|"
    asked = [quiz for quiz in quizzes() if quiz.chapter == found.chapter][:AT_HOME]
    for quiz in asked:
        answers = "; ".join(f"{a.name} {show(compute(a), a.unit)}" for a in quiz.answers)
        question = " ".join(quiz.question.split()).replace("|", "/")
        yield f"| `scaling learn quiz {quiz.id}` | {question} | {answers} |"
    for puzzle in puzzles():
        if f"lesson_{puzzle.lesson:02}" == found.lesson.file.stem:
            best = ", ".join(f"{key}={value}" for key, value in puzzle.best.items())
            command = f"scaling learn puzzle {puzzle.number}"
            yield f"| `{command}` | {puzzle.title} | best known: {best} |"
