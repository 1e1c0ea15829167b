"""The guide's questions and quizzes, the ladder from a guess to a measurement, puzzles, lessons.

    sc.learn.kernel("matmul", (8192, 8192, 8192), accelerator="h100-sxm")
    sc.learn.limits("llama3-8b", cluster="dgx-h100", nodes=8)

    sc.learn.quizzes()[0].question, sc.learn.puzzles()[0].story, sc.learn.lessons()[0].title

A question has an `Answer`: its number, the formula with what was put in, and what binds. Names are
loaded when they are first used, without JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaling.api.array import array as array
    from scaling.api.budget import budget as budget
    from scaling.api.chip import chip as chip
    from scaling.api.count import count as count
    from scaling.api.kernel import kernel as kernel
    from scaling.api.limits import limits as limits
    from scaling.api.serve import serve as serve
    from scaling.course.finder.topics import find as find
    from scaling.course.ladder.ladders import collective_ladder as collective_ladder
    from scaling.course.ladder.ladders import kernel_ladder as kernel_ladder
    from scaling.course.ladder.ladders import step_ladder as step_ladder
    from scaling.course.lessons.index import labs as labs
    from scaling.course.lessons.index import lessons as lessons
    from scaling.course.puzzles.check import check_puzzle as check_puzzle
    from scaling.course.puzzles.puzzle import puzzles as puzzles
    from scaling.course.quizzes.common_mistakes import diagnose as diagnose
    from scaling.course.quizzes.quiz import quizzes as quizzes
    from scaling.course.sweeps.game import play_sweep as play_sweep
    from scaling.course.sweeps.game import sweep as sweep

_MODULES = {  # name -> the module that defines it
    "chip": "scaling.api.chip",
    "kernel": "scaling.api.kernel",
    "count": "scaling.api.count",
    "array": "scaling.api.array",
    "limits": "scaling.api.limits",
    "serve": "scaling.api.serve",
    "budget": "scaling.api.budget",
    "find": "scaling.course.finder.topics",
    "kernel_ladder": "scaling.course.ladder.ladders",
    "collective_ladder": "scaling.course.ladder.ladders",
    "step_ladder": "scaling.course.ladder.ladders",
    "check_puzzle": "scaling.course.puzzles.check",
    "puzzles": "scaling.course.puzzles.puzzle",
    "sweep": "scaling.course.sweeps.game",
    "play_sweep": "scaling.course.sweeps.game",
    "quizzes": "scaling.course.quizzes.quiz",
    "diagnose": "scaling.course.quizzes.common_mistakes",
    "lessons": "scaling.course.lessons.index",
    "labs": "scaling.course.lessons.index",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from scaling.meshes.errors import UnknownName, nearest

        raise UnknownName(f"sc.learn has no attribute {name!r}; {nearest(name, __all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
