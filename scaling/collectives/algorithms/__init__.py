"""The collective algorithms, one class each. A new one is a class, a line here, and its test.

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

from scaling.collectives.algorithms.base import CollectiveAlgorithm
from scaling.collectives.algorithms.rings import Hierarchical, OneWayRing, Pairwise, Pat, Ring
from scaling.collectives.algorithms.trees import Nvls, NvlsTree, Sharp, Tree
from scaling.program.ir import CollectiveKind

ALGORITHMS: dict[str, CollectiveAlgorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        *(Ring(), Tree(), Nvls(), NvlsTree(), Sharp(), Hierarchical(), Pairwise(), Pat()),
        OneWayRing(),
    )
}


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes that a rank sends per byte of the call: those of its serial steps, 1/N each.

    What nccl-tests multiplies the algorithm bandwidth by (doc/PERFORMANCE.md).
    """
    if kind in ("permute", "broadcast"):
        return 1.0
    name = "pairwise" if kind == "all-to-all" else "ring"
    return ALGORITHMS[name].serial_steps(kind, ranks) / ranks


def algorithms_of(kind: CollectiveKind) -> tuple[str, ...]:
    """Names of the algorithms that can run a kind of collective."""
    return tuple(name for name, algorithm in ALGORITHMS.items() if kind in algorithm.kinds)
