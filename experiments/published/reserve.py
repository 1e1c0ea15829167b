"""Bytes that PyTorch's allocator takes over those that a step allocates, by software.

    python -m experiments.published.reserve [--write]                  half a minute

shown   `reserve.csv` has the largest bytes reserved and allocated (or active, where nothing else
        was published) of one rank, in the units of its source. The factor is the median over
        sources of their medians; its error is that of each source by the median of the others.
        Megatron-DeepSpeed's is fitted on what nvidia-smi showed of BigScience's runs (part `fit`),
        over the closed form's peak (`scaling.simulate.capacity`); its errors are those of whole
        devices, beside those of the peak.
needed  what a step takes at least over its closed form, beside what is stored between steps: the
        lognormal with which it is most likely that those of the Playbook's configurations ran that
        did, one for those whose gathers over tensor no pipeline holds up, one for all others.
        Scored on models, and on numbers of GPUs, that it was not fitted on; `--write` keeps these
        fits for `score_plans`.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from statistics import mean, median

import numpy as np
from scipy.optimize import minimize
from scipy.stats import norm

from experiments.published.csv_rows import rows_of
from experiments.published.fit_software import FITS, MANY, SIZES, SWEPT, known_fits, priced
from experiments.published.sweeps import playbook
from experiments.published.training import FOLDER, Part, measured_runs, part_of
from scaling.analytic.program import analytic_program
from scaling.report.formatting import columns
from scaling.run import read_run
from scaling.simulate.capacity import CONTEXT, RISK, Demand, capacity_of, nccl_buffers
from scaling.simulate.memory import memory_use, persistent_bytes
from scaling.simulate.resolve import target

PAIRS = FOLDER / "reserve.csv"
DEEPSPEED = "deepspeed"
MODELS = "llama 3.57B", "llama 8.86B"  # of which some ran and some ran out of memory
LEAST = 0.01  # sigma of a fit that parts them without an error


@dataclass(frozen=True)
class Outcome:
    """A configuration that somebody tried."""

    model: str
    gpus: int
    ran: bool  # else it ran out of memory
    room: float  # bytes beside what is stored, over those that the closed form takes there
    gathers: bool  # over tensor, without a pipeline

    @property
    def size(self) -> str:
        """Which of `SIZES` its devices are."""
        return SIZES[self.gpus >= MANY]


@cache
def outcomes() -> tuple[Outcome, ...]:
    """The Playbook's configurations that say something of memory."""
    found = []
    for row in (row for row in playbook() if row.evidence):
        run = read_run(row.run, row.id)
        place = target(run)
        program = analytic_program(run, place.mesh)
        stored = float(persistent_bytes(program))
        left = float(capacity_of(place.cluster, program, run.software).bytes or 0.0) - stored
        room = max(left, 1.0) / max(float(memory_use(program).peak) - stored, 1.0)
        gathers = row.mesh.get("tensor", 1) > 1 and "stage" not in row.mesh
        found.append(Outcome(row.model, row.gpus, row.status == "ok", room, gathers))
    return tuple(found)


def needed(rows: Iterable[Outcome]) -> tuple[float, float]:
    """Median and sigma of the logarithm of what is needed, most likely with these outcomes."""
    every = list(rows)
    log_room, ran = np.log([row.room for row in every]), np.array([row.ran for row in every])

    def unlikely(x: np.ndarray) -> float:
        spare = (log_room - x[0]) / np.exp(x[1])
        return -float(np.where(ran, norm.logcdf(spare), norm.logsf(spare)).sum())

    found = minimize(unlikely, (0.0, -1.0), method="Nelder-Mead").x
    return float(np.exp(found[0])), float(np.exp(found[1]))


def kinds(rows: Iterable[Outcome]) -> dict[bool, Demand]:
    """The demand of steps, by whether they gather over tensor."""
    every = list(rows)
    return {g: Demand(*needed(r for r in every if r.gathers == g)) for g in (False, True)}


def shipped() -> dict[bool, Demand]:
    """Demands fitted on all rows, with sigmas that also hold the difference between models."""
    rows = outcomes()
    found = kinds(rows)
    ends = [kinds(r for r in rows if r.model != model) for model in MODELS]
    apart = {g: abs(np.log(ends[0][g].median / ends[1][g].median)) for g in found}
    return {g: Demand(d.median, float(np.hypot(d.sigma, apart[g]))) for g, d in found.items()}


def without() -> dict[str, list[list[float]]]:
    """Both kinds without each model and size of it, as they are kept."""
    rows, left = outcomes(), dict[str, list[list[float]]]()
    of_model: Callable[[Outcome], str] = lambda r: r.model
    for key, names in ((of_model, MODELS), (lambda r: r.size, SIZES)):
        for name in names:
            found = kinds(r for r in rows if key(r) != name)
            figures = [[d.median, max(d.sigma, LEAST)] for d in found.values()]
            left[name] = [[float(f"{x:.3g}") for x in each] for each in figures]
    return left


