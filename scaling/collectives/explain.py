"""The links that a collective loads."""

from dataclasses import dataclass

from scaling.collectives.cost import CollectiveCost


@dataclass(frozen=True)
class LevelTime:
    """The busiest links of a level in one call, as if no other level bound it."""

    level: str
    bytes: float  # over them, one direction
    bandwidth: float  # bytes/s, at their full rate
    time: float  # s, of the bytes alone


def level_times(cost: CollectiveCost, bytes: float) -> tuple[LevelTime, ...]:
    """Every level that the algorithm of a call loads; none where a machine was measured instead."""
    found = []
    for one in cost.chosen.loaded if cost.chosen else ():
        sent, rate = bytes * one.load.share, one.level.bandwidth
        found.append(LevelTime(one.level.name, sent, rate, sent / rate))
    return tuple(found)
