"""The collective algorithms, one row each. A new one is a row of the table below, and its test.

bytes out of a unit that holds s of the N members, per byte of the call
  ring           r (N-1)/N                    r = 2 rounds of an all-reduce, else 1
  hierarchical   1 - s/N                      in every level only what the others lack;
                 2 (1 - 1/U) of an all-reduce  every one of U units sums an equal part
  tree           1 between two units, else 2  double binary: inner in one, leaf in the other
  nvls           1 + 1/N of an all-reduce     the switch adds and repeats; else 1 - 1/N
  nvls-tree      nvls inside, tree outside    sharp: nvls inside, 1 outside
  pairwise       s (N-s)/N                    every member to every other
  pat            1 - s/N                      hierarchical bytes in log2 steps
  one-way-ring   (N-1)/2 of an all-to-all     passed on along a ring, in one direction

hops that wait for one another, over levels of U1, U2 .. units (N = U1 U2 ..)
  ring           r (N - N/U1), r (N/U1 - N/(U1 U2)) ..     of all, most stay inside
  hierarchical   r (U-1) in each                tree       2 (U1 - 1), 2 log2 U2 ..
  nvls           1 inside                       pat        log2 U in each
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2, prod
from typing import Literal

import numpy as np

from scaling.program.ir import CollectiveKind, Number

Kinds = tuple[CollectiveKind, ...]
SUMS: Kinds = ("all-reduce",)
GATHERS: Kinds = ("all-gather", "reduce-scatter")
REDUCTIONS: Kinds = (*SUMS, *GATHERS)
EXCHANGES: Kinds = ("all-to-all",)
SENDS: Kinds = ("all-to-all", "permute")
LEVELS: Kinds = (*REDUCTIONS, "all-to-all", "broadcast")
RINGS: Kinds = (*REDUCTIONS, "broadcast", "permute")


@dataclass(frozen=True, eq=False)
class Boundary:
    """Members of groups on both sides of the links of a level: int arrays [classes]."""

    in_unit: np.ndarray  # members of the group in the member's unit
    in_region: np.ndarray  # members of the group in the region that the links serve
    units: np.ndarray  # units of the group in that region
    ranks: int  # members of a group
    innermost: bool = False  # the links of one chip, to chips that a switch may add for


@dataclass(frozen=True)
class LinkLoad:
    """Load of a collective on the busiest pool of links of a level."""

    share: float  # bytes over it per byte of the call
    groups: int = 0  # groups that use that pool at once
    units: int = 1  # units that one group joins within a parent, at most
    serial_steps: int = 0  # pieces that a member sends one after another; 0: all at once
    min_share: float | None = None  # the share that no order of steps gets below; None: `share`
    torus_hops: float | None = None  # on a torus, overlapped with the bytes; None: the algorithm's
    hops_per_message: int = 1  # links in a row of each of the algorithm's hops

    @property
    def least(self) -> float:
        """The share that no order of steps gets below."""
        return self.share if self.min_share is None else self.min_share


Bytes = Callable[[CollectiveKind, Boundary], np.ndarray]
Hops = Callable[[CollectiveKind, Sequence[int], int], list[float]]


@dataclass(frozen=True)
class Algorithm:
    """The bytes an algorithm puts on each level, and how many of its hops wait for one another.

    `units`, here and below, are the most that one group joins in a unit of each level, from the
    chip outwards: [8, 4] for eight chips of each of four nodes, [7, 2] for seven and one.
    """

    name: str
    kinds: Kinds
    bytes_out: Bytes  # per byte of the call that each member sends out of its unit; float [classes]
    hops: Hops  # in each level that wait for one another, of one of `kinds`, units and ranks
    passes_on: bool = False  # a member sends a piece of every other, one after another
    on_torus: bool = False  # the links of a torus can run it
    in_network: bool = False  # needs switches between nodes that add up (SHARP)
    reach: Literal["any", "one GPU of a node", "domain", "domains"] = "any"  # of NVLink
    considered: Literal["always", "between nodes", "never"] = "always"  # by `auto`

    @property
    def in_switch(self) -> bool:
        """True if it needs switches that add up (NVLink SHARP)."""
        return self.reach in ("domain", "domains")

    def serial_steps(self, kind: CollectiveKind, ranks: int) -> int:
        """Pieces that a member sends one after another; 0: all at once."""
        return rounds(kind) * (ranks - 1) if self.passes_on else 0

    def refusal(self, units: Sequence[int]) -> str:
        """Reason why groups that join so many units cannot run it; "" if they can."""
        here, nodes = units[0], nodes_joined(units)
        if self.reach == "one GPU of a node" and here > 1:
            return f"{self.name} runs with one GPU of a group in a node; here there are {here}"
        if self.in_switch and here == 1:
            return f"{self.name} needs several GPUs of a group in a node; here there is 1"
        if self.reach == "domain" and nodes > 1:
            return f"{self.name} stays inside one NVLink domain; nvls-tree or sharp go further"
        if self.reach == "domains" and nodes == 1:
            return f"{self.name} joins several nodes; inside one it is nvls"
        return ""

    def is_considered(self, units: Sequence[int]) -> bool:
        """True if `auto` considers it for groups that join so many units in each level."""
        is_between = self.considered == "between nodes" and nodes_joined(units) > 1
        return self.considered == "always" or is_between


def rounds(kind: CollectiveKind) -> int:
    """Number of times the data goes around: an all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind == "all-reduce" else 1


