"""Find the best of some dozen measured configurations in five tries: the game on a published sweep.

    game = sc.learn.play_sweep("3.57B-128", ["tensor=1,sequences=2,zero=1"])
    game.best.seconds, game.rank, game.left       # the best of the tries, its place, tries left
    game.luck                                     # how often five random tries do as well

A configuration that ran out of memory costs a try. What is chosen is what the trainer has: tensor
and stage; data is what remains of the GPUs, `zero` whether it shards the optimizer, `sequences`
those of a microbatch. Nothing is predicted here: every time was measured (`FILE`, which the page in
a browser reads too).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from scaling.course.language import columns, padded, t
from scaling.meshes.errors import InputError, check_keys, is_count, nearest
from scaling.meshes.reading import parse_json, read
from scaling.meshes.result import Result
from scaling.meshes.units import format_time, percent

FILE = Path(__file__).parents[1] / "web" / "pages" / "sweeps.json"
TRIES = 5
CHOICES = ("tensor", "stage", "data", "zero", "sequences")
COLUMNS = (*CHOICES, "seconds", "predicted", "on_sound", "inside")
MOST_LISTED = 6  # choices that a message names
FIRST = "tensor=1,zero=1,sequences=1"  # in messages


@dataclass(frozen=True)
class Row:
    """A configuration that somebody ran."""

    tensor: int
    stage: int
    data: int
    zero: int  # 1: the optimizer is sharded over data
    sequences: int  # of a microbatch
    seconds: float | None  # of a measured step; None: it ran out of memory
    predicted: float  # s, by this project
    on_sound: float  # s, predicted with the sound network's bandwidths
    inside: float | None  # bytes/s that an all-reduce of its job reached inside a node

    def __str__(self) -> str:
        return ",".join(f"{name}={getattr(self, name)}" for name in CHOICES if name != "data")

    @property
    def said(self) -> str:
        """What came of it."""
        return t("out of memory") if self.seconds is None else format_time(self.seconds)


@dataclass(frozen=True)
class SweepProblem:
    """A model on so many GPUs with one global batch, and all that was tried."""

    name: str
    model: dict[str, Any]  # as in run.json; `name` of its source
    gpus: int
    global_batch: int
    seq_len: int
    network: str  # sound, sick
    bus_bandwidth: dict[str, float]  # all-reduce as the jobs measured it: inside a node, across all
    rule: int  # row that the rule of thumb chooses of what ran
    planner: tuple[int, ...]  # rows that `scaling plan` ranks first
    left_out: tuple[int, ...]  # the same, fitted without runs of this model
    rows: tuple[Row, ...]

    @cached_property
    def times(self) -> tuple[float, ...]:
        """Measured seconds of all that ran, the least first."""
        return tuple(sorted(row.seconds for row in self.rows if row.seconds is not None))

    def line(self) -> str:
        """Return the problem on a line."""
        out = len(self.rows) - len(self.times)
        return f"{self.name:<14}  " + t(
            "{model} on {gpus} GPUs, {network} network: {n} configurations, {out} out of memory",
            model=self.model["name"],
            gpus=self.gpus,
            network=t(self.network),
            n=len(self.rows),
            out=out,
        )

    def rank(self, seconds: float) -> int:
        """Return the place of a time among those that ran; 1 is the best."""
        return 1 + sum(time < seconds for time in self.times)

    def lost(self, row: Row | None) -> float | None:
        """Return the time of a row over the best, less one; None of what did not run."""
        if row is None or row.seconds is None:
            return None
        return row.seconds / self.times[0] - 1

    def luck(self, seconds: float) -> float:
        """Return how often the best of `TRIES` random configurations takes at most so long.

        1 - C(n - k, tries) / C(n, tries),  k of n as good
        """
        worse = len(self.rows) - sum(time <= seconds for time in self.times)
        return 1 - math.comb(worse, TRIES) / math.comb(len(self.rows), TRIES)

    def find(self, text: str) -> Row:
        """Return the configuration that a text names: `tensor=2,stage=4,sequences=1`.

        Raises:
            InputError: it cannot be read; nobody ran it; it leaves several.
        """
        given: dict[str, int] = {}
        for part in text.split(","):
            key, equals, value = (word.strip() for word in part.partition("="))
            if not equals or not is_count(value) or key in given:
                raise InputError(f"--try {text!r} cannot be read; write --try {FIRST}")
            check_keys([key], CHOICES, f"--try {text}", "choice")
            given[key] = int(value)
        found = self.rows
        for key, number in given.items():
            left = tuple(row for row in found if getattr(row, key) == number)
            if not left:
                there = sorted({getattr(row, key) for row in found})
                raise InputError(
                    f"nobody ran {text} here; with the rest as it is, {key} was {_listed(there)}; "
                    "this costs no try"
                )
            found = left
        if len(found) > 1:
            open_ = {key: sorted({getattr(row, key) for row in found}) for key in CHOICES}
            words = [f"{key} {_listed(v)}" for key, v in open_.items() if len(v) > 1]
            raise InputError(
                f"--try {text} leaves {len(found)} configurations; say also {'; '.join(words)}"
            )
        return found[0]


@dataclass(frozen=True)
class Sweep:
    """The file."""

    about: str  # source and licence
    software: str
    made: dict[str, str]  # which version of this project predicted
    tried: int  # configurations of the whole sweep
    outcomes: dict[str, int]  # of these: ok, oom, failed
    choosers: dict[str, str]  # what a student is held against, in words
    columns: tuple[str, ...]
    problems: tuple[SweepProblem, ...]


@cache
def sweep() -> Sweep:
    """Return the sweep that comes with the package."""
    document = parse_json(FILE.read_text(encoding="utf-8"), FILE.name)
    rows = lambda problem: [dict(zip(COLUMNS, row, strict=True)) for row in problem["rows"]]
    document["problems"] = [{**p, "rows": rows(p)} for p in document["problems"]]
    return read(Sweep, document, FILE.name)


def find_problem(name: str) -> SweepProblem:
    """Return the problem of a name; InputError says which there are."""
    known = {problem.name: problem for problem in sweep().problems}
    for each, problem in known.items():
        if each.lower() == name.strip().lower():
            return problem
    raise InputError(f"no sweep is called {name!r}; {nearest(name, known)}")


@dataclass(frozen=True, repr=False)
class SweepGame(Result):
    """Tries at a problem; prints as the page of `scaling learn sweep`."""

    problem: SweepProblem
    tries: tuple[Row, ...]

    @property
    def left(self) -> int:
        """Tries that are left."""
        return TRIES - len(self.tries)

    @property
    def is_over(self) -> bool:
        """True if no try is left, or the best was found."""
        return not self.left or self.rank == 1

    @property
    def best(self) -> Row | None:
        """The fastest of the tries; None: none has run."""
        ran = [row for row in self.tries if row.seconds is not None]
        return min(ran, key=lambda row: row.seconds or 0.0, default=None)

    @property
    def rank(self) -> int | None:
        """The place of the best try among all that ran."""
        best = self.best
        return None if best is None or best.seconds is None else self.problem.rank(best.seconds)

    @property
    def luck(self) -> float | None:
        """How often five random tries do as well."""
        best = self.best
        return None if best is None or best.seconds is None else self.problem.luck(best.seconds)

    @property
    def others(self) -> dict[str, Row]:
        """What others choose: the rule of thumb, the planner, and what was measured."""
        rows = self.problem.rows
        of = lambda indices: [rows[i] for i in indices]
        best_of = lambda some: min(some, key=lambda row: row.seconds or math.inf)
        found = {
            "rule": rows[self.problem.rule],
            "planner": rows[self.problem.planner[0]],
            "planner_best": best_of(of(self.problem.planner)),
            "left_out": rows[self.problem.left_out[0]],
            "best": best_of(rows),
        }
        return {t(words): found[name] for name, words in sweep().choosers.items()}

    def to_dict(self) -> dict[str, Any]:
        """Return the document that `scaling learn sweep NAME --json` prints."""
        problem = self.problem
        kept = ("model", "gpus", "global_batch", "seq_len", "network", "bus_bandwidth")
        document: dict[str, Any] = {"problem": problem.name}
        document |= {name: getattr(problem, name) for name in kept}
        document |= {"tries": [_told(row) for row in self.tries], "left": self.left}
        if not self.is_over:
            rows = [{name: getattr(row, name) for name in CHOICES} for row in problem.rows]
            return document | {"choices": rows}
        verdict = {"rank": self.rank, "ran": len(problem.times), "luck": self.luck}
        verdict["lost"] = problem.lost(self.best)
        others = {
            name: {**_told(row), "lost": problem.lost(row)} for name, row in self.others.items()
        }
        return document | {"verdict": verdict, "others": others}

    def line(self) -> str:
        best = "nothing that runs" if self.best is None else f"{self.best.said}, rank {self.rank}"
        return f"sweep {self.problem.name}: {best}, {self.left} of {TRIES} tries left"

    def __str__(self) -> str:
        name = t("sweep {name}", name=self.problem.name)
        lines = [*_task(self.problem)] if not self.tries else [name]
        for number, row in enumerate(self.tries, 1):
            rank = row.seconds and self.problem.rank(row.seconds)
            place = t(", rank {rank}", rank=rank) if rank else ""
            lines.append(t("  try {n}  {row}", n=number, row=f"{row}: {row.said}{place}"))
        if not self.is_over:
            return "\n".join([*lines, t("{left} of {all} tries left", left=self.left, all=TRIES)])
        return "\n".join([*lines, *self._verdict()])

    def _verdict(self) -> Iterator[str]:
        problem, best = self.problem, self.best
        rows = {t("your best"): best, **self.others}
        width = max(map(columns, rows))
        for name, row in rows.items():
            lost = problem.lost(row)
            behind = "" if lost is None else f"  {lost:+.1%}"
            said = (
                t("all ran out of memory") if row is None else f"{row.said:>13}{behind:>9}  {row}"
            )
            yield f"{padded(name, width)}  {said}"
        if self.luck is not None:
            yield t(
                "rank {rank} of {ran} that ran; the best of {tries} random configurations of these "
                "{n} is as good {share} of the time",
                rank=self.rank,
                ran=len(problem.times),
                tries=TRIES,
                n=len(problem.rows),
                share=percent(self.luck),
            )
        yield t(
            "measured: Ultra-Scale Playbook, nanotron; scaling plan: version {version}, {date}",
            version=sweep().made["scaling"],
            date=sweep().made["date"],
        )


def play_sweep(name: str, tries: Sequence[str]) -> SweepGame:
    """Return the game of a problem after some tries.

    Raises:
        InputError: no such problem; a try that nobody ran, twice, or more than five.
    """
    problem = find_problem(name)
    rows = tuple(map(problem.find, tries))
    twice = next((row for i, row in enumerate(rows) if row in rows[:i]), None)
    if twice:
        raise InputError(f"--try {twice} is given twice; each configuration ran once")
    if len(rows) > TRIES:
        raise InputError(f"{len(rows)} tries were given; there are {TRIES}")
    return SweepGame(problem, rows)


def _task(problem: SweepProblem) -> Iterator[str]:
    bus = {where: f"{speed / 1e9:.0f}" for where, speed in problem.bus_bandwidth.items()}
    shape, n = problem.model, len(problem.rows)
    yield t(
        "sweep {name}: {model} ({layers} layers of {width}, MLP {mlp}, {heads} heads) on {gpus} "
        "H100",
        name=problem.name,
        model=shape["name"],
        layers=shape["n_layers"],
        width=shape["d_model"],
        mlp=shape["d_ff"],
        heads=shape["n_heads"],
        gpus=problem.gpus,
    )
    yield t(
        "a step takes {batch} sequences of {tokens:,} tokens; the network is {network}: an "
        "all-reduce reached {inside} GB/s inside a node, {across} over all",
        batch=problem.global_batch,
        tokens=problem.seq_len,
        network=t(problem.network),
        **bus,
    )
    yield t(
        "{n} configurations were run, some ran out of memory; find the fastest in {tries} tries",
        n=n,
        tries=TRIES,
    )
    yield t("data is what remains of the GPUs; nothing is recomputed; sequences are a microbatch's")
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in problem.rows:
        groups.setdefault((row.tensor, row.stage, row.zero), []).append(row.sequences)
    for (tensor, stage, zero), sequences in groups.items():
        yield f"  tensor={tensor:<3} stage={stage:<3} zero={zero}  sequences={_listed(sequences)}"
    command = f"scaling learn sweep {problem.name} --try {problem.rows[0]}"
    yield t("try one: {command}", command=command)


def _told(row: Row) -> dict[str, Any]:
    return {name: getattr(row, name) for name in (*CHOICES, "seconds")}


def _listed(values: Sequence[int]) -> str:
    """Return `1, 2 or 4`, of many only the ends."""
    if len(values) > MOST_LISTED:
        return t("from {first} to {last}", first=values[0], last=values[-1])
    *head, last = map(str, values)
    return t(" or ").join([", ".join(head), last]) if head else last


assert tuple(field.name for field in fields(Row)) == COLUMNS
