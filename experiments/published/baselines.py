"""What a prediction of a collective has to beat, and how far measurements themselves agree.

rule      20 us + bus bytes over 80 % of the link
nccl      the estimate of NCCL's own tuning model, where it ranks such a collective
spread    how far the sources that measured the same are from their own mean
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


def spreads(all_: Iterable[Case]) -> dict[Measured, float]:
    """Mean distance of the sources of each from their own mean, of sizes that several measured."""
    same: dict[tuple, list[float]] = defaultdict(list)
    for c in all_:
        same[c.cluster, c.kind, c.nodes, c.ranks, c.groups, c.algorithm, c.bytes].append(c.time)
    found: dict[tuple, list[float]] = defaultdict(list)
    for key, times in same.items():
        if len(times) > 1:
            found[key[:4]] += [abs(t / mean(times) - 1) for t in times]
    return {key: mean(distances) for key, distances in found.items()}
