"""The double binary tree over NVLink domains, with a chain through the chips of each.

    tree of 8 domains    0              its mirror image      7
                         4                                    3
                      2     6                              5     1
                     1 3   5 7                            6 4   2 0

Sums climb a chain to the head of its domain and a tree to its root, and come down the same way. A
domain that forwards in one tree is a leaf of the other (Sanders, Speck and Traeff, "Two-tree
algorithms for full bandwidth broadcast, reduction and scan", 2009), so that two trees with half of
the bytes each use all links. Every member of a domain has its turn to be head, on its own rail.
"""

from collections.abc import Hashable, Sequence

from tests.oracle.messages import ScheduleBuilder

Tree = list[int | None]  # the parent of each domain; None: the root


def parents(count: int) -> Tree:
    """The first tree: domain 0 is the root and has one child.

    An inner domain is as many domains away from its parent as the lowest set bit of its number.
    """
    tree: Tree = [None]
    for domain in range(1, count):
        low = domain & -domain
        above = (domain ^ low) | (low << 1)
        tree.append(above if above < count else domain ^ low)
    return tree


def mirrored(tree: Tree) -> Tree:
    """The same tree with the domains counted from the other end."""
    last = len(tree) - 1
    return [None if p is None else last - p for p in reversed(tree)]


def add_tree_slice(
    builder: ScheduleBuilder,
    channel: Hashable,
    chains: Sequence[Sequence[int]],
    tree: Tree,
    size: float,
    ready: Sequence[Sequence[int]] = (),
) -> list[list[int]]:
    """Adds one slice of `size` bytes on its way up and down the chains (heads first) and the tree.

    A domain starts after the messages of `ready`. Returns for each domain the messages after which
    its head has the sum.
    """
    summed = [_along(builder, (channel, "climb"), chain[::-1], size, ()) for chain in chains]
    for domain, messages in enumerate(ready):
        summed[domain] = [*summed[domain], *messages]
    leaves_first = sorted(range(len(tree)), key=lambda d: _depth(tree, d), reverse=True)
    for domain in leaves_first:
        parent = tree[domain]
        if parent is not None:
            ends = chains[domain][0], chains[parent][0]
            up = builder.send(*ends, size, summed[domain], (channel, "up", domain))
            summed[parent] = [*summed[parent], up]
    received: list[list[int]] = [[] for _ in chains]
    for domain in reversed(leaves_first):
        parent = tree[domain]
        received[domain] = summed[domain]
        if parent is not None:
            ends = chains[parent][0], chains[domain][0]
            down = builder.send(*ends, size, received[parent], (channel, "down", domain))
            received[domain] = [down]
        _along(builder, (channel, "descend"), chains[domain], size, received[domain])
    return received


def _along(
    builder: ScheduleBuilder,
    channel: Hashable,
    chain: Sequence[int],
    size: float,
    after: Sequence[int],
) -> list[int]:
    """Sends a slice along a chain of chips; returns what the last one waits for."""
    received = list(after)
    for source, target in zip(chain[:-1], chain[1:], strict=True):
        received = [builder.send(source, target, size, received, (channel, source))]
    return received


def _depth(tree: Tree, domain: int) -> int:
    parent = tree[domain]
    return 0 if parent is None else 1 + _depth(tree, parent)