def nodes_joined(units: Sequence[int]) -> int:
    """The most units that a group joins in any level above the innermost; 1: it stays inside."""
    return max(units[1:], default=1)


# Bytes out of a unit


def lacking(kind: CollectiveKind, at: Boundary) -> np.ndarray:
    """Only the bytes that other units lack, every round."""
    if kind == "all-to-all":
        return (at.in_region - at.in_unit) / at.ranks
    if kind == "broadcast":
        return 1 / at.in_unit
    return rounds(kind) * (1 - at.in_unit / at.in_region) / at.in_unit


def equal_sums(kind: CollectiveKind, at: Boundary) -> np.ndarray:
    """In an all-reduce each of U units sums an equal part, whatever its members: 2 (1 - 1/U)."""
    if kind == "all-reduce":
        return 2 * (1 - 1 / at.units) / at.in_unit
    return lacking(kind, at)


def around_a_ring(kind: CollectiveKind, at: Boundary) -> np.ndarray:
    """r (N-1)/N; of an all-to-all (N-1)/2.

    If a group leaves the region, only part of its ring's hops stay inside.
    """
    if kind == "broadcast":
        return 1 / at.in_unit
    stays = np.where(at.in_region < at.ranks, 1 - at.in_unit / at.in_region, 1.0)
    if kind == "all-to-all":
        return (at.ranks - 1) / 2 * stays / at.in_unit
    return rounds(kind) * (1 - 1 / at.ranks) * stays / at.in_unit


def up_two_trees(kind: CollectiveKind, at: Boundary) -> np.ndarray:
    """All bytes once between two units, else twice: each unit is inner node of one of two trees."""
    return np.where(at.units == 2, 1.0, 2.0) / at.in_unit


def once(kind: CollectiveKind, at: Boundary) -> np.ndarray:
    """Each byte of an all-reduce once: the switches outside add up."""
    return 1 / at.in_unit if kind == "all-reduce" else lacking(kind, at)


def in_switch(outside: Bytes) -> Bytes:
    """(1 + 1/N) of an all-reduce inside an NVLink domain; between domains as `outside`.

    A GPU sends its data up to the switch once and takes 1/N of the sum to pass on. Restated from
    NVIDIA/nccl 2.30.7, src/graph/tuning.cc (2026-06).
    """

    def bytes_out(kind: CollectiveKind, at: Boundary) -> np.ndarray:
        if kind == "all-reduce" and at.innermost:
            return (1 + at.in_unit / at.in_region) / at.in_unit
        return outside(kind, at)

    return bytes_out


# Hops in each level


