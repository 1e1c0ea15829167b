"""The best answers to the puzzles of `scaling learn puzzles`, by trying all that they allow.

    python -m experiments.puzzles 3             closed forms only: the table of the best
    python -m experiments.puzzles 3 --compile 8 --out experiments/results     seconds a step, no GPU
    python -m experiments.puzzles 3 --write --out experiments/results         into its file

Every setting that a puzzle's `may` allows, from the values below, is priced from its closed form.
The best of those that come near all goals are compiled and priced again; the best of these that
reaches every goal is the best answer known. It is written into the puzzle's file.
Closed forms can rank otherwise than compiled steps: what is best among those compiled need not be
the best of all.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from itertools import combinations, product
from pathlib import Path
from typing import Any

from scaling.api.plan import plan
from scaling.api.predict import predict
from scaling.api.runs import apply_settings
from scaling.course.puzzles.check import placed
from scaling.course.puzzles.goal import MEASURES
from scaling.course.puzzles.puzzle import FOLDER, Puzzle, find
from scaling.meshes.errors import InputError
from scaling.meshes.rules import divisors
from scaling.meshes.shape import AXES
from scaling.planning.space import meshes
from scaling.program.versions import compiler_versions

KEPT = ("query,key,value", "attention", "attention_out", "mlp_gate", "mlp_up")  # lists of `remat`
NEAR = 1.05  # what a closed form misses by less may be reached by the compiled step
VALUES: dict[str, list[Any]] = {
    "sharding.zero_stage": [1, 3],
    "context.method": ["ring", "all-gather"],
    "pipeline.schedule": ["1f1b", "interleaved"],
    "pipeline.virtual_stages": [1, 2, 4, 8],
    "precision.frozen": ["fp32", "bf16"],
    "precision.optimizer_state": ["fp32", "bf16"],
    "precision.reduce": ["bf16", "fp32"],
    "attention": ["flash", "unfused"],
    "optimizer": ["adamw", "lion", "adafactor", "muon"],
}
Settings = dict[str, Any]
PLANNED = {"mesh", "batch.microbatches", "remat", "sharding.zero_stage"}
MOST_ROWS = 12  # of the table of closed forms
MOST_PLANS = 12  # meshes, of which the best are compiled


@dataclass(frozen=True)
class Tried:
    """One answer, priced by one front end."""

    settings: Settings
    values: dict[str, float]  # measure -> value

    def reaches(self, puzzle: Puzzle) -> bool:
        """True if every goal is reached."""
        return all(goal.is_reached(self.values[goal.measure]) for goal in puzzle.goals)

    def is_near(self, puzzle: Puzzle) -> bool:
        """True if no goal but the score is missed by more than closed forms err."""
        for goal in puzzle.goals[1:]:
            value = self.values[goal.measure]
            if not goal.is_reached(value / NEAR if goal.least is None else value * NEAR):
                return False
        return True

    def rank(self, puzzle: Puzzle) -> float:
        """The smaller, the better."""
        score = puzzle.score
        value = self.values.get(score.measure, 0.0)
        return value if score.least is None else -value


def candidates(puzzle: Puzzle) -> tuple[int, list[Settings]]:
    """How many settings were priced by closed forms, and the best of them, best first."""
    if PLANNED <= set(puzzle.may):
        return _planned(puzzle)
    every = [one for s in settings_of(puzzle) if (one := tried(puzzle, s, "analytic"))]
    every.sort(key=lambda one: one.rank(puzzle))
    return len(every), _mixed([one.settings for one in every if one.is_near(puzzle)])


def _mixed(best: list[Settings]) -> list[Settings]:
    """The same, the best of each number of microbatches first, then the second best, ..."""
    place: Counter[Any] = Counter()
    order = []
    for settings in best:
        key = settings.get("batch.microbatches")
        order.append((place[key], settings))
        place[key] += 1
    return [settings for _, settings in sorted(order, key=lambda pair: pair[0])]


def _planned(puzzle: Puzzle) -> tuple[int, list[Settings]]:
    """The same by `scaling.plan`, whose space these puzzles are: the best setting of each mesh."""
    keys = [key for key in puzzle.may if key not in PLANNED]
    priced, found = 0, []
    for chosen in product(*(VALUES[key] for key in keys)):
        others = dict(zip(keys, chosen, strict=True))
        free = replace(puzzle.start, mesh=None)  # else `plan` keeps to its mesh
        plans = plan(apply_settings(free, others), top=MOST_PLANS)
        priced += plans.priced + plans.pruned
        for one in plans.plans:
            assert one.run.mesh is not None
            mesh = {axis: n for axis, n in one.run.mesh.sizes.items() if n > 1}
            settings = {"mesh": mesh, "batch.microbatches": one.run.batch.microbatches}
            settings |= {"remat": one.run.remat, "sharding.zero_stage": one.run.sharding.zero_stage}
            found.append((float(one.prediction.step_time), {**settings, **others}))
    return priced, [settings for _, settings in sorted(found, key=lambda pair: pair[0])]


def settings_of(puzzle: Puzzle) -> Iterator[Settings]:
    """Every combination of values of the keys that may be changed."""
    keys = list(dict.fromkeys(key.split(".")[0] if "mesh" in key else key for key in puzzle.may))
    keys = [key for key in keys if key != "device_order"]
    if puzzle.changes == 1:
        yield from ({key: value} for key in keys for value in _values(puzzle, key))
        return
    for chosen in product(*(_values(puzzle, key) for key in keys)):
        yield from _ordered(puzzle, dict(zip(keys, chosen, strict=True)))


def _values(puzzle: Puzzle, key: str) -> list[Any]:
    if key == "mesh":
        devices = placed(puzzle, puzzle.start).cluster.devices
        every = meshes(replace(puzzle.start, mesh=None), devices)
        return [{a: n for a, n in mesh.sizes.items() if n > 1} for mesh in every]
    if key == "batch.microbatches":
        return [int(n) for n in divisors(puzzle.start.batch.global_batch)]
    if key == "remat":
        lists = (",".join(c) for n in range(1, len(KEPT)) for c in combinations(KEPT, n))
        return ["none", "selective", "full", *lists]
    return VALUES[key]


def _ordered(puzzle: Puzzle, settings: Settings) -> Iterator[Settings]:
    """The settings; where the order of axes may be changed, the default, and of two the other."""
    if "device_order" not in puzzle.may:
        yield settings
        return
    yield {**settings, "device_order": list(AXES)}
    used = [axis for axis in AXES if settings["mesh"].get(axis, 1) > 1]
    if len(used) == 2:
        rest = [axis for axis in AXES if axis not in used]
        yield {**settings, "device_order": [*rest, *reversed(used)]}


def tried(puzzle: Puzzle, settings: Settings, source: str) -> Tried | None:
    """Price one answer; None where it is refused."""
    try:
        place = placed(puzzle, apply_settings(puzzle.start, settings))
        step = predict(place.run, place.cluster, source=source)
    except InputError:
        return None
    found = {}
    for name, measure in MEASURES.items():
        if name == "moved" and step.source == "analytic":
            continue
        value = measure.of(step, place.run)
        if value is not None:
            found[name] = float(value)
    return Tried(settings, found | {"peak": float(step.memory.peak)})


def search(number: int, compiled: int) -> dict[str, Any]:
    """Try everything; returns the document of the results."""
    puzzle, begin = find(number), time.monotonic()
    count, best = candidates(puzzle)
    document: dict[str, Any] = {"puzzle": number, "title": puzzle.title, "priced": count}
    sources = ("analytic", "compiled") if compiled else ("analytic",)
    for source, most in zip(sources, (MOST_ROWS, compiled), strict=False):
        found = [one for s in best[:most] if (one := tried(puzzle, s, source))]
        found.sort(key=lambda one: one.rank(puzzle))
        document[source] = [vars(one) for one in found]
    starts = ((source, tried(puzzle, {}, source)) for source in sources)
    document["start"] = {source: one.values for source, one in starts if one}
    document["seconds"] = round(time.monotonic() - begin, 1)
    return document


def write_answer(puzzle: Puzzle, document: dict[str, Any]) -> None:
    """Write the best answer and what is known into the puzzle's file; raises where none solves."""
    rows = [Tried(**row) for row in document.get("compiled") or document["analytic"]]
    solved = sorted((r for r in rows if r.reaches(puzzle)), key=lambda row: row.rank(puzzle))
    if not solved:
        raise SystemExit(f"puzzle {puzzle.number}: nothing that was tried reaches all goals")
    best, measures = solved[0], [goal.measure for goal in puzzle.goals]
    closed = tried(puzzle, best.settings, "analytic")
    assert closed is not None
    second = solved[1] if len(solved) > 1 else None
    known = {
        "tried": document["priced"],
        "compiled": len(document.get("compiled", [])),
        "compiled_values": {m: best.values[m] for m in measures if "compiled" in document},
        "analytic_values": {m: closed.values[m] for m in measures if m in closed.values},
        "runner_up": _words(second, puzzle) if second else "none that reaches every goal",
        "date": date.today().isoformat(),
        "versions": compiler_versions(),
    }
    file = next(p for p in Path(str(FOLDER)).glob(f"{puzzle.number:02}_*.toml"))
    head = file.read_text(encoding="utf-8").partition("\n[best]\n")[0]
    tables = (("best", best.settings), ("known", known))
    lines = [f"\n[{name}]\n" + "".join(_line(k, v) for k, v in t.items()) for name, t in tables]
    file.write_text(head + "".join(lines), encoding="utf-8")


