"""What says that nothing better is left out of a plan, or by how much the best may be beaten."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scaling.planning.search import CUTS, Search


@dataclass(frozen=True)
class Certificate:
    """Configurations of a space by what became of them.

    space = evaluated + cut["time"] + cut["calls"] + refused in all + left
    """

    space: int
    evaluated: int  # priced
    cut: Mapping[str, int]  # by a bound: on memory; on time at the chip's best rates; by own calls
    refused: Mapping[str, int]  # reason -> configurations; what memory cuts is one of them
    left: int  # where the search was stopped
    gap: float | None  # share of the best by which one of these may be below; None: nothing is best

    def __str__(self) -> str:
        """`gap 0%: 3,892 cut by a bound on memory, 0 on time, 2,552 by their calls alone`."""
        memory, *slower = (f"{self.cut[name]:,}" for name in CUTS)
        cut = f"{memory} cut by a bound on memory, {slower[0]} on time, {slower[1]} by their calls"
        left = f", {self.left:,} left" if self.left else ""
        return f"gap {'unknown' if self.gap is None else f'{self.gap:.2%}'}: {cut}{left}"


def certificate(states: Sequence[Search]) -> Certificate:
    """The certificate of searches of which the best of all is taken."""
    refused: dict[str, int] = {}
    for reason, count in (pair for state in states for pair in state.refusals.items()):
        refused[reason] = refused.get(reason, 0) + count
    left = sum(state.left for state in states)
    best = min((state.best[0].value for state in states if state.best), default=np.inf)
    least = min(state.least_left for state in states)
    gap = max(0.0, 1 - least / best) if np.isfinite(best) else None if left else 0.0
    return Certificate(
        sum(state.space for state in states),
        sum(state.priced for state in states),
        {name: sum(state.cut[name] for state in states) for name in CUTS},
        refused,
        left,
        float(gap) if gap is not None else None,
    )
