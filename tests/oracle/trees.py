"""The double binary tree over homes, with a chain through the chips of each.

    tree of 8 homes      0              its mirror image      7
                         4                                    3
                      2     6                              5     1
                     1 3   5 7                            6 4   2 0

Sums climb a chain to the head of its home and a tree to its root, and come down the same way. A
home that passes on in one tree is a leaf of the other (Sanders, Speck and Traeff, "Two-tree
algorithms for full bandwidth broadcast, reduction and scan", 2009), so two trees with half of the
bytes each use all links. Every member of a home has its turn to be head, on its own rail.
"""

from collections.abc import Sequence

from scaling.program.ir import CollectiveKind
from tests.oracle.messages import Plan, grid, has_nvlink


def parents(count: int) -> list[int | None]:
    """The parent of each of `count` homes in the first tree: 0 is the root and has one child.

    An inner home is as many homes away from its parent as the lowest set bit of its number.
    """
    found: list[int | None] = [None]
    for home in range(1, count):
        low = home & -home
        above = (home ^ low) | (low << 1)
        found.append(above if above < count else home ^ low)
    return found


def mirrored(above: Sequence[int | None]) -> list[int | None]:
    """The same tree with the homes counted from the other end."""
    last = len(above) - 1
    return [None if p is None else last - p for p in reversed(above)]


def add_tree(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """An all-reduce on two trees for every head, slice by slice."""
    members = grid(plan.cluster, group)
    count, width = members.shape
    trees = [parents(count), mirrored(parents(count))] if count > 1 else [parents(1)]
    heads = range(width) if has_nvlink(plan.cluster) else range(1)
    size = bytes / len(trees) / len(heads) / slices
    for head in heads:
        chains = [[int(part[(head + i) % width]) for i in range(width)] for part in members]
        for number, above in enumerate(trees):
            for _ in range(slices):
                add_slice(plan, (head, number), chains, above, size)


def add_slice(
    plan: Plan,
    channel: object,
    chains: Sequence[Sequence[int]],
    above: Sequence[int | None],
    size: float,
    ready: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """One slice up and down again.

    Args:
        chains: of each home, its chips, the head first.
        above: parent of each home.
        ready: of each home, the sends after which it starts.

    Returns:
        Of each home, the sends after which its head has the sum.
    """
    summed = [_climb(plan, channel, chain, size) for chain in chains]
    for home, wait in enumerate(ready):
        summed[home] = [*summed[home], *wait]
    for home in _leaves_first(above):
        target = above[home]
        if target is not None:
            ends = chains[home][0], chains[target][0]
            up = plan.send(*ends, size, summed[home], (channel, "up", home))
            summed[target] = [*summed[target], up]
    found: list[list[int]] = [[] for _ in chains]
    for home in reversed(_leaves_first(above)):
        source = above[home]
        found[home] = summed[home]
        if source is not None:
            ends = chains[source][0], chains[home][0]
            found[home] = [plan.send(*ends, size, found[source], (channel, "down", home))]
        _descend(plan, channel, chains[home], size, found[home])
    return found


def _climb(plan: Plan, channel: object, chain: Sequence[int], size: float) -> list[int]:
    """From the end of a chain to its head: what the head waits for."""
    got: list[int] = []
    for source, target in zip(reversed(chain[1:]), reversed(chain[:-1]), strict=True):
        got = [plan.send(source, target, size, got, (channel, "climb", source))]
    return got


def _descend(
    plan: Plan, channel: object, chain: Sequence[int], size: float, got: Sequence[int]
) -> None:
    """From the head of a chain to its end."""
    for source, target in zip(chain[:-1], chain[1:], strict=True):
        got = [plan.send(source, target, size, got, (channel, "descend", source))]


def _leaves_first(above: Sequence[int | None]) -> list[int]:
    """Homes by depth, the deepest first."""

    def depth(home: int) -> int:
        parent = above[home]
        return 0 if parent is None else 1 + depth(parent)

    return sorted(range(len(above)), key=depth, reverse=True)