def add(puzzle: Puzzle, document: dict[str, Any], also: list[Settings]) -> None:
    """Compile answers besides those of the search, such as what a reader would try first."""
    known = [row["settings"] for row in document["compiled"]]
    found = [tried(puzzle, settings, "compiled") for settings in also if settings not in known]
    document["compiled"] += [vars(one) for one in found if one is not None]


def _words(row: Tried, puzzle: Puzzle) -> str:
    settings = " ".join(f"{key}={_plain(value)}" for key, value in row.settings.items())
    score = row.values.get(puzzle.score.measure)
    return settings if score is None else f"{puzzle.score.show(score)}: {settings}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{axis}={size}" for axis, size in value.items())
    return ",".join(value) if isinstance(value, list) else str(value)


def _line(key: str, value: Any) -> str:
    name = json.dumps(key) if "." in key else key
    return f"{name} = {_toml(value)}\n"


def _toml(value: Any) -> str:
    """A value as TOML has it: as JSON, but for tables, and with few digits."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items())
        return "{ " + inner + " }"
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value)


def main() -> None:
    """Search the puzzles that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("numbers", nargs="+", type=int)
    parser.add_argument("--compile", type=int, default=0, help="best closed forms to compile")
    parser.add_argument("--write", action="store_true", help="write answers of earlier results")
    parser.add_argument("--also", type=json.loads, help="settings to compile besides, a JSON list")
    parser.add_argument("--out", type=Path, help="folder of results; without it nothing is written")
    options = parser.parse_args()
    folder = options.out and options.out / f"{date.today().isoformat()}-puzzles"
    for number in options.numbers:
        puzzle = find(number)
        file = folder and folder / f"puzzle-{number:02}.json"
        if options.write:
            write_answer(puzzle, json.loads(file.read_text(encoding="utf-8")))
            continue
        if options.also:
            document = json.loads(file.read_text(encoding="utf-8"))
            add(puzzle, document, options.also)
        else:
            document = search(number, options.compile)
        print_tables(puzzle, document)
        if file is not None:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def print_tables(puzzle: Puzzle, document: dict[str, Any]) -> None:
    """Print the best by each front end, and the run to begin with."""
    print(f"puzzle {puzzle.number}: {document['priced']} priced, {document['seconds']} s")
    for source in ("analytic", "compiled"):
        for row in document.get(source, ()):
            values = " ".join(f"{k}={v:.4g}" for k, v in row["values"].items())
            print(f"  {source} {_words(Tried(**row), puzzle)} | {values}")
    for source, found in document["start"].items():
        print(f"  start {source} {found}", flush=True)


if __name__ == "__main__":
    main()
