"""Public training recipes, priced as they are written, and beside the best plan of their devices.

    python -m experiments.published.audit [--write]      5 minutes on two cores

recipes.jsonl has a line for each: repository, path and commit, what had to be assumed, and the
configuration as run.json. Nothing was run for this: a recipe and its best plan are two predictions
of one model of costs. Where the same configuration was measured by its authors, that stands beside.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import scaling as sc
from scaling.meshes.units import format_time
from scaling.planning.search import words_of
from scaling.run import Run, read_run

HERE = Path(__file__).parent
LONGEST = 60.0  # s of a search; the largest take 40 on an idle core
PAGE = Path("docs/audit.md")
TABLED = Path("experiments/results/2026-11-29-audit/README.md")
NOTICED = 0.2  # share of a step from which on a better plan is listed
BENCHMARKS = "Megatron-Bridge"  # whose recipes are those of its table of performance
GB = 1e9
HEAD = """# Audit of public recipes

For users of NeMo, Megatron-Bridge, Megatron-LM, nanotron, torchtitan and MaxText: {recipes} of
their configurations (`experiments/published/recipes.jsonl`: repository, path, commit, what had to
be assumed), priced by the closed form of their software and planned again on the same devices:
another mesh, microbatches, remat and ZeRO stage (which the software may do less well); on H100
where a recipe states no GPU. **Nothing was run here**: both are predictions of one model, which
knows no reason for a choice but time and memory. `python -m experiments.published.audit --write`
writes this page, and [the table](../experiments/results/2026-11-29-audit/README.md) of all.

