"""What an algorithm puts on the links of a level, and how many of its hops follow one another.

    bytes out of a unit that holds s of the N members, per byte of the call; U units side by side
      ring           r (N-1)/N                    r = 2 rounds of an all-reduce, else 1
      hierarchical   r (1 - s/N)                  in every level only what the others lack
      tree           1 between two units, else 2  double binary: inner in one, leaf in the other
      nvls           1 + 1/N of an all-reduce     the switch adds and repeats; else 1 - 1/N
      nvls-tree      nvls inside, tree outside    sharp: nvls inside, 1 outside
      pairwise       s (N-s)/N                    every member to every other
      pat            1 - s/N                      hierarchical bytes in log2 steps

    hops that wait for one another, over levels of U1, U2 .. units (N = U1 U2 ..)
      ring           r (N - N/U1), r (N/U1 - N/(U1 U2)) ..     of all, most stay inside
      hierarchical   r (U-1) in each                tree       2 (U1 - 1), 2 log2 U2 ..
      nvls           1 inside                       pat        log2 U in each

Rings, trees and NVLS follow NVIDIA/nccl 2.30.7, src/graph/tuning.cc (2026-06); the double tree is
Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan"
(2009); PAT: Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale"
(arXiv 2506.20252). A ring crosses each unit's boundary once; its channels take turns at the NICs.
"""

from collections.abc import Sequence
from math import log2, prod

import numpy as np

from scaling.profiles.profile import ALGORITHMS, Algorithm
from scaling.program.ir import CollectiveKind

REDUCTIONS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter")
KINDS: dict[Algorithm, tuple[CollectiveKind, ...]] = {
    "ring": (*REDUCTIONS, "broadcast", "permute"),
    "tree": ("all-reduce",),
    "nvls": REDUCTIONS,
    "nvls-tree": ("all-reduce",),
    "sharp": REDUCTIONS,
    "hierarchical": (*REDUCTIONS, "all-to-all", "broadcast"),
    "pairwise": ("all-to-all", "permute"),
    "pat": ("all-gather", "reduce-scatter"),
}
# NCCL's choice on H200 takes as long as its ring with 4 GPUs of a node, and less from 5 on
# (stas00/ml-engineering, network/benchmarks, NVLS sweep); on GB200 the same shows in XLA's table.
NVLS_LEAST = 5
IN_SWITCH: tuple[Algorithm, ...] = ("nvls", "nvls-tree", "sharp")


def rounds(kind: CollectiveKind) -> int:
    """How often the data goes around: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind == "all-reduce" else 1


def shares(
    algorithm: Algorithm,
    kind: CollectiveKind,
    inside: np.ndarray,
    within: np.ndarray,
    members: int,
    innermost: bool,
) -> np.ndarray:
    """What each member adds to its unit's uplink, so that the members of a unit sum to the table.

    Args:
        inside: of each member, how many of its group are in its unit.
        within: how many are in the region that the uplink serves.
        members: of a group.
        innermost: the uplink is that of one chip, to chips that a switch may add for.
    """
    if kind == "all-to-all":
        return (within - inside) / members
    if kind == "broadcast":
        return 1 / inside
    if algorithm == "ring":
        stays = np.where(within < members, 1 - inside / within, 1.0)  # others leave the region
        return rounds(kind) * (1 - 1 / members) * stays / inside
    if innermost and algorithm in IN_SWITCH and kind == "all-reduce":
        return (1 + inside / within) / inside
    if algorithm in ("tree", "nvls-tree"):
        return np.where(within == 2 * inside, 1.0, 2.0) / inside
    if algorithm == "sharp" and kind == "all-reduce":
        return 1 / inside
    return rounds(kind) * (1 - inside / within) / inside


def hops(algorithm: Algorithm, kind: CollectiveKind, units: Sequence[int]) -> list[float]:
    """Hops in each level that wait for one another; `units` that one group joins, inside out."""
    if kind == "permute":
        return [float(n > 1) for n in units]
    if algorithm == "ring" or algorithm == "pairwise":
        return [rounds(kind) * n for n in _of_all(units)]
    if algorithm == "pat":
        return [log2(n) for n in units]
    if algorithm in ("tree", "nvls-tree", "sharp", "nvls"):
        first = 2.0 * (units[0] - 1) if algorithm == "tree" else float(units[0] > 1)
        return [first, *(_climb(algorithm) * log2(n) for n in units[1:])]
    return [rounds(kind) * (n - 1.0) for n in units]


def transfers(algorithm: Algorithm, kind: CollectiveKind, members: int) -> int:
    """Pieces that a member sends one after another; 0: all at once."""
    return rounds(kind) * (members - 1) if algorithm in ("ring", "pairwise") else 0


def is_chosen(algorithm: Algorithm, units: Sequence[int]) -> bool:
    """Whether it is considered by itself, for groups that join so many units in each level.

    Inside one node a tree is a chain: it sends a ring's bytes in as many hops, one way at a time.
    """
    if algorithm == "tree":
        return max(units[1:], default=1) > 1
    return algorithm not in IN_SWITCH or units[0] >= NVLS_LEAST


def refusal(algorithm: Algorithm, kind: CollectiveKind, units: Sequence[int], switch: bool) -> str:
    """Why the algorithm cannot run there; "" if it can.

    Args:
        algorithm, kind: what was asked for.
        units: that one group joins in each level, inside out: [8, 4] for eight chips of each of
            four nodes.
        switch: the chips of a node hang on a switch that can add.
    """
    if kind not in KINDS[algorithm]:
        able = ", ".join(a for a in ALGORITHMS if kind in KINDS[a])
        return f"{algorithm} does not do {kind}; what does: {able}"
    outside = max(units[1:], default=1)
    if algorithm in IN_SWITCH and not switch:
        return f"{algorithm} needs NVSwitches that can add (NVLink SHARP, from Hopper on)"
    if algorithm in IN_SWITCH and units[0] == 1:
        return f"{algorithm} needs several GPUs of a group in a node; here there is 1"
    if algorithm == "nvls" and outside > 1:
        return "nvls stays inside one NVLink domain; nvls-tree or sharp go further"
    if algorithm in ("nvls-tree", "sharp") and outside == 1:
        return f"{algorithm} joins several nodes; inside one it is nvls"
    if algorithm == "pat" and units[0] > 1:
        return f"pat runs with one GPU of a group in a node; here there are {units[0]}"
    return ""


def _of_all(units: Sequence[int]) -> list[float]:
    """Hops of one walk through all members that stay in each level."""
    left, found = float(prod(units)), []
    for n in units:
        found.append(left - left / n)
        left /= n
    return found


def _climb(algorithm: Algorithm) -> float:
    """Hops per doubling: up and down a tree; SHARP's switches answer at once."""
    return 1.0 if algorithm == "sharp" else 2.0
