"""What lab 5 computes on the measured sweeps: choosers over all problems, and the sick network.

    slowdown of a run on the sick network = measured / predicted with the sound network's figures

No configuration was timed on both networks, so that the model stands in for the sound one.
"""

import math
from dataclasses import dataclass
from statistics import median

from scaling.course.language import t
from scaling.course.sweeps.game import Row, SweepGame, SweepProblem, sweep

NODE = 8  # GPUs of a p5 node
LONG = 5.0  # times its prediction: a run of the tail


def kind(row: Row) -> str:
    """Return by what a configuration is split besides data."""
    if row.tensor > NODE:
        return t("tensor beyond a node")
    if row.stage > 1:
        return "stages"
    return t("tensor inside a node") if row.tensor > 1 else t("data alone")


def lost() -> dict[str, list[float]]:
    """Return, by chooser, measured time over the best less one, of each problem."""
    found: dict[str, list[float]] = {}
    for problem in sweep().problems:
        for name, row in SweepGame(problem, ()).others.items():
            time = problem.lost(row)
            found.setdefault(name, []).append(math.inf if time is None else time)
    return found


def slowdowns(network: str) -> dict[str, list[float]]:
    """Return measured over predicted-as-if-sound by kind, of all that ran on a network."""
    found: dict[str, list[float]] = {}
    for problem in sweep().problems:
        for row in problem.rows:
            if row.seconds is not None and problem.network == network:
                found.setdefault(kind(row), []).append(row.seconds / row.on_sound)
    return found


def foretold(problems: tuple[SweepProblem, ...]) -> dict[str, float]:
    """Return, by kind, the median of what the model says that the network of problems costs."""
    found: dict[str, list[float]] = {}
    for problem in problems:
        for row in problem.rows:
            found.setdefault(kind(row), []).append(row.predicted / row.on_sound)
    return {name: median(ratios) for name, ratios in found.items()}


def long_share(network: str) -> float:
    """Return the share of a network's runs that took `LONG` times their prediction, or more."""
    ratios = [ratio for some in slowdowns(network).values() for ratio in some]
    return sum(ratio >= LONG for ratio in ratios) / len(ratios)


@dataclass(frozen=True)
class Tail:
    """The sick month's runs, by how long they took and by their node."""

    long: int  # that took `LONG` times their prediction, or more
    ill: int  # whose job measured less than half of the sound bandwidth inside a node
    both: int


def tail() -> Tail:
    """Return how many of the sick month's long runs had an ill node."""
    sound = max(one.bus_bandwidth["inside"] for one in sweep().problems)
    runs = [
        (row.seconds >= LONG * row.on_sound, row.inside < sound / 2)
        for one in sweep().problems
        if one.network == "sick"
        for row in one.rows
        if row.seconds is not None and row.inside is not None
    ]
    long, ill = (sum(column) for column in zip(*runs, strict=True))
    return Tail(long, ill, sum(map(all, runs)))


def shared() -> int:
    """Return how many configurations were timed on both networks."""
    runs = {
        network: {
            (p.model["name"], p.gpus, str(row))
            for p in sweep().problems
            if p.network == network
            for row in p.rows
            if row.seconds is not None
        }
        for network in ("sound", "sick")
    }
    return len(runs["sound"] & runs["sick"])