{error}
"""
COLUMNS = (
    *("recipe", "devices", "as written: mesh, microbatches, remat, ZeRO stage"),
    *("memory needed, fits", "step", "MFU", "best plan", "step", "saved"),
)
TABLE = (f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|")


@dataclass(frozen=True)
class Audited:
    """One recipe as priced, and its best plan."""

    recipe: dict[str, Any]
    run: Run
    prediction: sc.Prediction
    best: Any  # Plan, or None where nothing fits
    error: str | None  # why nothing fits
    measured: float | None  # s, by its authors

    @property
    def name(self) -> str:
        path, _, function = self.recipe["reference"].partition(", ")
        file = path.split(" @ ")[0].rpartition("/")[2]
        config = function.removeprefix("models/")
        return (
            f"{self.recipe['source']} `{config if '_' in config and '.' not in config else file}`"
        )

    @property
    def lack(self) -> float:
        """Bytes that each device has too few, more likely than not; below 0 they are free."""
        memory = self.prediction.memory
        needed = memory.peak if memory.needed is None else memory.needed
        return float(needed) - (memory.capacity or float("inf"))

    @property
    def saved(self) -> float | None:
        """Share of the step that the best plan saves; None where one of them does not fit."""
        if self.best is None or self.lack > 0:
            return None
        return 1 - self.best.step_time / float(self.prediction.step_time)


def recipes() -> list[dict[str, Any]]:
    """The recipes, as they are stored."""
    return [json.loads(line) for line in (HERE / "recipes.jsonl").read_text().splitlines()]


def key(run: Run) -> tuple[Any, ...]:
    """Equal for runs of one configuration: model, batch, mesh, format and cluster."""
    model, place = run.model, run.cluster
    shape = (model.d_model, model.n_layers, model.vocab_size, run.batch, run.mesh)
    return (*shape, run.precision.compute, place and (place.name, place.nodes))


@cache
def measured_times() -> dict[tuple[Any, ...], list[float]]:
    """Configuration -> s of a step, of NVIDIA's own tables among the published runs."""
    times: dict[tuple[Any, ...], list[float]] = {}
    for line in (HERE / "training_runs.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "NVIDIA" in row["source"] or "Megatron-Bridge" in row["source"]:
            times.setdefault(key(read_run(row["run"])), []).append(row["step_time"])
    return times


def audited(recipe: dict[str, Any]) -> Audited:
    """Price a recipe, and plan it."""
    run = read_run(recipe["run"])
    free = {k: v for k, v in recipe["run"].items() if k != "mesh"}
    found = sc.plan(free, top=1, seconds=LONGEST)
    times = measured_times().get(key(run))
    prediction = sc.predict(run, source="analytic")
    return Audited(
        recipe, run, prediction, found.best, found.error, median(times) if times else None
    )


def row(a: Audited) -> str:
    """A line of the table."""
    p = a.prediction
    measured = "" if a.measured is None else f", measured {format_time(a.measured)}"
    capacity = p.memory.capacity or 0.0
    memory = f"{(a.lack + capacity) / GB:.0f} of {capacity / GB:.0f} GB"
    memory += f", {float(p.memory.fit_probability or 0.0):.0%}"
    best = "nothing fits" if a.best is None else words(a.best.run)
    cells = (
        a.name,
        f"{p.devices:,} {a.prediction.cluster.accelerator.name}",
        words(a.run),
        f"**{memory}**" if a.lack > 0 else memory,
        format_time(p.step_time) + measured,
        "-" if p.mfu is None else f"{p.mfu:.0%}",
        best,
        "-" if a.best is None else format_time(a.best.step_time),
        "-" if a.saved is None else f"{max(a.saved, 0):.0%}",
    )
    return f"| {' | '.join(cells)} |"


def words(run: Run) -> str:
    """Mesh, microbatches, remat and, where it has one, ZeRO stage: `fsdp=8, 2, none, 1`."""
    text = words_of(run).removeprefix("mesh ")
    return re.sub("(batch.microbatches|remat|sharding.zero_stage)=", "", text)


def errors(rows: Sequence[Audited]) -> str:
    """Return sentences on the errors of the model for configurations that their authors ran."""
    ran = [a for a in rows if a.measured is not None]
    if not ran:
        return "none of them has a published time."
    off = [float(a.prediction.step_time) / (a.measured or 1.0) - 1 for a in ran]
    alarms = [a for a in ran if a.lack > 0]
    inside = sum(
        a.prediction.step_time_low <= (a.measured or 0) <= a.prediction.step_time_high for a in ran
    )
    theirs = [a for a in rows if a.recipe["source"] == BENCHMARKS]
    refused = sum(a.lack > 0 for a in theirs)
    return (
        f"{len(ran)} have a time that their authors measured: predicted over measured, less one,\n"
        f"median {median(off):+.0%}, from {min(off):+.0%} to {max(off):+.0%}; {inside} of "
        f"{len(ran)} in the range, {len(alarms)} said not to fit. The {len(theirs)} of\n"
        f"{BENCHMARKS} are its authors' benchmarks and presumably ran, and of {refused} the model "
        'says that they do not\nfit: **"does not fit" is a doubt, not a proof**, and so is what a '
        "plan saves below its range."
    )


def notes(a: Audited) -> str:
    """What had to be assumed, but for the GPU, which the page says once."""
    told = [n for n in a.recipe["notes"].split("; ") if n != "GPU not stated, H100 assumed"]
    return f" ({'; '.join(told)})" if told else ""


def findings(rows: Sequence[Audited]) -> Iterator[str]:
    """The two lists: what does not fit, and what leaves time on the table."""
    tight = sorted((a for a in rows if a.lack > 0), key=lambda a: -a.lack)
    yield f"\n## Does not fit by the model: {len(tight)} of {len(rows)}\n"
    for a in tight:
        ran = "; **it was run by its authors**" if a.measured else ""
        why = f"; {a.error}" if a.error else ""
        yield f"- {a.name}: lacks {a.lack / GB:.1f} GB a device{why}{ran}{notes(a)}"
    slow = sorted((a for a in rows if (a.saved or 0) > NOTICED), key=lambda a: -(a.saved or 0))
    fit = len(rows) - len(tight)
    yield f"\n## Leaves more than {NOTICED:.0%} on the table: {len(slow)} of {fit} that fit\n"
    for a in slow:
        yield (
            f"- {a.name}: {format_time(a.prediction.step_time)}, the best plan "
            f"{format_time(a.best.step_time)}, {a.saved:.0%} less{notes(a)}"
        )
    rest = [a.saved for a in rows if a.saved is not None]
    if rest:
        middle = max(median(rest), 0)
        yield f"\nOver all {len(rest)} that fit, the best plan saves {middle:.0%} in the median."


def page(rows: Sequence[Audited]) -> str:
    """The page: what does not fit, and what is slow."""
    head = HEAD.format(recipes=len(rows), error=errors(rows))
    return "\n".join([head.rstrip(), *findings(rows)]) + "\n"


def table(rows: Sequence[Audited]) -> str:
    """All recipes."""
    head = ("# Audit of public recipes: all of them", "", "What it says: docs/audit.md.", "")
    return "\n".join([*head, *TABLE, *map(row, rows)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="the page, and the table")
    write = parser.parse_args().write
    rows = []
    with ProcessPoolExecutor() as pool:
        for found in pool.map(audited, recipes()):
            rows.append(found)
            print(row(found), flush=True)
    if write:
        PAGE.write_text(page(rows))
        TABLED.write_text(table(rows))
    else:
        print(page(rows))


if __name__ == "__main__":
    main()
