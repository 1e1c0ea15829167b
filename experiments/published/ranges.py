"""Evidence of every link fit: what was measured of it, and how far figures are off on systems that
they were not fitted on.

Each system is predicted with the figures that were fitted without it (`left_out`). A point counts
for the link fits of the algorithm that was predicted to be the fastest: between nodes for those of
the network, as the network decides. Systems count alike, however many points they have.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from experiments.published.figures import (
    GENERATIONS,
    Figures,
    Key,
    keys,
    link_fit_of,
)
from experiments.published.fit import Choice, candidates_of, choices, fits_of
from experiments.published.left_out import everything, known_figures, system_of
from experiments.published.series import series_of
from scaling.profiles.io import ChipLinks, LinkFile
from scaling.profiles.profile import ANY, Evidence, LinkFit, MeasuredSpan

DATE = "2026-11-22"
FEWEST_POINTS, FEWEST_SYSTEMS = 20, 3  # of a fit whose errors stand alone; else those of its place
PART = 0.9  # of the points that a range is to hold
TABLES = "experiments/published/{collectives,systems}.csv"


@dataclass(frozen=True)
class Observed:
    """Points of one series for which one algorithm was predicted to be the fastest."""

    system: str
    algorithm: str
    keys: tuple[Key, ...]
    ranks: int
    nodes: int
    bytes: np.ndarray
    error: np.ndarray  # |log(predicted / measured)|
    latency: np.ndarray  # latency's share of latency and bytes

    @property
    def place(self) -> str:
        """Where the time is spent: "network", or the link inside a node."""
        return _place(self.keys[-1])


def _place(key: Key) -> str:
    return {"xgmi": "nvlink"}.get(key.link, key.link)


def observed(choice: Choice, figures: Figures) -> Iterator[Observed]:
    """The points of a series, priced by figures."""
    series, found = choice.series, candidates_of(choice, fits_of(figures, choice.keys))
    times = np.array([priced.seconds(series.bytes) for priced, _ in found])
    fastest = times.argmin(axis=0)
    for i, (priced, used) in enumerate(found):
        own = fastest == i
        if own.any():
            size = series.bytes[own]
            yield Observed(
                system_of(series.machine),
                priced.algorithm,
                tuple(used),
                series.ranks,
                series.nodes,
                size,
                np.abs(np.log(times[i, own] / series.time[own])),
                priced.latency / (priced.latency + priced.per_byte * size),
            )


@lru_cache(maxsize=1)
def left_out_points() -> tuple[Observed, ...]:
    """All points, each priced with figures that were fitted without its system."""
    without = known_figures()["without"]
    return tuple(
        one
        for choice in choices(series_of(everything()))
        for one in observed(choice, without[system_of(choice.series.machine)])
    )


@lru_cache(maxsize=1)
def left_family_points() -> tuple[Observed, ...]:
    """Points inside nodes, priced with figures fitted without their whole generation of chips."""
    without = known_figures()["without_generation"]
    found: list[Observed] = []
    for choice in choices(series_of(everything())):
        chip = choice.series.cluster.accelerator.name
        for name, chips in GENERATIONS.items():
            if chip in chips and choice.series.nodes == 1:
                found += observed(choice, without[name])
    return tuple(found)


def quantile(points: Sequence[Observed], late: bool) -> float | None:
    """The factor, less one, within which `PART` of the points lie; None where there are none.

    Of points where latency decides, or of those where bytes do.
    """
    errors, weights = [], []
    counts: dict[str, int] = defaultdict(int)
    for one in points:
        counts[one.system] += int(((one.latency > 0.5) == late).sum())
    for one in points:
        own = one.error[(one.latency > 0.5) == late]
        errors.append(own)
        weights.append(np.full(len(own), 1 / max(1, counts[one.system])))
    error, weight = np.concatenate([[], *errors]), np.concatenate([[], *weights])
    if not len(error):
        return None
    order = np.argsort(error)
    upto = np.cumsum(weight[order]) / weight.sum()
    return float(np.exp(error[order][int(np.searchsorted(upto, PART))]) - 1)


def _half_ranges(points: Sequence[Observed], place: Sequence[Observed]) -> tuple[float, float]:
    """(where bytes decide, where latency does): of own points where they are enough."""
    found = []
    for late in (False, True):
        own = [one for one in points if ((one.latency > 0.5) == late).any()]
        number = sum(int(((one.latency > 0.5) == late).sum()) for one in own)
        systems = len({one.system for one in own})
        enough = number >= FEWEST_POINTS and systems >= FEWEST_SYSTEMS
        half = quantile(own if enough else place, late) or quantile(place, not late)
        assert half is not None
        found.append(half)
    return found[0], found[1]


def evidence_of(key: Key, points: Sequence[Observed]) -> Evidence:
    """The evidence of one link fit from points that were priced without their systems."""
    own = [one for one in points if key in one.keys and _counts(key, one)]
    place = [one for one in points if one.place == _place(key)]
    if key.scope == ANY and key.link != "network":
        families = [one for one in left_family_points() if one.place == _place(key)]
        place = families or place
    wide, late = _half_ranges(own, place)
    if not own:
        source = f"assumed as of other chips and collectives in {TABLES}: none was published"
        return Evidence(source, DATE, "datasheet", error_p90=wide, latency_p90=late)
    error = np.expm1(np.concatenate([one.error for one in own]))
    size = np.concatenate([one.bytes for one in own])
    systems = sorted({one.system for one in own})
    shown = ", ".join(systems[:3]) + (f" and {len(systems) - 3} more" if systems[3:] else "")
    return Evidence(
        f"fitted on {TABLES}: {shown}; errors with each system left out of the fit",
        DATE,
        "calibrated",
        len(error),
        median_error=float(np.median(error)),
        mean_error=float(error.mean()),
        max_error=float(error.max()),
        held_out_error=float(error.mean()),
        error_p90=wide,
        latency_p90=late,
        measured=MeasuredSpan(
            _span([one.ranks for one in own]),
            _span([one.nodes for one in own]),
            _span([float(size.min()), float(size.max())]),
        ),
    )


def _counts(key: Key, one: Observed) -> bool:
    """Points between nodes say nothing of rings inside: other algorithms run between nodes only."""
    return key.link == "network" or one.nodes == 1 or key.algorithm not in ("ring", "pairwise")


def _span(values: Sequence[float]) -> tuple[float, float]:
    return (float(min(values)), float(max(values)))


def link_document(figures: Figures, points: Sequence[Observed]) -> LinkFile:
    """All link fits that follow from figures, with their evidence."""
    fits: dict[str, list[LinkFit]] = defaultdict(list)
    for key in keys():
        fit = link_fit_of(figures, key, evidence_of(key, points))
        fits["network" if key.link == "network" else key.scope].append(fit)
    inside = [ChipLinks(chips, tuple(fits[g])) for g, chips in GENERATIONS.items()]
    return LinkFile(
        "python -m experiments.published.ship_links",
        between=tuple(fits["network"]),
        figures=dict(figures),
        inside=(*inside, ChipLinks((), tuple(fits[ANY]))),
    )
