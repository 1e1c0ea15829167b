"""Channels that NCCL makes of the links of a communicator: their number and their speeds.

NCCL tries a list of speeds from the top down and counts the channels that fit at each. The speed
with the most bandwidth in all wins; the search ends where a speed is less than half of the best.
Fast channels are then split in two. Source: NVIDIA/nccl 2.30.7, src/graph/search.cc, in closed form
for machines whose GPUs are alike.

    8 A100  6 x 40 -> 12 x 20      8 H100  6 x 60 -> 12 x 30      8 B200  8 x 90 -> 16 x 45
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from scaling.collectives.nccl.constants import AMPERE, MOST_CHANNELS, Speeds
from scaling.collectives.nccl.links import EPSILON, NodeLinks

HALF = 0.49  # the search ends at this fraction of the best speed
SPLIT_FROM = 25.0  # GB/s of a channel that is split in two
SPLIT_NEWER, FEW = 50.0, 4  # the same after Ampere, where there are more than FEW channels
NO_PATH = 0.1  # GB/s of the one channel where none fits


@dataclass(frozen=True)
class Channels:
    """Channels of one algorithm: how many, and GB/s of each inside and between nodes."""

    count: int
    inside: float
    outside: float


def ring_channels(
    links: NodeLinks, nics: Sequence[float], speeds: Speeds, capability: int
) -> Channels:
    """Rings through the GPUs of a node and, with several nodes, through its NICs.

    Args:
        links: of the GPUs of one node.
        nics: GB/s of each NIC; () with one node.
        speeds: GB/s that the search tries.
        capability: compute capability x 10.
    """

    def room(speed: float) -> int:
        within = links.rings(speed)
        outside = sum(int(nic / speed + EPSILON) for nic in nics) if nics else MOST_CHANNELS
        return min(MOST_CHANNELS, outside if within is None else min(within, outside))

    widest = max(nics) if nics else links.widest
    total = links.total if links.kind != "alone" else max(nics, default=0.0)
    count, speed = most_bandwidth(speeds, widest, total, room)
    if not count:
        return Channels(1, NO_PATH, NO_PATH)
    split = min(2 * count, MOST_CHANNELS) if _is_split(count, speed, capability) else count
    pieces = ceil(split / count)
    return Channels(split, speed / pieces, speed / pieces)


def most_bandwidth(
    speeds: Speeds, widest: float, total: float, room: Callable[[float], int]
) -> tuple[int, float]:
    """Number of channels and their speed with the most bandwidth; (0, 0) where none fits."""
    count, best = 0, 0.0
    for speed in speeds:
        if speed > widest + EPSILON:
            continue
        if count and speed / best <= HALF:
            break
        if (fitting := room(speed)) * speed > count * best + EPSILON:
            count, best = fitting, speed
        if count * best >= total - EPSILON:
            break
    return count, best


def _is_split(count: int, speed: float, capability: int) -> bool:
    newer = capability > AMPERE and speed < SPLIT_NEWER and count > FEW
    return speed >= SPLIT_FROM and not newer


def tree_channels(rings: Channels, links: NodeLinks, speeds: Speeds) -> Channels:
    """As many trees as rings; a chain through a node has one hop less, so that it may be faster."""
    gpus = len(links.gpus)

    def fits(speed: float) -> bool:
        return links.kind == "alone" or (
            links.kind == "switch"
            and rings.count * speed * (gpus - 1) / gpus <= links.bandwidth + EPSILON
        )

    inside = _raised(rings.inside, 2 * rings.outside, speeds, fits)
    return Channels(rings.count, inside, rings.outside)


def nvls_channels(links: NodeLinks, nics: Sequence[float], speeds: Speeds) -> Channels | None:
    """One channel per GPU that pulls sums from the switch, over its link twice; None: none fits.

    With several nodes, only GPUs with a NIC of their own pull.
    """
    gpus = len(links.gpus)
    heads = min(MOST_CHANNELS, gpus, len(nics)) if nics else min(MOST_CHANNELS, gpus)
    widest = max(nics) if nics else links.bandwidth

    def room(speed: float) -> int:
        within = int(links.bandwidth / speed + EPSILON) - 1
        return min(heads, within) if nics or within >= heads else 0

    count, best = 0, 0.0
    for speed in speeds:
        if speed <= widest + EPSILON and room(speed) > count:
            count, best = room(speed), speed
    if not count:
        return None
    outside = _raised(best, 2 * best, speeds, lambda s: not nics or s <= widest + EPSILON)
    return Channels(count, best, outside)


def _raised(start: float, goal: float, speeds: Speeds, fits: Callable[[float], bool]) -> float:
    """Steps up from `start` until a speed does not fit or `goal` is reached."""
    reached = start
    for speed in reversed(speeds):
        if reached >= goal - EPSILON:
            break
        if speed > reached + EPSILON:
            if not fits(speed):
                break
            reached = speed
    return reached
