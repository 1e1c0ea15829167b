"""Baselines of predicted collectives.

rule      20 us + bus bytes over 80 % of the link
nccl      the estimate of NCCL's own tuning model, where it ranks such a collective
"""

import numpy as np

from experiments.published.series import Series
from scaling.collectives.cost import collective_time
from scaling.collectives.nccl import nccl_choices
from scaling.profiles.io import ideal
from scaling.profiles.profile import Profile

RULE_CALL, RULE_EFFICIENCY = 20e-6, 0.8  # of the rule of thumb


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
