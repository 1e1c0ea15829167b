"""Predicted against published collectives, by machine, kind and size of group.

    python -m experiments.published.score_collectives

Points that were fitted and points that were not stand apart. `spread` is how far the sources that
measured the same thing (cluster, kind, ranks, nodes, bytes) are from their own mean. For
comparison: `rule` is the rule of thumb 20 us + bus bytes / 80 % of the link, `nccl` the estimate of
NCCL's own tuning model where it ranks such a collective (of the version that the source states,
else the newest; it was made to choose, not to predict).
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, median

import numpy as np

from experiments.published.collectives import Case, cases, split
from experiments.published.fit_links import Series, series_of
from scaling.ask import ask
from scaling.cost.collectives import collective_time
from scaling.cost.nccl.choice import ranking
from scaling.cost.profile import Profile
from scaling.cost.profile_file import ideal, profile_of
from scaling.report.columns import columns

LEAST, MOST = 2**20, 2**30 * 1.13  # bytes that the goals speak of; 72 ranks divide 1.125 GiB
RULE_CALL, RULE_EFFICIENCY = 20e-6, 0.8  # of the rule of thumb
SAME = 1e-9  # errors that differ by less are the same


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
    chosen: np.ndarray  # of our figures for what NCCL's estimate chooses
    held: np.ndarray  # whether the measured time lies in the predicted range


def scored(all_: Sequence[Case], limits: tuple[float, float] = (LEAST, MOST)) -> list[Scored]:
    """Every series of the table whose cluster is known, in both parts."""
    found = []
    for part in ("fit", "left"):
        some = [c for c in all_ if c.key in split()[part] and limits[0] <= c.bytes <= limits[1]]
        for series in series_of(some):
            profile = profile_of(series.cluster.accelerator)
            errors = series.predicted(profile) / series.time - 1
            rule = rule_of_thumb(series) / series.time - 1
            nccl, chosen = by_nccl(series), errors
            if nccl is not None:
                nccl = nccl / series.time - 1
                chosen = series.predicted(profile, "nccl") / series.time - 1
            ranks, held = series.groups.shape[1], in_range(series, profile)
            names = (series.machine, series.kind, ranks, part)
            found.append(Scored(*names, errors, rule, nccl, chosen, held))
    return found


def by_nccl(series: Series) -> np.ndarray | None:
    """Least of NCCL's own estimates; None where it does not rank such a collective."""
    where = (series.groups, series.cluster, series.nccl, series.algorithm)
    found = ranking(series.kind, series.bytes, *where)  # type: ignore[arg-type]
    return None if found is None else found.seconds.min(axis=0)


def in_range(series: Series, profile: Profile) -> np.ndarray:
    """Whether each measured time lies between the low and the high of its answer."""
    sizes, kind = series.bytes.astype(int).tolist(), series.kind
    answers = ask(kind, sizes, series.groups, series.cluster, profile, series.algorithm)  # type: ignore[arg-type]
    low, high = np.array([(a.time_low, a.time_high) for a in answers]).T
    return (low <= series.time) & (series.time <= high)


def rule_of_thumb(series: Series) -> np.ndarray:
    """20 us and the bytes over 80 % of the narrowest link."""
    profile: Profile = ideal()
    cost = collective_time(series.kind, series.bytes, series.groups, series.cluster, profile)  # type: ignore[arg-type]
    return RULE_CALL + np.asarray(cost.time) / RULE_EFFICIENCY


def spreads(all_: Iterable[Case]) -> dict[tuple, float]:
    """(cluster, kind, nodes, ranks) -> mean distance of its sources from their own mean."""
    same: dict[tuple, list[float]] = defaultdict(list)
    for c in all_:
        same[c.cluster, c.kind, c.nodes, c.ranks, c.groups, c.algorithm, c.bytes].append(c.time)
    found: dict[tuple, list[float]] = defaultdict(list)
    for key, times in same.items():
        if len(times) > 1:
            found[key[:4]] += [abs(t / mean(times) - 1) for t in times]
    return {key: mean(distances) for key, distances in found.items()}


