"""Parameters of a family, fitted on the published rows that may be fitted.

One set of parameters holds for all group sizes and all machines of a family: an efficiency and a
hop per protocol and kind of link, fill and drain per collective, a fixed cost. Powell's method
searches them for the least mean of |log(predicted / measured)|, in which every series of sizes has
the same weight, with a weak pull towards the initial values.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from experiments.published.collectives import Case
from experiments.published.families import SCOPES, Family, Scope, is_efficiency
from experiments.published.parameters import Parameters, transport_parameter
from scaling.collectives.cost import collective_time
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.placement import crossed_level
from scaling.profiles.io import ideal
from scaling.profiles.profile import Evidence, LinkFit, Profile
from scaling.program.ir import CollectiveKind

PULL = 1e-3  # weight of the squared log distance from the start, beside the mean absolute log error
MANY = 100  # points; with fewer the pull is stronger in proportion, as two rows tell little
STARTS, SPREAD = 3, 0.4  # searches, and the standard deviation of the logarithm of their starts


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

    def scope(self, family: Family) -> Scope:
        """Scope of the parameters that the series depends on."""
        if crossed_level(self.groups, self.cluster) in ("node", "domain"):
            return "inside"
        fabric = self.cluster.fabric
        return family.scope(fabric.transport if fabric is not None else "")

    def predicted(self, profile: Profile) -> np.ndarray:
        """Seconds as the simulator prices them, [sizes]."""
        cost = collective_time(
            self.kind, self.bytes, self.groups, self.cluster, profile, self.algorithm
        )
        return np.asarray(cost.time)


def series_of(cases: Sequence[Case]) -> list[Series]:
    """The cases of each series, ordered by size."""
    grouped: dict[tuple, list[Case]] = defaultdict(list)
    for case in cases:
        grouped[(*case.series, case.cluster, case.overrides)].append(case)
    return [_series(sorted(rows, key=lambda c: c.bytes)) for rows in grouped.values()]


def cluster_of(case: Case) -> Cluster:
    """The cluster on which a case was measured."""
    overrides = {**dict(case.overrides), "gpus_per_node": case.ranks_per_node}
    devices = catalog.load(case.cluster).devices_per_node
    if case.ranks_per_node * case.groups > devices and case.nodes == 1 or case.groups > 1:
        overrides.pop("gpus_per_node")
    return catalog.load(case.cluster, case.nodes, overrides)


def _series(cases: Sequence[Case]) -> Series:
    first = cases[0]
    ids = np.arange(first.ranks * first.groups).reshape(first.groups, first.ranks)
    arrays = (np.array([c.bytes for c in cases]), np.array([c.time for c in cases]))
    where = (first.machine, first.kind, cluster_of(first), ids)
    return Series(*where, *arrays, first.algorithm)


def profile_with(links: Sequence[LinkFit]) -> Profile:
    """The ideal profile with these link fits only."""
    return replace(ideal(), links=tuple(links))


def fit(
    family: Family, series: Sequence[Series], known: Parameters, names: Sequence[str], starts: int
) -> Parameters:
    """The parameters `names` that explain the series best; the search starts from those known."""
    start = np.log(np.array([known[name] for name in names]))
    pull = PULL * max(1.0, MANY / sum(len(s.bytes) for s in series))

    def parameters(x: np.ndarray) -> Parameters:
        values = dict(zip(names, np.exp(x).tolist(), strict=True))
        return {**known, **{name: _limited(name, value) for name, value in values.items()}}

    def loss(x: np.ndarray) -> float:
        profile = profile_with(family.links(parameters(x), Evidence("", "", "calibrated")))
        errors = [np.abs(np.log(s.predicted(profile) / s.time)).mean() for s in series]
        return float(np.mean(errors) + pull * np.sum((x - start) ** 2))

    draw = np.random.default_rng(0)
    initial = [start + SPREAD * draw.normal(size=len(start)) * (i > 0) for i in range(starts)]
    options = dict(xtol=1e-2, ftol=1e-4, maxiter=60)
    searches = [minimize(loss, x, method="Powell", options=options) for x in initial]
    return parameters(min(searches, key=lambda r: r.fun).x)


def _limited(name: str, value: float) -> float:
    """The value, at most 1 for an efficiency."""
    return min(value, 1.0) if is_efficiency(name) else value


def fitted(
    family: Family,
    cases: Sequence[Case],
    starts: int = STARTS,
    known: Parameters | None = None,
    searched: Collection[Scope] = SCOPES,
) -> tuple[Parameters, list[Series]]:
    """Parameters of a family, and the series that they were fitted on.

    Parameters inside nodes are fitted first, then, with those, the ones between nodes. Those of
    other transports start from those of verbs, and keep these values where nothing was measured.
    Scopes that are not `searched` keep the `known` parameters.
    """
    series = series_of([case for case in cases if family.includes(case)])
    parameters: Parameters = {**family.initial}
    for scope, names in family.stages.items():
        own = [s for s in series if s.scope(family) == scope]
        if scope in family.transports:
            verbs = family.stages["between"]
            parameters |= {transport_parameter(name, scope): parameters[name] for name in verbs}
        if known is not None and scope not in searched:
            parameters |= {name: known[name] for name in names}
        elif own and names:
            parameters = fit(family, own, parameters, names, starts)
    return parameters, series


def errors_of(series: Sequence[Series], links: Sequence[LinkFit]) -> np.ndarray:
    """predicted / measured - 1 of every point, with these link fits."""
    profile = profile_with(links)
    return np.concatenate([s.predicted(profile) / s.time - 1 for s in series])
