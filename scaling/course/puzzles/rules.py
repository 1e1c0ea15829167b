"""The rules of a puzzle: which keys of its run an answer may change, and how many.

Keys are those of run.json, dotted: `mesh` allows `mesh.fsdp`, `remat` allows `remat.save`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from scaling.course.puzzles.puzzle import Puzzle
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.run import Run, run_dict

FREE = ("name", "cluster", "train.steps")  # decide nothing here; the cluster is compared by itself
ABSENT = "absent"
MOST_KEYS = 3  # that a message lists


def check_rules(puzzle: Puzzle, start: Run, answer: Run, place: Cluster) -> None:
    """Raise InputError for an answer that is against the rules.

    Args:
        start, answer: with their meshes.
        place: the cluster of the puzzle.
    """
    if answer.cluster not in (None, start.cluster):
        raise InputError(
            f"puzzle {puzzle.number} is priced on {puzzle.nodes} node(s) of {puzzle.cluster}, and "
            'the run names another cluster; leave out its "cluster"'
        )
    changed = changes(start, answer)
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


def changes(start: Run, answer: Run) -> dict[str, tuple[Any, Any]]:
    """Return dotted key -> (value to begin with, the answer's) of all that differ."""
    old, new = (dict(_leaves(run_dict(run))) for run in (start, answer))
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


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value that is not a table."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