def row(scores: Sequence[Scored], *names: str) -> tuple[str, ...]:
    """n, mean, median, bias, worst of the errors; means of the rule's and of NCCL's."""
    errors = np.concatenate([s.errors for s in scores])
    rule = np.abs(np.concatenate([s.rule for s in scores]))
    size = np.abs(errors)
    worst = errors[int(np.argmax(size))]
    figures = (size.mean(), np.median(size))
    shown = [f"{f:.1%}" for f in figures] + [f"{errors.mean():+.1%}", f"{worst:+.1%}"]
    return (*names, str(len(errors)), *shown, f"{rule.mean():.1%}", _of_nccl(scores))


def _of_nccl(scores: Sequence[Scored]) -> str:
    """Mean error of NCCL's model where it ranks all of the points, else "-"."""
    if any(s.nccl is None for s in scores):
        return "-"
    return f"{np.abs(np.concatenate([s.nccl for s in scores if s.nccl is not None])).mean():.1%}"


def table(scores: Sequence[Scored]) -> list[str]:
    """A line per machine, kind and size of group, and one for all points of each part."""
    head = ("machine", "kind", "ranks", "part", "n", "mean", "median", "bias", "worst")
    rows: list[tuple[str, ...]] = [(*head, "rule", "nccl")]
    groups: dict[tuple, list[Scored]] = defaultdict(list)
    for s in scores:
        groups[s.machine, s.kind, s.ranks, s.part].append(s)
    for key, some in sorted(groups.items()):
        rows.append(row(some, *map(str, key)))
    for part in ("fit", "left"):
        some = [s for s in scores if s.part == part]
        if some:
            rows.append(row(some, "all", "", "", part))
    return columns(rows, left=(0, 1, 3))


def medians(scores: Sequence[Scored], part: str) -> str:
    """Median over series of their mean errors."""
    each = [float(np.abs(s.errors).mean()) for s in scores if s.part == part]
    rule = [float(np.abs(s.rule).mean()) for s in scores if s.part == part]
    held = np.concatenate([s.held for s in scores if s.part == part]).mean()
    count = f"{part}: median over {len(each)} series {median(each):.1%}"
    return f"{count} (rule of thumb {median(rule):.1%}); {held:.0%} of the points in their range"


def against_nccl(scores: Sequence[Scored], part: str) -> str:
    """Where NCCL ranks: errors of ours, of NCCL's model, and of ours for what NCCL chooses."""
    some = [s for s in scores if s.part == part and s.nccl is not None]
    names = ("errors", "nccl", "chosen")
    mean_of = {n: np.array([np.abs(getattr(s, n)).mean() for s in some]) for n in names}
    points = {n: np.abs(np.concatenate([getattr(s, n) for s in some])) for n in names}
    ours, model, chosen = (f"{np.median(mean_of[n]):.1%} ({points[n].mean():.1%})" for n in names)
    gain = mean_of["errors"] - mean_of["chosen"]
    differ = 1 - np.mean(np.isclose(points["errors"], points["chosen"], rtol=SAME, atol=SAME))
    return (
        f"{part}, where NCCL ranks, {len(some)} series: median (mean over {len(points['nccl'])} "
        f"points) ours {ours}, NCCL's model {model}\n"
        f"  ours for what NCCL's table chooses {chosen}: another way at {differ:.0%} of points, "
        f"better in {(gain > SAME).sum()} series, worse in {(gain < -SAME).sum()}"
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    argparse.ArgumentParser(prog="python -m experiments.published.score_collectives").parse_args(
        arguments
    )
    scores = scored(cases())
    print("\n".join(table(scores)))
    for part in ("fit", "left"):
        print(medians(scores, part))
        print(against_nccl(scores, part))
    for key, distance in sorted(spreads(cases()).items()):
        print("spread of the sources:", *key, f"{distance:.1%}")


if __name__ == "__main__":
    main()