def scores() -> Iterator[list[str]]:
    """Lines of a table: what was left out, both kinds without it, and how well they tell there who
    runs out: precision and recall by probability, and by the risk of a plan; the peak alone."""
    head = ["scored on", "n", "ran out", "needed", "gathering", "precision", "recall"]
    yield [*head, f"at risk {RISK:g}", "recall", "peak alone", "recall"]
    rows = outcomes()
    yield _line("all, fitted on all", rows, rows)
    keys: tuple[Callable[[Outcome], str], ...] = (lambda r: r.model, lambda r: r.size)
    for key in keys:
        for name in dict.fromkeys(map(key, rows)):
            own = [row for row in rows if key(row) == name]
            yield _line(name, own, [row for row in rows if key(row) != name])


def _line(name: str, scored: Iterable[Outcome], others: Iterable[Outcome]) -> list[str]:
    own, demands = list(scored), kinds(others)
    cells = [name, str(len(own)), str(sum(not row.ran for row in own))]
    cells += [f"{d.median:.2f}, {d.sigma:.3f}" for d in demands.values()]
    ways: tuple[Callable[[Outcome], float], ...] = (
        lambda r: float(demands[r.gathers].median),
        lambda r: float(demands[r.gathers].at(RISK)),
        lambda r: 1.0,
    )
    for least in ways:
        told = [row for row in own if row.room < least(row)]
        right = sum(not row.ran for row in told)
        for n in (len(told), sum(not row.ran for row in own)):
            cells.append(f"{right / n:.3f}" if n else "-")
    return cells


def ratios() -> dict[str, dict[str, float]]:
    """Reserved over allocated bytes by software and source, medians of its ranks."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows_of(PAIRS):
        ratio = float(row["reserved"]) / float(row["allocated"])
        found[row["software"]][row["source"]].append(ratio)
    return {
        name: {source: median(values) for source, values in sources.items()}
        for name, sources in found.items()
    }


def deepspeed() -> tuple[float, dict[Part, list[float]], dict[Part, list[float]]]:
    """The fitted factor, errors of bytes in use by part, and those of the peak alone."""
    shares: dict[Part, list[tuple[float, float, float]]] = defaultdict(list)
    for row in (row for row in measured_runs() if row.memory_kind == "nvidia-smi"):
        # Bytes that nvidia-smi showed, those outside the allocator, and the predicted peak.
        step = priced(row)
        apart = CONTEXT + float(nccl_buffers(step.program, DEEPSPEED))
        shares[part_of(row)].append((row.memory or 0.0, apart, float(step.memory.peak)))
    factor = median((shown - apart) / peak for shown, apart, peak in shares["fit"])
    errors = {
        part: [(factor * peak + apart) / shown - 1 for shown, apart, peak in rows]
        for part, rows in shares.items()
    }
    return (
        factor,
        errors,
        {part: [peak / shown - 1 for shown, _, peak in rows] for part, rows in shares.items()},
    )


def report() -> Iterator[str]:
    """Lines: each factor, of how many sources, and its errors."""
    for name, by_source in ratios().items():
        values = list(by_source.values())
        others = [median(v for s, v in by_source.items() if s != source) for source in by_source]
        out = [guess / value - 1 for guess, value in zip(others, values, strict=True)]
        yield f"{name}: {median(values):.3f}, {len(values)} sources; left out in turn {_said(out)}"
    factor, errors, before = deepspeed()
    yield f"{DEEPSPEED}: {factor:.3f}, fitted on {len(errors['fit'])} runs of one source"
    for part, rows in errors.items():
        yield f"  {part}, {len(rows)} runs: {_said(rows)}; the peak alone {_said(before[part])}"
    said = "; ".join(f"{d.median:.3f}, {d.sigma:.3f}" for d in shipped().values())
    yield f"{SWEPT} needs, median and sigma: {said} where it gathers"
    yield from ("", *columns(list(scores()), left=(0,)))


def _said(errors: Iterable[float]) -> str:
    """Median, mean and worst size, and the bias."""
    every = list(errors)
    sizes = [abs(error) for error in every]
    return (
        f"median {median(sizes):.1%}, mean {mean(sizes):.1%}, bias {median(every):+.1%}, "
        f"worst {max(every, key=abs):+.0%}"
    )


def main(arguments: list[str]) -> None:
    """Print the report, or keep what was fitted without each model and size."""
    if arguments == ["--write"]:
        fits = known_fits()
        fits[SWEPT]["memory"] = without()
        FITS.write_text(json.dumps(fits, indent=1) + "\n", encoding="utf-8")
        return
    print(*report(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
