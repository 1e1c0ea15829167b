"""The pack of a lesson: `teacher.md` (plan, what students get wrong, solutions) and `slides.html`.

    write([taught("1")], Path("pack"))      pack/lesson_01/teacher.md, pack/lesson_01/slides.html

All numbers are those of the lesson, which is run. What a student gets wrong is the answer times and
over the factor of each mistake that the notebook names: the numbers that one will see in a room.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import scaling
from scaling.course.language import t
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

WRITTEN = (
    "Written by scaling {version} from the lesson itself. Students get `slides.html` and "
    "`{command}`; this page has the answers."
)
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
    command = "scaling learn " + found.lesson.file.stem.replace("_0", " ").replace("_", " ")
    return "\n".join(
        [
            t("# {name}. {title}: for the teacher", name=found.name, title=t(found.lesson.title)),
            "",
            t(WRITTEN).format(version=scaling.__version__, command=command),
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
    yield t("## 45 minutes\n\n| minutes | | what |\n|---|---|---|")
    for step in own.steps:
        end = start + step.minutes
        yield f"| {start} - {end} | **{t(step.title)}** | {t(step.what)} |"
        start = end
    yield t("\nOn the board: {board}\n\nTo ask behind the answer:\n").format(board=t(own.board))
    yield from (f"- {t(question)}" for question in own.ask)
    yield t("\nTo remember: {takeaway}").format(takeaway=found.takeaway)


def _mistakes(found: Material) -> Iterator[str]:
    yield t("## What students get wrong\n\nWho says such a number has probably done that.\n")
    for one in (found.asked, *found.problems):
        answer, unit = one.answer
        if answer is None or not one.mistakes:
            continue
        yield f"**{t(one.where)}:** {one.text}\n"
        yield t("| says | probably | how to see it |\n|---|---|---|")
        known = [mistake(name) for name in one.mistakes]
        for ratio in dict.fromkeys(ratio for each in known for ratio in each.ratios):
            same = [each for each in known if ratio in each.ratios]
            done = "<br>".join(each.sentence for each in same)
            checks = "<br>".join(each.check for each in same)
            yield f"| {show(answer * ratio, t(unit))} | {done} | {checks} |"
        yield ""


def _solutions(found: Material) -> Iterator[str]:
    yield t("## Solutions\n")
    yield from (f"{i}. {line}" for i, line in enumerate(map(_solution, _all(found)), 1))


def _all(found: Material) -> tuple[Problem, ...]:
    return (found.asked, *found.problems)


def _solution(one: Problem) -> str:
    answer, unit = one.answer
    if answer is None:
        return f"*{t(one.where)}:* {one.text} **{t('Whatever was measured is right.')}**"
    why = f" {one.why}" if isinstance(one.why, str) else ""
    close = t(", right within {share:.2g} %", share=100 * one.tolerance)
    right = close if one.tolerance else t(", exactly")
    return f"*{t(one.where)}:* {one.text} **{show(answer, t(unit))}**{right}.{why}"


def _typed(value: object) -> str:
    """A value of run.json as one types it behind --set or --mesh."""
    if isinstance(value, dict):
        return ",".join(f"{key}={size}" for key, size in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _at_home(found: Material) -> Iterator[str]:
    yield t("## At home\n\n| command | asks | answer |\n|---|---|---|")
    asked = [quiz for quiz in quizzes() if quiz.chapter == found.chapter][:AT_HOME]
    for quiz in asked:
        answers = "; ".join(f"{t(a.name)} {show(compute(a), t(a.unit))}" for a in quiz.answers)
        question = " ".join(t(quiz.question).split()).replace("|", "/")
        yield f"| `scaling learn quiz {quiz.id}` | {question} | {answers} |"
    for puzzle in puzzles():
        if f"lesson_{puzzle.lesson:02}" == found.lesson.file.stem:
            best = ", ".join(f"{key}={_typed(value)}" for key, value in puzzle.best.items())
            command = f"scaling learn puzzle {puzzle.number}"
            known = t("best known: {best}", best=best)
            yield f"| `{command}` | {t(puzzle.title)} | {known} |"
