"""An answer to a puzzle, judged: its rules, the trainer's step compiled and priced, its goals.

The rules say which keys of its run an answer may change, and how many. Keys are those of run.json,
dotted: `mesh` allows `mesh.fsdp`, `remat` allows `remat.save`.
"""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from scaling.api.config import leaves
from scaling.api.inputs import keep_devices_free
from scaling.api.predict import SOURCES, predict
from scaling.api.pricing import price_program
from scaling.api.public_api import entrance
from scaling.api.result import PredictionResult
from scaling.api.runs import RunLike, load_run
from scaling.course.language import t
from scaling.course.puzzles.goal import JudgedGoal
from scaling.course.puzzles.puzzle import Puzzle, find
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.result import Result
from scaling.report.stream_rows import stream_rows
from scaling.run import Run, run_dict
from scaling.simulate.resolve import Target, chosen_source, target
from scaling.simulate.step import Priced

SURE = "only the compiled step decides: leave out --source analytic"
REPORT = "nobody has reported that yet: please open an issue with your run"
FREE = ("name", "cluster", "train.steps")  # decide nothing here; the cluster is compared by itself
ABSENT = "absent"
MOST_KEYS = 3  # that a message lists


@dataclass(frozen=True, repr=False)
class PuzzleResult(Result):
    """A judged answer; prints as the page of `scaling learn check`."""

    puzzle: Puzzle
    prediction: PredictionResult
    judged: tuple[JudgedGoal, ...]
    notes: tuple[str, ...] = ()

    @property
    def solved(self) -> bool:
        return all(one.reached for one in self.judged)

    @property
    def score(self) -> float:
        """Value of the measure by which answers are compared."""
        return self.judged[0].value

    @property
    def best_known(self) -> float | None:
        """The same of the best answer known, by the same front end; None: not known."""
        known = self.puzzle.known
        if known is None:
            return None
        return known.value(self.puzzle.score.measure, self.prediction.source)

    @property
    def is_better(self) -> bool:
        """True if its compiled step solves it, and is better than the best answer known.

        A closed form does not decide: it is further from the compiled step than answers differ.
        """
        best = self.best_known
        if best is None or not self.solved or self.prediction.source != "compiled":
            return False
        return self.puzzle.score.is_better(self.score, best)

    @cached_property
    def priced(self) -> Priced:
        """The step with every event of its timeline."""
        return price_program(self.prediction.pricing, record=True)

    @property
    def rows(self) -> list[str]:
        """What each stream of a device does over the step, as rows of characters."""
        return stream_rows(self.priced.timeline.events, float(self.prediction.step_time))

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling learn check --json` prints."""
        return {
            "puzzle": self.puzzle.number,
            "title": self.puzzle.title,
            "solved": self.solved,
            "goals": [one.to_dict() for one in self.judged],
            "score": self.score,
            "best_known": self.best_known if self.solved else None,
            "better": self.is_better,
            "notes": list(self.notes),
            "prediction": self.prediction.to_dict(),
        }

    def __str__(self) -> str:
        step = self.prediction
        where = {"mesh": step.mesh, "cluster": step.cluster.name, "source": step.source}
        head = [
            t("puzzle {number}: {title}", number=self.puzzle.number, title=t(self.puzzle.title)),
            t("{mesh} of {cluster}, {source} program", **where),
            *(t("note: {note}", note=note) for note in self.notes),
            *(f"  {t('yes') if one.reached else t('no ')}  {one}" for one in self.judged),
        ]
        *rows, legend = self.rows
        meant = ", ".join(f"{sign[:2]}{t(sign[2:])}" for sign in legend.split(", "))
        return "\n".join([*head, *rows, meant, *self._verdict()])

    def line(self) -> str:
        state = t("solved") if self.solved else self._missed()
        return f"puzzle {self.puzzle.number}, {t(self.puzzle.title)}: {state}"

    def _verdict(self) -> list[str]:
        """Solved, and beside the best known; or what is missed, and the hint.

        A closed form says how near the limit is, and neither solved nor how good.
        """
        hint = t("hint: {hint}", hint=t(self.puzzle.hint))
        goal, best = self.puzzle.score, self.best_known
        if self.prediction.source == "analytic":
            inside, outside = (
                t("{what} {off:.0%} inside its limit"),
                t("{what} {off:.0%} outside its limit"),
            )
            near = (inside if self.judged[0].reached else outside).format(
                what=goal.words, off=abs(self.score / goal.limit - 1)
            )
            state = t("all goals reached") if self.solved else self._missed()
            line = t(
                "by the closed form {state}, {near}; {sure}", state=state, near=near, sure=t(SURE)
            )
            return [line] if self.solved else [line, hint]
        if not self.solved:
            return [t("not yet: {missed}", missed=self._missed()), hint]
        known = "" if best is None else t("; best known {value}", value=goal.show(best))
        line = t("solved: yours {value}{known}", value=goal.show(self.score), known=known)
        more = t("better than the best known: {report}", report=t(REPORT))
        return [line, more] if self.is_better else [line]

    def _missed(self) -> str:
        missed = sum(not one.reached for one in self.judged)
        return t("{missed} of {all} goals missed", missed=missed, all=len(self.judged))


@entrance
def check_puzzle(number: int | str, run: RunLike, source: str = "auto") -> PuzzleResult:
    """Judge an answer to a puzzle of `scaling learn puzzles`.

    >>> import scaling as sc
    >>> answer = {"name": "mine", "model": "llama3-8b", "mesh": {"fsdp": 8}, "remat": "full",
    ...     "batch": {"global_batch": 16, "seq_len": 4096, "microbatches": 2}}
    >>> sc.check_puzzle(1, answer, source="analytic").solved
    False

    Args:
        number: of the puzzle.
        run: the answer, as for `predict`.
        source: as for `predict`; "auto" compiles the step, and takes the closed form where there is
            no compiler.

    Raises:
        InputError: no such puzzle, an answer against its rules or that the trainer cannot run; a
            closed form is asked what the compiler does.
    """
    check_keys([source], SOURCES, "--source", "source")
    puzzle = find(number)
    keep_devices_free()
    place = placed(puzzle, load_run(run))
    prediction, notes = _predicted(place, source)
    judged = (goal.judge(prediction, place.run) for goal in puzzle.goals)
    return PuzzleResult(puzzle, prediction, tuple(judged), tuple(notes))


def placed(puzzle: Puzzle, answer: Run) -> Target:
    """Return an answer on the puzzle's cluster.

    Raises:
        InputError: it is against the rules, or the trainer cannot run it.
    """
    start, place = target(puzzle.start), target(replace(answer, cluster=puzzle.start.cluster))
    stated = replace(place.run, cluster=answer.cluster)
    _check_rules(puzzle, start.run, stated, place.cluster)
    chosen_source(place, "compiled")  # raises for what the trainer does not run
    chosen_source(place, "auto")  # and for sizes that do not divide
    return place


def _check_rules(puzzle: Puzzle, start: Run, answer: Run, place: Cluster) -> None:
    """Raise InputError for an answer that is against the rules; `place` is the puzzle's cluster."""
    named = re.fullmatch(r"puzzle-(\d+)", answer.name)
    if named and int(named[1]) != puzzle.number:
        raise InputError(
            f"the run is called {answer.name!r}, and this is puzzle {puzzle.number}; write scaling "
            f"learn check {named[1]}, or another name"
        )
    if answer.cluster not in (None, start.cluster):
        raise InputError(
            f"puzzle {puzzle.number} is priced on {puzzle.nodes} node(s) of {puzzle.cluster}, and "
            'the run names another cluster; leave out its "cluster"'
        )
    changed = _changes(start, answer)
    forbidden = {key: pair for key, pair in changed.items() if not _allowed(puzzle, key)}
    if forbidden:
        words = [f"{key} is {new}, not {old}" for key, (old, new) in forbidden.items()]
        rest = f", and {len(words) - MOST_KEYS} more" * (len(words) > MOST_KEYS)
        raise InputError(
            f"puzzle {puzzle.number} does not allow that: {', '.join(words[:MOST_KEYS])}{rest}; "
            f"what may be changed is {', '.join(puzzle.may)}"
        )
    kinds = {_allowed(puzzle, key) for key in changed}
    if puzzle.changes is not None and len(kinds) > puzzle.changes:
        raise InputError(
            f"puzzle {puzzle.number} takes {puzzle.changes} change, and {len(kinds)} were made: "
            f"{', '.join(sorted(kinds))}"
        )
    assert answer.mesh is not None
    if answer.mesh.devices != place.devices:
        raise InputError(
            f"mesh {answer.mesh} has {answer.mesh.devices} devices; puzzle {puzzle.number} is "
            f"about all {place.devices} of its cluster: use sizes that multiply to that"
        )


def _changes(start: Run, answer: Run) -> dict[str, tuple[Any, Any]]:
    """Return dotted key -> (value to begin with, the answer's) of all that differ."""
    old, new = (dict(leaves(run_dict(run))) for run in (start, answer))
    return {
        key: (old.get(key, ABSENT), new.get(key, ABSENT))
        for key in {**old, **new}
        if key.split(".")[0] not in FREE
        and key not in FREE
        and old.get(key, ABSENT) != new.get(key, ABSENT)
    }


def _allowed(puzzle: Puzzle, key: str) -> str:
    """Return the key of `may` that allows a change; "" if none does."""
    return next((k for k in puzzle.may if key == k or key.startswith(f"{k}.")), "")


def _predicted(place: Target, source: str) -> tuple[PredictionResult, list[str]]:
    """Price the step; without a compiler by its closed form, and say so."""
    if source != "auto":
        return predict(place.run, place.cluster, source=source), []
    try:
        return predict(place.run, place.cluster, source="compiled"), []
    except InputError as error:
        note = f"judged by the closed form, not by the compiled step: {error}"
        return predict(place.run, place.cluster, source="analytic"), [note]
