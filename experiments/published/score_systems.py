"""Predicted against published collectives of systems that were left out of the fit.

    python -m experiments.published.score_systems [--out FOLDER]

Every system is priced with figures that were fitted without any of its rows (`left_out`), and with
ranges that its errors did not widen (`ranges`). An error is |predicted / measured - 1|; systems
count alike: medians and shares are of a system's points, then over systems. `rule` is a rule of
thumb, `nccl` the estimate by which NCCL chooses, where it ranks (`baselines`). Messages below
64 KiB, which are latency alone, stand apart.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path

import numpy as np

from experiments.published.baselines import by_nccl, rule_of_thumb
from experiments.published.collectives import SYSTEMS_SPLIT, part_of, system_cases
from experiments.published.left_out import everything, known_figures, system_of
from experiments.published.ranges import left_out_points, link_document
from experiments.published.series import Series, series_of
from experiments.published.split import part_of_key, split
from scaling.collectives.cost import collective_time
from scaling.profiles.grades import half_range
from scaling.profiles.io import LinkFile, ideal, links_of
from scaling.report.formatting import columns

SMALL = 64 * 1024  # bytes; the goals begin there
MANY_HOSTS = 16


@dataclass(frozen=True, eq=False)
class Scored:
    """One series: predicted / measured - 1, the same of both baselines, and if in range."""

    series: Series
    error: np.ndarray
    rule: np.ndarray
    nccl: np.ndarray  # [0]: NCCL does not rank it
    inside: np.ndarray

    @property
    def hosts(self) -> int:
        """Hosts of one group, those of one NVLink domain too."""
        return -(-self.series.ranks // self.series.cluster.devices_per_node)

    def part(self, small: bool) -> "Scored":
        """The points below 64 KiB, or the others."""
        own = (self.series.bytes < SMALL) == small
        nccl = self.nccl[own] if len(self.nccl) else self.nccl
        shown = (self.error[own], self.rule[own], nccl, self.inside[own])
        return Scored(self.series, *shown)


def scored(series: Series, file: LinkFile) -> Scored:
    """A series priced with these link fits, size by size."""
    accelerator = series.cluster.accelerator
    profile = replace(ideal(), links=links_of(accelerator, file))
    times, halves = [], []
    for size in series.bytes.tolist():
        where = (series.groups, series.cluster, profile, series.algorithm)
        cost = collective_time(series.kind, size, *where)
        assert cost.evidence is not None
        grade = "extrapolated" if cost.extrapolated else cost.evidence.grade
        times.append(float(cost.time))
        halves.append(half_range(cost.evidence, grade))
    time, factor = np.array(times), 1 + np.array(halves)
    inside = (time / factor <= series.time) & (series.time <= time * factor)
    estimate = by_nccl(series)
    nccl = np.array([]) if estimate is None else estimate / series.time - 1
    rule = rule_of_thumb(series) / series.time - 1
    return Scored(series, time / series.time - 1, rule, nccl, inside)


@lru_cache(maxsize=1)
def left_out() -> tuple[Scored, ...]:
    """Every series, with its system left out of the figures and of the ranges."""
    every: dict[str, list[Series]] = defaultdict(list)
    for series in series_of(everything()):
        every[system_of(series.machine)].append(series)
    found: list[Scored] = []
    for system, own in every.items():
        others = [one for one in left_out_points() if one.system != system]
        file = link_document(known_figures()["without"][system], others)
        found += [scored(series, file) for series in own]
    return tuple(found)


def held_out() -> list[Scored]:
    """The series that both splits keep back, with figures fitted on the development parts.

    Ranges are of the other systems, each left out in turn.
    """
    further = {case.key for case in system_cases()}
    rows = [
        case
        for case in everything()
        if (part_of_key(case.machine) if case.key in further else part_of(case)) == "left"
    ]
    whole = {system_of(name) for name in split(SYSTEMS_SPLIT)["left"]}
    others = [one for one in left_out_points() if one.system not in whole]
    file = link_document(known_figures()["development"], others)
    return [scored(series, file) for series in series_of(rows)]


def by_system(scores: Sequence[Scored]) -> dict[str, list[Scored]]:
    """The scores of each system that has points."""
    found: dict[str, list[Scored]] = defaultdict(list)
    for one in scores:
        if len(one.error):
            found[system_of(one.series.machine)].append(one)
    return found


def summary(name: str, scores: Sequence[Scored]) -> tuple[str, ...]:
    """n, systems, median, mean, worst system, share in range, and medians of both baselines."""
    errors, rules, inside, nccl = [], [], [], []
    for own in by_system(scores).values():
        errors.append(np.abs(np.concatenate([one.error for one in own])))
        rules.append(np.abs(np.concatenate([one.rule for one in own])))
        inside.append(np.concatenate([one.inside for one in own]).mean())
        estimates = np.abs(np.concatenate([one.nccl for one in own]))
        nccl += [float(np.median(estimates))] if len(estimates) else []
    if not errors:
        return (name, "0", "0", *("-",) * 6)
    medians = [float(np.median(error)) for error in errors]
    figures = (np.median(medians), np.mean([error.mean() for error in errors]), max(medians))
    return (
        name,
        str(sum(map(len, errors))),
        str(len(errors)),
        *(f"{figure:.1%}" for figure in figures),
        f"{np.mean(inside):.0%}",
        f"{np.median([np.median(rule) for rule in rules]):.1%}",
        f"{np.median(nccl):.1%}" if nccl else "-",
    )


HEAD = (
    "systems left out",
    "points",
    "systems",
    "median",
    "mean",
    "worst",
    "in range",
    "rule",
    "nccl",
)
Test = Callable[[Scored], bool]
PLACES: tuple[tuple[str, Test], ...] = (
    ("inside a node or NVLink domain", lambda s: s.series.nodes == 1 and not _pcie(s)),
    ("inside a node, over PCIe", lambda s: s.series.nodes == 1 and _pcie(s)),
    ("between nodes", lambda s: s.series.nodes > 1),
    (f"{MANY_HOSTS} hosts and more", lambda s: s.hosts >= MANY_HOSTS),
    *(
        (f"{kind}, {where}", lambda s, kind=kind, far=far: s.series.kind == kind and far(s))
        for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute")
        for where, far in (
            ("inside", lambda s: s.series.nodes == 1 and not _pcie(s)),
            ("between", lambda s: s.series.nodes > 1),
        )
    ),
)


def _pcie(score: Scored) -> bool:
    return not any(link.kind in ("nvlink", "xgmi") for link in score.series.cluster.links)


def table() -> list[str]:
    """Scores of the collectives by place and kind, a line each."""
    every = [one.part(small=False) for one in left_out()]
    small = [one.part(small=True) for one in left_out()]
    rows = [summary("all", every)]
    rows += [summary(name, [s for s in every if test(s)]) for name, test in PLACES]
    rows += [
        summary(f"below 64 KiB, {name}", [s for s in small if test(s)]) for name, test in PLACES[:3]
    ]
    kept = [one.part(small=False) for one in held_out()]
    rows += [
        summary(f"kept back by the splits, {name}", [s for s in kept if test(s)])
        for name, test in PLACES[:3]
    ]
    return columns([HEAD, *(row for row in rows if row[1] != "0")])


def systems() -> list[str]:
    """A line per system, and its collectives."""
    rows: list[tuple[str, ...]] = [("system", "points", "median", "bias", "in range", "rule")]
    for name, own in sorted(by_system([one.part(small=False) for one in left_out()]).items()):
        error = np.concatenate([one.error for one in own])
        rule = np.abs(np.concatenate([one.rule for one in own]))
        inside = np.concatenate([one.inside for one in own])
        shown = (f"{np.median(np.abs(error)):.1%}", f"{np.median(error):+.1%}")
        rows.append(
            (name, str(len(error)), *shown, f"{inside.mean():.0%}", f"{np.median(rule):.1%}")
        )
    return columns(rows)


def report() -> Iterator[str]:
    """The table, then the systems."""
    yield from table()
    yield ""
    yield from systems()


def main(arguments: list[str] | None = None) -> None:
    """Print the tables and write them to a README.md where a folder is named."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_systems")
    parser.add_argument("--out", type=Path, help="folder for a README.md with the tables")
    out = parser.parse_args(arguments).out
    lines = list(report())
    print("\n".join(lines))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        head = TITLE.format(date=date.today().isoformat())
        (out / "README.md").write_text("\n".join([head, "```", *lines, "```", ""]), "utf-8")


TITLE = """\
# Published collectives, each system left out of the fit

{date}. Made by `python -m experiments.published.score_systems --out`. An error is
|predicted / measured - 1| of points of 64 KiB and more; a system was priced with figures fitted
without any of its rows. Medians and shares are of a system's points, then over systems; `worst` is
the median of the worst system, `bias` the median of predicted / measured - 1. `rule`: 20 us + bus
bytes over 80 % of the link; `nccl`: the estimate by which NCCL chooses, where it ranks. `kept back
by the splits`: figures fitted on the development parts only.
"""

if __name__ == "__main__":
    main()