def through_all(kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
    """Walks through all members; a permute has one hop in each level."""
    if kind == "permute":
        return [float(n > 1) for n in units]
    left = [float(min(ranks, prod(units[i:]))) for i in range(len(units) + 1)]
    return [rounds(kind) * (inside - outside) for inside, outside in pairwise(left)]


def ring_of_units(kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
    """A ring of the units in each level."""
    return [rounds(kind) * (n - 1.0) for n in units]


def chain_and_trees(kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
    """Up and down the chain of a node, and the height of the tree outside."""
    return [2.0 * (units[0] - 1), *(2 * log2(n) for n in units[1:])]


def switch_and_trees(per_doubling: float) -> Hops:
    """One hop to the switch and back, and so many for each doubling of the nodes outside."""
    return lambda _, units, __: [float(units[0] > 1), *(per_doubling * log2(n) for n in units[1:])]


def height(kind: CollectiveKind, units: Sequence[int], ranks: int) -> list[float]:
    """The height of a binary tree in each level."""
    return [log2(n) for n in units]


# One row each

TABLE = (
    # One ring through all members passes pieces on; its channels take turns at a node's NICs. It
    # crosses the boundary of each unit once; most of its hops stay inside the innermost level.
    Algorithm("ring", RINGS, around_a_ring, through_all, passes_on=True, on_torus=True),
    # Double binary trees between nodes: half of the bytes up and down each; a chain in each node.
    # Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
    # scan" (2009). Inside a node it is a chain, a ring's bytes and hops in one direction.
    Algorithm("tree", SUMS, up_two_trees, chain_and_trees, considered="between nodes"),
    # Reductions in the NVSwitches of one NVLink domain; with double binary trees between domains.
    Algorithm("nvls", REDUCTIONS, in_switch(lacking), switch_and_trees(2), reach="domain"),
    Algorithm("nvls-tree", SUMS, in_switch(up_two_trees), switch_and_trees(2), reach="domains"),
    # The same with the network's switches, which add up between domains, and answer at once. Only
    # where a job asks for it: NCCL leaves the network's switches alone by default.
    Algorithm(
        "sharp",
        REDUCTIONS,
        in_switch(once),
        switch_and_trees(1),
        in_network=True,
        reach="domains",
        considered="never",
    ),
    # All-to-alls and permutes as sends and receives, one peer after another. A permute counts its
    # own pairs (`scaling.collectives.contention`). Before `hierarchical`, which in one level is the
    # same: of equally fast ones the first is named.
    Algorithm("pairwise", SENDS, lacking, through_all, passes_on=True, on_torus=True),
    # In every level a unit sends only what the other units lack. The bound of "How to Scale Your
    # Model" (jax-ml/scaling-book, gpus.md, 2026-06). No GPU library runs it: considered with the
    # ideal profile or on request.
    Algorithm("hierarchical", LEVELS, equal_sums, ring_of_units, on_torus=True),
    # The bytes of a ring in log2 N steps. Jeaugey, "PAT: a new algorithm for all-gather and
    # reduce-scatter operations at scale" (arXiv 2506.20252).
    Algorithm("pat", GATHERS, lacking, height, reach="one GPU of a node"),
    # All-to-alls on a ring that sends one way: members between two pass their pieces on. Over each
    # link of N go the pieces, V/N each, of N (N-1)/2 pairs: half of an all-gather's bytes. Problem
    # 10 of "How to Scale Your Model", chapter on sharded matrices (jax-ml/scaling-book,
    # sharding.md, 2026-06). No library runs it: on request only.
    Algorithm(
        "one-way-ring", EXCHANGES, around_a_ring, through_all, passes_on=True, considered="never"
    ),
)
ALGORITHMS = {algorithm.name: algorithm for algorithm in TABLE}


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes that a rank sends per byte of the call: those of its serial steps, 1/N each.

    What nccl-tests multiplies the algorithm bandwidth by (doc/PERFORMANCE.md).
    """
    if kind in ("permute", "broadcast"):
        return 1.0
    name = "pairwise" if kind == "all-to-all" else "ring"
    return ALGORITHMS[name].serial_steps(kind, ranks) / ranks


def memory_passes(kind: CollectiveKind, ranks: Number) -> Number:
    """Bytes that a GPU reads and writes in its memory per byte of the call, out of place.

    NCCL's Simple protocol (src/device/prims_simple.h): each byte that arrives is written to a
    buffer by its sender, read from there, and written to the result, or added to a byte that is
    read. What a GPU sends of its own is read besides: the first piece of a ring, all of an
    all-to-all and of a permute. Its own piece of the result is written, too.
    """
    if kind in ("permute", "broadcast"):
        return 4.0 if kind == "permute" else 3.0
    own = (ranks - 1) / ranks if kind == "all-to-all" else 0.0
    return 3 * (ranks - 1) / ranks * (1 + (kind == "all-reduce")) + own + 2 / ranks


def algorithms_of(kind: CollectiveKind) -> tuple[str, ...]:
    """Names of the algorithms that can run a kind of collective."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if kind in algorithm.kinds)
