"""Baselines of predicted collectives, and the agreement of measurements among themselves.

rule      20 us + bus bytes over 80 % of the link
nccl      the estimate of NCCL's own tuning model, where it ranks such a collective
spread    mean distance of the sources that measured the same from their own mean
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import mean

import numpy as np

from experiments.published.collectives import Case
from experiments.published.fit_links import Series
from scaling.collectives.cost import collective_time
from scaling.collectives.nccl.ranking import nccl_choices
from scaling.profiles.io import ideal
from scaling.profiles.profile import Profile

RULE_CALL, RULE_EFFICIENCY = 20e-6, 0.8  # of the rule of thumb
Measured = tuple[str, str, int, int]  # cluster, kind, nodes, ranks of a group


def by_nccl(series: Series) -> np.ndarray | None:
    """NCCL's lowest estimate, [sizes]; None where NCCL does not rank such a collective."""
    choices = nccl_choices(
        series.kind, series.bytes, series.groups, series.cluster, series.algorithm
    )
    return None if choices is None else np.array([choice.estimate for choice in choices])


def rule_of_thumb(series: Series) -> np.ndarray:
    """20 us and the bytes over 80 % of the narrowest link."""
    profile: Profile = ideal()
    cost = collective_time(series.kind, series.bytes, series.groups, series.cluster, profile)
    return RULE_CALL + np.asarray(cost.time) / RULE_EFFICIENCY


def spreads(rows: Iterable[Case]) -> dict[Measured, float]:
    """Mean relative distance of sources from their own mean, over sizes that several measured."""
    same: dict[tuple, list[float]] = defaultdict(list)
    for c in rows:
        same[c.cluster, c.kind, c.nodes, c.ranks, c.groups, c.algorithm, c.bytes].append(c.time)
    distances: dict[tuple, list[float]] = defaultdict(list)
    for key, times in same.items():
        if len(times) > 1:
            distances[key[:4]] += [abs(t / mean(times) - 1) for t in times]
    return {key: mean(some) for key, some in distances.items()}
