"""The figures of all links, fitted on published series by one search, machine effects included.

log(measured) = log(added + latency + exp(v) x wire + knee x sqrt(latency x exp(v) x wire)) + noise

`added` seconds and v belong to a machine: how its calls were timed, its versions and cabling. They
are pulled to zero and left out when something is predicted, so that no single slow machine decides
what is told of others. The noise counts by a soft absolute value, and n points of one machine as
much as the square root of n machines with one point.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from scipy.optimize import least_squares

from experiments.published.figures import (
    GENERATIONS,
    NAMES,
    TRANSPORTS,
    Figures,
    Key,
    deviation,
    keys,
    link_fit_of,
    start,
)
from experiments.published.series import Series
from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.candidates import (
    Candidate,
    LoadedLevel,
    candidate,
    loaded_levels,
    refusal,
    units_of,
)
from scaling.collectives.contention import place_groups
from scaling.profiles.profile import ANY, Evidence, LinkFit

NOISE = 0.15  # of log time beyond the effects of its machine; errors well above it count linearly
ADDED, WIRE = 5e-6, 0.15  # mean of the added seconds (exponential), standard deviation of v
STEP = 1e-3  # of the numeric derivative, of a logarithm
UNKNOWN = Evidence("", "", "calibrated")  # while figures are searched
Fits = Mapping[Key, LinkFit]
KEYS = frozenset(keys())
SEARCHED = ("ring", "tree", "nvls", "nvls-tree", "pairwise")  # by "auto"


@dataclass(frozen=True, eq=False)
class Choice:
    """The algorithms that may run a series, each with the levels it loads and their keys."""

    series: Series
    ways: tuple[tuple[str, list[LoadedLevel], list[Key]], ...]

    @property
    def keys(self) -> set[Key]:
        """The link fits that it depends on."""
        return {key for _, _, keys in self.ways for key in keys}


def choices(series: Sequence[Series]) -> list[Choice]:
    """The choices of all series."""
    return [_choice(one) for one in series]


def _choice(series: Series) -> Choice:
    placement, ways = place_groups(series.groups, series.cluster), []
    names = SEARCHED if series.algorithm == "auto" else (series.algorithm,)
    for name in names:
        if refusal(name, series.kind, series.cluster):
            continue
        loads = placement.loads(series.kind)[name]
        rule, units = ALGORITHMS[name], units_of(loads)
        if rule.refusal(units):
            continue
        if series.algorithm != "auto" or rule.is_considered(units):
            uses = loaded_levels(series.kind, name, loads, placement.ranks)
            found = [_key(series, name, use) for use in uses]
            if KEYS.issuperset(found):
                ways.append((name, uses, found))
    assert ways, series.machine
    return Choice(series, tuple(ways))


def _key(series: Series, name: str, use: LoadedLevel) -> Key:
    link, chip = use.level.link, series.cluster.accelerator.name
    if link == "network":
        scope = use.transport if use.transport in TRANSPORTS else ANY
    else:
        scope = next((g for g, chips in GENERATIONS.items() if chip in chips), ANY)
    return Key(name, series.kind, link, scope, use.transport == "host")  # type: ignore[arg-type]


def candidates_of(choice: Choice, fits: Fits) -> list[tuple[Candidate, list[Key]]]:
    """Price the algorithms that may run a series; each has the keys of its link fits."""
    return [
        (
            candidate(
                choice.series.kind,
                name,
                [replace(use, fit=fits[key]) for use, key in zip(uses, keys, strict=True)],
            ),
            keys,
        )
        for name, uses, keys in choice.ways
    ]


def predictions(
    every: Sequence[Choice], fits: Fits, added: np.ndarray, slower: np.ndarray
) -> list[np.ndarray]:
    """Seconds of every series; seconds added to each, and factors on its wire."""
    found = []
    for choice, seconds, factor in zip(every, added, slower, strict=True):
        size = factor * choice.series.bytes
        times = np.array([priced.seconds(size) for priced, _ in candidates_of(choice, fits)])
        found.append(seconds + np.min(times, axis=0))
    return found


def fits_of(f: Figures, keys: Iterable[Key]) -> Fits:
    """The link fits of some keys."""
    return {key: link_fit_of(f, key, UNKNOWN) for key in keys}


def fitted(
    series: Sequence[Series],
    most: int = 25,
    known: Figures = MappingProxyType({}),
    names: Sequence[str] = NAMES,
) -> dict[str, float]:
    """The figures that explain the series best: those of `names`, the others as `known`.

    Series on which these have no bearing are left out.
    """
    before = {name: start(name) for name in NAMES} | dict(known)
    after = before | {name: before[name] * np.exp(STEP) for name in names}
    first_fits, other_fits = fits_of(before, KEYS), fits_of(after, KEYS)
    bearing = {key for key in KEYS if first_fits[key] != other_fits[key]}
    every = [choice for choice in choices(series) if choice.keys & bearing]
    series = [choice.series for choice in every]
    machines = list(dict.fromkeys(s.machine for s in series))
    machine = np.array([machines.index(s.machine) for s in series])
    sizes = np.array([len(s.bytes) for s in series])
    point = np.repeat(machine, sizes)  # the machine of every point
    weight = np.bincount(point, minlength=len(machines))[point] ** -0.25 / NOISE
    measured = np.log(np.concatenate([s.time for s in series]))
    middle = np.log([start(name) for name in names])
    widths = np.array([deviation(name) for name in names])
    n, m = len(names), len(machines)
    used = {key for choice in every for key in choice.keys}
    first, everything = np.concatenate([[0], np.cumsum(sizes)]), np.arange(len(every))
    centre = np.concatenate([middle, np.zeros(2 * m)])
    spread = np.concatenate([widths, np.ones(m), np.full(m, WIRE)])

    def figures(x: np.ndarray) -> Figures:
        return before | dict(zip(names, np.exp(x[:n]).tolist(), strict=True))

    def noise(x: np.ndarray, fits: Fits, some: np.ndarray = everything) -> np.ndarray:
        """Return weighted log(predicted / measured) of the points of some series."""
        added, wire = x[n : n + m][machine[some]] ** 2 * ADDED, np.exp(x[n + m :][machine[some]])
        times = predictions([every[i] for i in some], fits, added, wire)
        rows = np.concatenate([np.arange(first[i], first[i + 1]) for i in some])
        return (np.log(np.concatenate(times)) - measured[rows]) * weight[rows]

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([noise(x, fits_of(figures(x), used)), (x - centre) / spread])

    def jacobian(x: np.ndarray) -> np.ndarray:
        """By differences; the effects of all machines, which do not meet, in two steps."""
        fits = fits_of(figures(x), used)
        at, rows = noise(x, fits), len(point)
        columns = np.zeros((rows + len(x), len(x)))
        for i in range(n):
            stepped = x + STEP * (np.arange(len(x)) == i)
            others = fits_of(figures(stepped), used)
            moved = {key for key in used if others[key] != fits[key]}
            some = np.array([j for j, choice in enumerate(every) if choice.keys & moved], int)
            if len(some):
                where = np.concatenate([np.arange(first[j], first[j + 1]) for j in some])
                columns[where, i] = (noise(stepped, others, some) - at[where]) / STEP
        for start_ in (n, n + m):
            stepped = x.copy()
            stepped[start_ : start_ + m] += STEP
            columns[np.arange(rows), start_ + point] = (noise(stepped, fits) - at) / STEP
        columns[rows:] = np.diag(1 / spread)
        return columns

    x = np.concatenate([middle, np.full(m, 0.5), np.zeros(m)])
    found = least_squares(residuals, x, jacobian, loss="soft_l1", max_nfev=most, ftol=1e-5)
    return {name: figures(found.x)[name] for name in NAMES}
