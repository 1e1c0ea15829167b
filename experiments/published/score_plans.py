"""How good the first choice of a planner is, among configurations that somebody ran.

    python -m experiments.published.score_plans [--write FOLDER]      a minute

A chooser puts the configurations of a problem in order; those that ran out of memory are there.

    first runs   its first choice ran
    regret       measured time of the first in its order that ran, over the best measured, less one
    hit@3        the best measured is among the first three
    tau          Kendall's, of predicted and measured times of all that ran

`--write` keeps the tables, and each configuration with its prediction, in a folder.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from experiments.published.sweeps import NODE, Problem, Tried, buses_of, playbook, problems
from scaling.api.predict import predict_each
from scaling.planning.rules import FEWEST, MEGATRON, layout_of
from scaling.report.formatting import columns
from scaling.run import read_run

PLAN, CHANCE = "scaling", "chance"
WORDS = {"good": ", sound network", "slow": ", sick network", None: ""}


@dataclass(frozen=True)
class Guess:
    """What a model says of one configuration."""

    time: float  # s; infinite where it refuses the run
    fits: bool
    memory: float = 0.0  # bytes in use


Predictor = Callable[[Sequence[Tried]], Sequence[Guess]]


def shipped(rows: Sequence[Tried]) -> list[Guess]:
    """What `sc.predict` says by its closed form of each run."""
    return [_guess(p) for p in predict_each([row.run for row in rows], source="analytic")]


def _guess(p: Any) -> Guess:
    if isinstance(p, Exception):
        return Guess(np.inf, fits=True)
    used = float(p.memory.in_use or p.memory.peak)
    return Guess(float(p.step_time), p.memory.fits is not False, used)


@dataclass(frozen=True)
class Answer:
    """How one chooser did on one problem; of chance, what is expected."""

    runs: float  # its first choice: 0 or 1
    regret: float
    hit: float


@dataclass(frozen=True)
class Solved:
    """One problem, what a model says of it, and how the choosers did."""

    problem: Problem
    guesses: tuple[Guess, ...]
    tau: float
    answers: Mapping[str, Answer]

    @property
    def kind(self) -> str:
        """Source and network."""
        return self.problem.source + WORDS[self.problem.fabric]


def solve(predict: Predictor = shipped) -> list[Solved]:
    """All problems, with what the predictor says of their configurations."""
    every = problems()
    rows = [row for problem in every for row in on_its_network(problem).rows]
    guesses = iter(predict(rows))
    return [solved(problem, [next(guesses) for _ in problem.rows]) for problem in every]


def solved(problem: Problem, guesses: Sequence[Guess]) -> Solved:
    """The problem with the answers of the model, of one-line rules and of chance."""
    pairs = list(zip(problem.rows, guesses, strict=True))
    answers = {PLAN: answer(problem, [(not guess.fits, guess.time) for guess in guesses])}
    layouts = [layout_of(read_run(row.run, row.id), NODE) for row in problem.rows]
    for rule in (FEWEST, MEGATRON):
        keys = [(rule.key(x), x.microbatches, -x.zero_stage) for x in layouts]
        for words, lacking in (
            ("predicted to fit", [not guess.fits for guess in guesses]),
            ("ran", [row.status != "ok" for row in problem.rows]),
        ):
            name = f"{rule.name}, of what {words}"
            answers[name] = answer(problem, list(zip(lacking, keys, strict=True)))
    ran = [(guess.time, row.step_time) for row, guess in pairs if row.step_time]
    lost = mean(time / problem.best - 1 for _, time in ran)
    answers[CHANCE] = Answer(len(ran) / len(pairs), lost, 3 / len(pairs))
    tau = kendalltau(*zip(*ran, strict=True)).statistic
    return Solved(problem, tuple(guesses), float(tau), answers)


def answer(problem: Problem, keys: Sequence[Any]) -> Answer:
    """How an order does; the configuration of the least key is its first choice."""
    order = [problem.rows[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]
    first = next(row.step_time for row in order if row.step_time)
    hit = any(row.step_time == problem.best for row in order[:3])
    return Answer(float(order[0].status == "ok"), first / problem.best - 1, float(hit))


def on_its_network(problem: Problem) -> Problem:
    """The problem with what its jobs measured between nodes, where the network was sick."""
    if problem.fabric != "slow":
        return problem
    speed = {(bus.collective, bus.ranks): bus.bandwidth for bus in buses_of(problem.ran)}
    given = {"node_network_bandwidth": speed["all-reduce", problem.rows[0].gpus]}
    on = lambda run: run | {"cluster": run["cluster"] | {"overrides": given}}
    return replace(problem, rows=tuple(replace(row, run=on(row.run)) for row in problem.rows))


def summary(every: Sequence[Solved]) -> list[dict[str, Any]]:
    """A row for each kind of problem and chooser."""
    found = defaultdict(list)
    for one in every:
        for chooser, how in one.answers.items():
            found[one.kind, chooser].append((how, one.tau))
    rows = []
    for (kind, chooser), pairs in found.items():
        regrets = [how.regret for how, _ in pairs]
        row = {"problems": kind, "n": len(pairs), "chooser": chooser}
        row |= {"runs": mean(how.runs for how, _ in pairs), "median": median(regrets)}
        row |= {"mean": mean(regrets), "worst": max(regrets)}
        row |= {"hit": mean(how.hit for how, _ in pairs)}
        rows.append(row | {"tau": median(tau for _, tau in pairs) if chooser == PLAN else None})
    return rows


def memory_summary(predict: Predictor = shipped) -> list[dict[str, Any]]:
    """A row for each model: how well "does not fit" is told, of all that counts as evidence."""
    rows = [row for row in playbook() if row.evidence]
    said: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for row, guess in zip(rows, predict(rows), strict=True):
        if np.isfinite(guess.time):
            for model in (row.model, "all"):
                said[model].append((row.status == "oom", not guess.fits))
    table = []
    for model, pairs in sorted(said.items()):
        both = sum(out and told for out, told in pairs)
        out, told = (sum(column) for column in zip(*pairs, strict=True))
        shares = both / told if told else None, both / out if out else None
        counts = {"model": model, "n": len(pairs), "ran out": out, "said to": told}
        table.append(counts | dict(zip(("precision", "recall"), shares, strict=True)))
    return table


def tables(every: Sequence[Solved], memory: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Both summaries as lines."""
    percent = lambda x: "-" if x is None else f"{x:.1%}"
    head = ["problems", "n", "chooser", "first runs", "regret median", "mean", "worst", "hit@3"]
    lines = [[*head, "tau"]]
    for row in summary(every):
        shares = (percent(row[name]) for name in ("runs", "median", "mean", "worst", "hit"))
        tau = "-" if row["tau"] is None else f"{row['tau']:.2f}"
        lines.append([row["problems"], str(row["n"]), row["chooser"], *shares, tau])
    yield from columns(lines, left=(0, 2))
    yield ""
    cells = [
        [str(v) if isinstance(v, int | str) else percent(v) for v in r.values()] for r in memory
    ]
    yield from columns([list(memory[0]), *cells], left=(0,))


