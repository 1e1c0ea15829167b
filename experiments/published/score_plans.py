"""How good the first choice of a planner is, among configurations that somebody ran.

    python -m experiments.published.score_plans [--write FOLDER]      a minute

A chooser puts the configurations of a problem in order; those that ran out of memory are there.

    first runs   its first choice ran
    regret       measured time of the first in its order that ran, over the best measured, less one
    hit@3        the best measured is among the first three
    tau          Kendall's, of predicted and measured times of all that ran and the model prices

`--write` keeps the tables, and each configuration with its prediction, in a folder.
"""

import argparse
import csv
import gzip
import io
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from scipy.stats import kendalltau

from experiments.published.plan_models import (
    Guess,
    Model,
    calculon,
    left_out,
    shipped,
    size_left,
    unmeasured,
)
from experiments.published.sweeps import NODE, Problem, measured_on, playbook, problems
from scaling.planning.rules import FEWEST, MEGATRON, layout_of
from scaling.report.formatting import columns
from scaling.run import read_run

PLAN, CHANCE = "scaling", "chance"
SHOWN = "scaling, left out"  # in the picture of `experiments.figures`
MODELS: Mapping[str, Model] = {
    PLAN: shipped,
    SHOWN: left_out,
    "scaling, size left out": size_left,
    "scaling, network not measured": unmeasured,
    "Calculon": calculon,
}
WORDS = {"good": ", sound network", "slow": ", sick network", None: "", "": ""}


@dataclass(frozen=True)
class Answer:
    """How one chooser did on one problem; of chance, what is expected."""

    runs: float  # its first choice: 0 or 1
    regret: float
    hit: float
    tau: float | None = None  # of a model


@dataclass(frozen=True)
class Solved:
    """One problem, what models say of it, and how the choosers did."""

    problem: Problem
    guesses: Mapping[str, Sequence[Guess]]  # by the name of a model
    answers: Mapping[str, Answer]

    @property
    def kind(self) -> str:
        """Source and network."""
        return self.problem.source + WORDS[self.problem.fabric]


def solve(models: Mapping[str, Model] = MODELS) -> list[Solved]:
    """All problems, with what the models say of their configurations."""
    every = problems()
    rows = [row for problem in every for row in on_its_network(problem).rows]
    said = {name: iter(model(rows)) for name, model in models.items()}
    each = lambda problem: {name: [next(own) for _ in problem.rows] for name, own in said.items()}
    return [solved(problem, each(problem)) for problem in every]


def solved(problem: Problem, guesses: Mapping[str, Sequence[Guess]]) -> Solved:
    """The problem with the answers of models, of one-line rules after the first, and of chance."""
    answers = {}
    for name, said in guesses.items():
        pairs = zip(said, problem.rows, strict=True)
        ran = [
            (guess.time, row.step_time)
            for guess, row in pairs
            if row.step_time and np.isfinite(guess.time)
        ]
        how = answer(problem, [guess.key for guess in said])
        tau = kendalltau(*zip(*ran, strict=True)).statistic if len(ran) > 1 else None
        answers[name] = replace(how, tau=None if tau is None else float(tau))
    layouts = [layout_of(read_run(row.run, row.id), NODE) for row in problem.rows]
    first = next(iter(guesses.values()))
    for rule in (FEWEST, MEGATRON):
        keys = [(rule.key(x), x.microbatches, -x.zero_stage) for x in layouts]
        for words, lacking in (
            ("predicted to fit", [guess.key[0] for guess in first]),
            ("ran", [row.status != "ok" for row in problem.rows]),
        ):
            name = f"{rule.name}, of what {words}"
            answers[name] = answer(problem, list(zip(lacking, keys, strict=True)))
    lost = mean((row.step_time or 0.0) / problem.best - 1 for row in problem.ran)
    n = len(problem.rows)
    answers[CHANCE] = Answer(len(problem.ran) / n, lost, 3 / n)
    return Solved(problem, guesses, answers)


