"""Predicted against published collectives, by machine, kind and size of group.

    python -m experiments.published.score_collectives

Points that were fitted and points that were not stand apart. For comparison
(`experiments.published.baselines`): `rule` is a rule of thumb, `nccl` the estimate of NCCL's own
model (which is made to choose, not to predict), `spread` the distance of the sources that measured
the same from their own mean. The table of JAX's own collectives, priced as `scaling predict` does,
follows.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

import numpy as np

from experiments.published.baselines import Measured, by_nccl, rule_of_thumb, spreads
from experiments.published.collectives import Case, cases, split
from experiments.published.families import FAMILIES
from experiments.published.fit_links import Series, series_of
from scaling.profiles.io import profile_of
from scaling.profiles.profile import ANY, Profile
from scaling.report.formatting import columns
from scaling.simulate.collective import collective_prices

LEAST, MOST = 2**20, 2**30 * 1.13  # bytes that the goals speak of; 72 ranks divide 1.125 GiB


@dataclass(frozen=True)
class Scored:
    """One series in one part."""

    machine: str
    kind: str
    ranks: int
    part: str
    errors: np.ndarray  # predicted / measured - 1
    rule: np.ndarray  # the same of the rule of thumb
    nccl: np.ndarray | None  # of NCCL's own estimate; None: it has none
    in_range: np.ndarray  # whether the measured time lies in the predicted range
    spread: float | None  # of the sources that measured the same; None: there is one


def scored(
    rows: Sequence[Case], limits: tuple[float, float] = (LEAST, MOST), software: str = ANY
) -> list[Scored]:
    """Every series of the rows, in both parts, with the profile of a software."""
    scores, known = [], spreads(cases())
    for part in ("fit", "left"):
        own = [c for c in rows if c.key in split()[part] and limits[0] <= c.bytes <= limits[1]]
        for series in series_of(own):
            profile = profile_of(series.cluster.accelerator, software)
            errors = series.predicted(profile) / series.time - 1
            rule = rule_of_thumb(series) / series.time - 1
            nccl = by_nccl(series)
            if nccl is not None:
                nccl = nccl / series.time - 1
            ranks, inside = series.groups.shape[1], in_range(series, profile)
            names = (series.machine, series.kind, ranks, part)
            spread = known.get(_measured(series))
            scores.append(Scored(*names, errors, rule, nccl, inside, spread))
    return scores


def _measured(series: Series) -> Measured:
    cluster, ranks = series.cluster, series.groups.shape[1]
    return (cluster.name, series.kind, cluster.nodes, ranks)


def in_range(series: Series, profile: Profile) -> np.ndarray:
    """True where a measured time lies between the low and the high end of its prediction."""
    sizes = series.bytes.astype(int).tolist()
    where = (series.groups, series.cluster, profile, series.algorithm)
    prices = collective_prices(series.kind, sizes, *where)
    low, high = np.array([(a.time_low, a.time_high) for a in prices]).T
    return (low <= series.time) & (series.time <= high)


def row(scores: Sequence[Scored], *names: str) -> tuple[str, ...]:
    """n, mean, median, bias, worst of the errors; means of the rule's and of NCCL's."""
    errors = np.concatenate([s.errors for s in scores])
    rule = np.abs(np.concatenate([s.rule for s in scores]))
    size = np.abs(errors)
    worst = errors[int(np.argmax(size))]
    figures = (size.mean(), np.median(size))
    shown = [f"{f:.1%}" for f in figures] + [f"{errors.mean():+.1%}", f"{worst:+.1%}"]
    return (
        *names,
        str(len(errors)),
        *shown,
        f"{rule.mean():.1%}",
        _of_nccl(scores),
        _spread(scores),
    )


def _of_nccl(scores: Sequence[Scored]) -> str:
    """Mean error of NCCL's model where it ranks all of the points, else "-"."""
    if any(s.nccl is None for s in scores):
        return "-"
    return f"{np.abs(np.concatenate([s.nccl for s in scores if s.nccl is not None])).mean():.1%}"