def write(folder: Path, every: Sequence[Solved], memory: Sequence[Mapping[str, Any]]) -> None:
    """Keep the summaries, and the configurations of sweeps with their ranks, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"summary": summary(every), "memory": list(memory)}
    (folder / "scores.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    with (folder / "problems.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["problem", "fabric", "n", "tau", "chooser", "runs", "regret", "hit"])
        for one in every:
            what = one.problem.name, one.problem.fabric or "", len(one.guesses), f"{one.tau:.3f}"
            for chooser, how in one.answers.items():
                out.writerow([*what, chooser, *(f"{x:.4g}" for x in asdict(how).values())])
    with (folder / "configurations.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["problem", "fabric", "id", "measured", "predicted", "fits", "memory"])
        for one in every:
            for row, guess in zip(one.problem.rows, one.guesses, strict=True):
                measured = "" if row.step_time is None else f"{row.step_time:.5g}"
                said = f"{guess.time:.5g}", int(guess.fits), f"{guess.memory:.4g}"
                out.writerow([one.problem.name, one.problem.fabric or "", row.id, measured, *said])


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; write them where asked."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_plans")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    folder = parser.parse_args(arguments).write
    every, memory = solve(), memory_summary()
    print("\n".join(tables(every, memory)))
    if folder is not None:
        write(folder, every, memory)


if __name__ == "__main__":
    main()