def answer(problem: Problem, keys: Sequence[Any]) -> Answer:
    """How an order does; the configuration of the least key is its first choice."""
    order = [problem.rows[i] for i in sorted(range(len(keys)), key=keys.__getitem__)]
    first = next(row.step_time for row in order if row.step_time)
    hit = any(row.step_time == problem.best for row in order[:3])
    return Answer(float(order[0].status == "ok"), first / problem.best - 1, float(hit))


def on_its_network(problem: Problem) -> Problem:
    """The problem with what jobs on its network measured, where they did."""
    measured = measured_on(problem.fabric, problem.rows[0].gpus) if problem.fabric else []
    rows = []
    for row in problem.rows:
        cluster = row.run["cluster"] | ({"measured": measured} if measured else {})
        rows.append(replace(row, fabric=problem.fabric, run=row.run | {"cluster": cluster}))
    return replace(problem, rows=tuple(rows))


def summary(every: Sequence[Solved]) -> list[dict[str, Any]]:
    """A row for each kind of problem and chooser."""
    found: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for one in every:
        for chooser, how in one.answers.items():
            found[one.kind, chooser].append(how)
    rows = []
    for (kind, chooser), answers in found.items():
        regrets = [how.regret for how in answers]
        taus = [how.tau for how in answers if how.tau is not None]
        row = {"problems": kind, "n": len(answers), "chooser": chooser}
        row |= {"runs": mean(how.runs for how in answers), "median": median(regrets)}
        row |= {"mean": mean(regrets), "worst": max(regrets)}
        row |= {"hit": mean(how.hit for how in answers)}
        rows.append(row | {"tau": median(taus) if taus else None})
    return rows


def memory_summary(predict: Model = shipped, fitted: str = "") -> list[dict[str, Any]]:
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
        counts = {"model": f"{model}{fitted}", "n": len(pairs), "ran out": out, "said to": told}
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
    lines = [HEAD, "```", *tables(every, memory), "```", ""]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
    document = {"summary": summary(every), "memory": list(memory)}
    (folder / "scores.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    with (folder / "problems.csv").open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["problem", "fabric", "n", "chooser", "runs", "regret", "hit", "tau"])
        for one in every:
            for chooser, how in one.answers.items():
                what = one.problem.name, one.problem.fabric or "", len(one.problem.rows), chooser
                figures = asdict(how).values()
                out.writerow([*what, *("" if x is None else f"{x:.4g}" for x in figures)])
    text = io.StringIO()
    out = csv.writer(text, lineterminator="\n")
    out.writerow(["problem", "fabric", "id", "measured", "model", "predicted", "fits"])
    for one in every:
        for model, guesses in one.guesses.items():
            for row, guess in zip(one.problem.rows, guesses, strict=True):
                measured = "" if row.step_time is None else f"{row.step_time:.5g}"
                tried = one.problem.name, one.problem.fabric or "", row.id, measured
                out.writerow([*tried, model, f"{guess.time:.5g}", int(guess.fits)])
    kept = gzip.compress(text.getvalue().encode(), mtime=0)
    (folder / "configurations.csv.gz").write_bytes(kept)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables; write them where asked."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_plans")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    folder = parser.parse_args(arguments).write
    every, memory = solve(), memory_summary()
    memory += memory_summary(left_out, ", left out") + memory_summary(size_left, ", size left out")
    print("\n".join(tables(every, memory)))
    if folder is not None:
        write(folder, every, memory)


HEAD = """\
# First choices of the planner among configurations that others ran

Made by `python -m experiments.published.score_plans --write`. `problems.csv`: each problem and
chooser; `configurations.csv.gz`: each run with what each model says of it. "left out": the
constants of the run's software, and what it needs of memory, were fitted without its source, or
without its model; "size left out": without runs on 8 to 32 GPUs, or on 64 to 256. "network not
measured": the catalogue's network, not what the jobs measured. `before.json`: commit 90f55c0c,
which had no description of nanotron and priced it as Megatron, with the sick network's all-reduce
bus bandwidth as that of a node; nothing was fitted on the Playbook's runs.
"""

if __name__ == "__main__":
    main()