def _spread(scores: Sequence[Scored]) -> str:
    """Spread of the sources of one line, or "-" for several machines or a single source."""
    spreads_ = {s.spread for s in scores}
    machines = {s.machine for s in scores}
    spread = spreads_.pop() if len(machines) == len(spreads_) == 1 else None
    return "-" if spread is None else f"{spread:.1%}"


def table(scores: Sequence[Scored]) -> list[str]:
    """A line per machine, kind and size of group, and one for all points of each part."""
    head = ("machine", "kind", "ranks", "part", "n", "mean", "median", "bias", "worst")
    rows: list[tuple[str, ...]] = [(*head, "rule", "nccl", "spread")]
    groups: dict[tuple, list[Scored]] = defaultdict(list)
    for s in scores:
        groups[s.machine, s.kind, s.ranks, s.part].append(s)
    for key, group in sorted(groups.items()):
        rows.append(row(group, *map(str, key)))
    for part in ("fit", "left"):
        of_part = [s for s in scores if s.part == part]
        if of_part:
            rows.append(row(of_part, "all", "", "", part))
    return columns(rows, left=(0, 1, 3))


def medians(scores: Sequence[Scored], part: str) -> str:
    """Median over series of their mean errors."""
    each = [float(np.abs(s.errors).mean()) for s in scores if s.part == part]
    rule = [float(np.abs(s.rule).mean()) for s in scores if s.part == part]
    inside = np.concatenate([s.in_range for s in scores if s.part == part]).mean()
    count = f"{part}: median over {len(each)} series {median(each):.1%}"
    return f"{count} (rule of thumb {median(rule):.1%}); {inside:.0%} of the points in their range"


def against_nccl(scores: Sequence[Scored], part: str) -> str:
    """Errors where NCCL ranks: ours, and those of NCCL's model."""
    ranked = [s for s in scores if s.part == part and s.nccl is not None]
    shown = {}
    for name in ("errors", "nccl"):
        errors = [np.abs(getattr(s, name)) for s in ranked]
        series = [error.mean() for error in errors]
        shown[name] = f"{np.median(series):.1%} ({np.concatenate(errors).mean():.1%})"
    points = sum(len(s.errors) for s in ranked)
    return (
        f"{part}, where NCCL ranks, {len(ranked)} series: median (mean over {points} "
        f"points) ours {shown['errors']}, NCCL's model {shown['nccl']}"
    )


def report(rows: Sequence[Case]) -> Iterator[str]:
    """All tables and summaries, line by line."""
    scores = scored(rows)
    yield from table(scores)
    for part in ("fit", "left"):
        yield medians(scores, part)
        yield against_nccl(scores, part)
    own = [case for case in rows if FAMILIES["hopper-jax"].includes(case)]
    yield from ("", "As JAX calls NCCL (--software jax):", "")
    yield from table(scored(own, software="jax"))


def main(arguments: list[str] | None = None) -> None:
    """Print the tables and write them to a README.md where a folder is named."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.score_collectives")
    parser.add_argument("--out", type=Path, help="folder for a README.md with the tables")
    out = parser.parse_args(arguments).out
    lines = list(report(cases()))
    print("\n".join(lines))
    if out is not None:
        from experiments.gpu.machine import git_commit  # imports jax

        out.mkdir(parents=True, exist_ok=True)
        head = HEAD.format(date=date.today().isoformat(), commit=git_commit())
        text = "\n".join([head, "```", *lines, "```", ""])
        (out / "README.md").write_text(text, encoding="utf-8")


HEAD = """\
# Published collectives, predicted

{date}, commit {commit}. Made by `python -m experiments.published.score_collectives --out`.
Errors are predicted / measured - 1 over points of 1 MiB to 1 GiB. `fit`: points that were fitted,
`left`: points that were not. `rule`: mean error of 20 us + bus bytes over 80 % of the link. `nccl`:
mean error of the estimate by which NCCL chooses; "-" where it has none: AMD's GPUs, all-to-all.
`spread`: distance of the sources that measured the same from their own mean; "-" for one source.
"""

if __name__ == "__main__":
    main()
