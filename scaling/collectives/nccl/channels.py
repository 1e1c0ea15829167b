"""How many channels NCCL makes of a communicator's links, and what each of them gets.

NCCL tries the speeds of a list from the top down. At each it counts the channels that fit; the most
bandwidth in all wins, and the search ends where a speed is less than half of the winner's. Fast
channels are then split in two. Restated from NVIDIA/nccl 2.30.7, src/graph/search.cc: the closed
form of its search for machines whose GPUs are alike.

    8 A100  6 x 40 -> 12 x 20      8 H100  6 x 60 -> 12 x 30      8 B200  8 x 90 -> 16 x 45
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from scaling.collectives.nccl.constants import Speeds
from scaling.collectives.nccl.links import EPSILON, Inside

HALF = 0.49  # of the winner's speed: the search goes on above it
SPLIT_FROM = 25.0  # GB/s of a channel that is split in two
SPLIT_NEWER = 50.0  # GB/s, beyond compute capability 8.0 where there are more than FEW channels
FEW = 4
SPLIT_CAPABILITY = 80
NO_PATH = 0.1  # GB/s of the one channel where nothing is found


@dataclass(frozen=True)
class Channels:
    """Channels of one algorithm: GB/s of each, inside a node and between nodes."""

    count: int
    inside: float
    outside: float


def ring_channels(
    links: Inside, nics: Sequence[float], speeds: Speeds, most: int, capability: int
) -> Channels:
    """Rings through the GPUs of a node, and through its `nics` where there are several nodes."""

    def room(speed: float) -> int:
        within = links.rings(speed)
        outside = sum(int(nic / speed + EPSILON) for nic in nics) if nics else most
        return min(most, outside if within is None else min(within, outside))

    widest = max(nics) if nics else links.widest
    total = links.total if links.kind != "alone" else max(nics, default=0.0)
    count, speed = best(speeds, widest, total, room)
    if not count:
        return Channels(1, NO_PATH, NO_PATH)
    split = min(2 * count, most) if _is_split(count, speed, capability) else count
    pieces = ceil(split / count)
    return Channels(split, speed / pieces, speed / pieces)


def best(
    speeds: Speeds, widest: float, total: float, room: Callable[[float], int]
) -> tuple[int, float]:
    """The channels and their speed with the most bandwidth in all; (0, 0) where none fit."""
    count, chosen = 0, 0.0
    for speed in speeds:
        if speed > widest + EPSILON:
            continue
        if count and speed / chosen <= HALF:
            break
        if (found := room(speed)) * speed > count * chosen + EPSILON:
            count, chosen = found, speed
        if count * chosen >= total - EPSILON:
            break
    return count, chosen


def _is_split(count: int, speed: float, capability: int) -> bool:
    newer = capability > SPLIT_CAPABILITY and speed < SPLIT_NEWER and count > FEW
    return speed >= SPLIT_FROM and not newer


def tree_channels(rings: Channels, links: Inside, speeds: Speeds) -> Channels:
    """As many trees as rings; a chain through a node sends a hop less than a ring: more fits."""
    gpus = len(links.gpus)

    def fits(speed: float) -> bool:
        return links.kind == "alone" or (
            links.kind == "switch"
            and rings.count * speed * (gpus - 1) / gpus <= links.bandwidth + EPSILON
        )

    return Channels(
        rings.count, _raised(rings.inside, 2 * rings.outside, speeds, fits), rings.outside
    )


def nvls_channels(
    links: Inside, nics: Sequence[float], speeds: Speeds, most: int
) -> Channels | None:
    """One channel for each GPU that pulls sums from the switch, which it loads twice; None: none.

    With several nodes those GPUs pull that have a NIC of their own.
    """
    gpus = len(links.gpus)
    heads = min(most, gpus, len(nics)) if nics else min(most, gpus)
    widest = max(nics) if nics else links.bandwidth

    def room(speed: float) -> int:
        within = int(links.bandwidth / speed + EPSILON) - 1
        return min(heads, within) if nics or within >= heads else 0

    count, chosen = 0, 0.0
    for speed in speeds:
        if speed <= widest + EPSILON and room(speed) > count:
            count, chosen = room(speed), speed
    if not count:
        return None
    outside = _raised(chosen, 2 * chosen, speeds, lambda s: not nics or s <= widest + EPSILON)
    return Channels(count, chosen, outside)


def _raised(start: float, goal: float, speeds: Speeds, fits: Callable[[float], bool]) -> float:
    """The speed that steps up from `start` reach before one does not fit, or `goal` is passed."""
    reached = start
    for speed in reversed(speeds):
        if reached >= goal - EPSILON:
            break
        if speed > reached + EPSILON:
            if not fits(speed):
                break
            reached = speed
    return reached
