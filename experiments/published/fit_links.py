"""Fit how collectives use links, family by family, on the published rows that may be fitted.

One set of figures per family holds for all group sizes and all machines of that family: an
efficiency and a hop per protocol and kind of link, a stall per collective, a fixed cost. They are
searched by Powell's method on the mean of |log(predicted / measured)|, each series of sizes
counting as much as any other, with a weak pull towards where the search starts.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from experiments.published.collectives import Case
from experiments.published.families import PLACES, Family, Where, is_efficiency
from experiments.published.uses import Figures, of_transport
from scaling.collectives.cost import collective_time
from scaling.collectives.loads import crossed_level
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.profiles.io import ideal
from scaling.profiles.profile import Evidence, LinkFit, Profile
from scaling.program.ir import CollectiveKind

PULL = 1e-3  # of the squared log distance from the start, against a mean of absolute log errors
MANY = 100  # points; with fewer the pull is stronger by as much: two rows say little of ten figures
STARTS, SPREAD = 3, 0.4  # searches, and how far apart in the logarithm they begin


@dataclass(frozen=True)
class Series:
    """All sizes of one collective on one machine."""

    machine: str
    kind: CollectiveKind
    cluster: Cluster
    groups: np.ndarray  # device ids
    bytes: np.ndarray
    time: np.ndarray
    algorithm: str

    def place(self, family: Family) -> Where:
        """Whose figures it tells about: of a node or NVLink domain, or of a network."""
        if crossed_level(self.groups, self.cluster) in ("node", "domain"):
            return "inside"
        fabric = self.cluster.fabric
        return family.place(fabric.transport if fabric is not None else "")

    def predicted(self, profile: Profile) -> np.ndarray:
        """Seconds as the simulator prices them, [sizes]."""
        cost = collective_time(
            self.kind, self.bytes, self.groups, self.cluster, profile, self.algorithm
        )
        return np.asarray(cost.time)


def series_of(cases: Sequence[Case]) -> list[Series]:
    """The cases, put together."""
    found: dict[tuple, list[Case]] = defaultdict(list)
    for case in cases:
        found[(*case.series, case.cluster, case.overrides)].append(case)
    return [_series(sorted(some, key=lambda c: c.bytes)) for some in found.values()]


def cluster_of(case: Case) -> Cluster:
    """Where a case was measured."""
    overrides = {**dict(case.overrides), "gpus_per_node": case.ranks_per_node}
    whole = catalog.load(case.cluster).devices_per_node
    if case.ranks_per_node * case.groups > whole and case.nodes == 1 or case.groups > 1:
        overrides.pop("gpus_per_node")
    return catalog.load(case.cluster, case.nodes, overrides)


def _series(cases: Sequence[Case]) -> Series:
    first = cases[0]
    ids = np.arange(first.ranks * first.groups).reshape(first.groups, first.ranks)
    arrays = (np.array([c.bytes for c in cases]), np.array([c.time for c in cases]))
    where = (first.machine, first.kind, cluster_of(first), ids)
    return Series(*where, *arrays, first.algorithm)


def profile_with(links: Sequence[LinkFit]) -> Profile:
    """A profile that knows these links only."""
    return replace(ideal(), links=tuple(links))


def fit(
    family: Family, series: Sequence[Series], known: Figures, names: Sequence[str], starts: int
) -> Figures:
    """The figures `names` that explain the series best; the search starts from those known."""
    start = np.log(np.array([known[name] for name in names]))
    pull = PULL * max(1.0, MANY / sum(len(s.bytes) for s in series))

    def figures(x: np.ndarray) -> Figures:
        found = dict(zip(names, np.exp(x).tolist(), strict=True))
        return {**known, **{name: _possible(name, value) for name, value in found.items()}}

    def loss(x: np.ndarray) -> float:
        profile = profile_with(family.links(figures(x), Evidence("", "", "calibrated")))
        errors = [np.abs(np.log(s.predicted(profile) / s.time)).mean() for s in series]
        return float(np.mean(errors) + pull * np.sum((x - start) ** 2))

    draw = np.random.default_rng(0)
    begins = [start + SPREAD * draw.normal(size=len(start)) * (i > 0) for i in range(starts)]
    options = dict(xtol=1e-2, ftol=1e-4, maxiter=60)
    found = [minimize(loss, x, method="Powell", options=options) for x in begins]
    return figures(min(found, key=lambda r: r.fun).x)


def _possible(name: str, value: float) -> float:
    """No more than all of a link."""
    return min(value, 1.0) if is_efficiency(name) else value


def fitted(
    family: Family,
    cases: Sequence[Case],
    starts: int = STARTS,
    known: Figures | None = None,
    searched: Collection[Where] = PLACES,
) -> tuple[Figures, list[Series]]:
    """Figures inside nodes first, then, with those, the ones between nodes; and what was fitted.

    Those of other transports start from those of verbs, and stay so where nothing was measured.

    Args:
        starts: searches.
        known: figures of the places that are not `searched`.
    """
    series = series_of([case for case in cases if family.holds(case)])
    figures: Figures = {**family.start}
    for place, names in family.stages.items():
        some = [s for s in series if s.place(family) == place]
        if place in family.transports:
            as_verbs = {of_transport(n, place): figures[n] for n in family.stages["between"]}
            figures = {**figures, **as_verbs}
        if known is not None and place not in searched:
            figures = {**figures, **{name: known[name] for name in names}}
        elif some and names:
            figures = fit(family, some, figures, names, starts)
    return figures, series


def errors_of(series: Sequence[Series], links: Sequence[LinkFit]) -> np.ndarray:
    """predicted / measured - 1 of every point."""
    profile = profile_with(links)
    return np.concatenate([s.predicted(profile) / s.time - 1 for s in series])
