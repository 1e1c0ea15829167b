"""Each algorithm as a list of messages: which device sends how many bytes to whom, after what.

    ring        N-1 steps (2 N - 2 of an all-reduce) of B/N to the next member, on every channel
    tree        a chain in each NVLink domain, a double binary tree between their heads
    nvls        everyone to the switch of one domain, the sum from there
    pairwise    N-1 rounds: in the own domain, then to the same and other chips of the next
    permute     one message to each target

Pipelined algorithms work on `slices`: the closed form of `scaling.collectives` is the limit of
many. Bytes are those of nccl-tests. Source: NVIDIA/nccl 2.30.7, src/graph/tuning.cc.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind
from tests.oracle.channels import channel_orders, nvlink_domains, turned
from tests.oracle.graph import chip_name

Waits = dict[int, list[int]]  # device -> the messages after which it goes on
Tree = list[int | None]  # the parent of each domain; None: the root


@dataclass(frozen=True)
class Message:
    """Bytes from one node of the cluster's graph to another.

    A message starts when those in `after` have arrived and those in `behind` have left, as a
    thread block does that works through its channel step by step.
    """

    source: str
    target: str
    bytes: float
    after: tuple[int, ...] = ()  # numbers of earlier messages of the schedule
    behind: tuple[int, ...] = ()


@dataclass
class Call:
    """One collective in one group, and its messages so far; bytes as nccl-tests counts them."""

    cluster: Cluster
    kind: CollectiveKind
    bytes: float
    group: list[int]
    slices: int
    messages: list[Message] = field(default_factory=list)
    last: dict[Hashable, int] = field(default_factory=dict)  # message of each queue

    @property
    def rounds(self) -> int:
        """An all-reduce is a reduce-scatter and an all-gather."""
        return 2 if self.kind == "all-reduce" else 1

    @property
    def domains(self) -> np.ndarray:
        """Device numbers [domains, members of each], for groups with as many members in each."""
        domains = nvlink_domains(self.cluster, self.group)
        assert len({len(members) for members in domains}) == 1, "domains with as many members each"
        return np.array(domains)

    def send(
        self,
        source: int | str,
        target: int | str,
        bytes: float,
        after: Sequence[int] = (),
        queue: Hashable = None,
    ) -> int:
        """Adds one message between devices or nodes of the graph and returns its number.

        It leaves after the messages of `after` arrived and the last one of its queue left.
        """
        behind = (self.last[queue],) if queue in self.last else ()
        if queue is not None:
            self.last[queue] = len(self.messages)
        ends = [e if isinstance(e, str) else chip_name(self.cluster, e) for e in (source, target)]
        self.messages.append(Message(ends[0], ends[1], bytes, tuple(after), behind))
        return len(self.messages) - 1


def schedule(
    kind: CollectiveKind,
    bytes: float,
    group: Sequence[int],
    cluster: Cluster,
    algorithm: str,
    slices: int = 1,
) -> list[Message]:
    """Messages of one group; each comes after those that it waits for.

    Args:
        kind, bytes: as in `scaling.collectives.cost.collective_time`.
        group: device ids; of a permute, the order of the ring, or (source, target).
        cluster: where the devices are.
        algorithm: one of the module's docstring.
        slices: parts that a pipelined algorithm works on at once.
    """
    call = Call(cluster, kind, bytes, [int(d) for d in group], slices)
    if len(group) > 1:
        by_kind = {"permute": _add_permute, "all-to-all": _add_pairwise}
        (by_kind.get(kind) or WRITERS[algorithm])(call)
    return call.messages


# Point to point


def _add_ring(call: Call) -> None:
    """Every member forwards what it received, one N-th of its channel's bytes at a time."""
    orders, n = channel_orders(call.cluster, call.group), len(call.group)
    size = call.bytes / len(orders) / n / call.slices
    for channel, order in enumerate(orders):
        received: list[list[list[int]]] = [[[]] * call.slices for _ in order]  # [place][slice]
        for _ in range(call.rounds * (n - 1)):
            sent = [
                [
                    call.send(order[i], order[(i + 1) % n], size, after, (channel, i))
                    for after in received[i]
                ]
                for i in range(n)
            ]
            received = [[[number] for number in sent[i - 1]] for i in range(n)]


def _add_permute(call: Call) -> None:
    """A pair, or a ring in which each member sends to the next."""
    targets = call.group[1:] if len(call.group) == 2 else [*call.group[1:], call.group[0]]
    for source, target in zip(call.group, targets, strict=False):
        if source != target:
            call.send(source, target, call.bytes)


def _add_pairwise(call: Call) -> None:
    """Round by round, everyone to the member so many domains and so many chips further on."""
    domains, width = call.domains.shape
    received: Waits = {device: [] for device in call.group}
    for far, along in list(np.ndindex(domains, width))[1:]:
        arriving: Waits = {}
        for (i, j), source in np.ndenumerate(call.domains):
            target = int(call.domains[(i + far) % domains, (j + along) % width])
            size = call.bytes / len(call.group)
            arriving[target] = [call.send(int(source), target, size, received[source])]
        received = arriving


# In the switch


def _add_nvls(call: Call) -> None:
    """The switch of one NVLink domain adds up, and repeats; an own part passes it if it adds."""
    assert len(call.domains) == 1
    node, n = call.group[0] // call.cluster.devices_per_node, len(call.group)
    switch, size = f"node{node}/nvswitch0", call.bytes / call.slices
    adds = call.kind == "all-reduce"
    for _ in range(call.slices):
        received: Waits = {device: [] for device in call.group}
        if call.kind != "all-gather":
            share = size if adds else size * (n - 1) / n
            sent = [call.send(d, switch, share, (), ("in", d)) for d in call.group]
            received = {d: [call.send(switch, d, size / n, sent, ("sum", d))] for d in call.group}
        if call.kind == "reduce-scatter":
            continue
        for source in call.group:
            up = call.send(source, switch, size / n, received[source], ("out", source))
            for target in call.group:
                if adds or target != source:
                    call.send(switch, target, size / n, [up], ("repeat", source, target))


# Trees


def parents(count: int) -> Tree:
    """The first of two trees over domains: domain 0 is the root and has one child.

        tree of 8 domains    0              its mirror image      7
                             4                                    3
                          2     6                              5     1
                         1 3   5 7                            6 4   2 0

    An inner domain is as many domains away from its parent as the lowest set bit of its number; it
    is a leaf of the other tree, so that both with half of the bytes use all links (Sanders, Speck
    and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", 2009).
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


def _add_tree(call: Call) -> None:
    """An all-reduce on two trees for every head, slice by slice; each member has its turn."""
    domains, width = call.domains.shape
    trees = [parents(domains), mirrored(parents(domains))] if domains > 1 else [parents(1)]
    heads = range(width) if "nvswitch" in call.cluster.parts else range(1)
    size = call.bytes / len(trees) / len(heads) / call.slices
    for head in heads:
        chains = [turned(part.tolist(), head) for part in call.domains]
        for number, tree in enumerate(trees):
            for _ in range(call.slices):
                _add_tree_slice(call, (head, number), chains, tree, size)


def _add_tree_slice(
    call: Call, channel: Hashable, chains: list[list[int]], tree: Tree, size: float
) -> None:
    """One slice of `size` bytes on its way up the chains (heads first) and the tree, and down."""
    summed = [_along(call, (channel, "climb"), chain[::-1], size, ()) for chain in chains]
    leaves_first = sorted(range(len(tree)), key=lambda d: _depth(tree, d), reverse=True)
    for domain in leaves_first:
        parent = tree[domain]
        if parent is not None:
            ends = chains[domain][0], chains[parent][0]
            summed[parent] += [call.send(*ends, size, summed[domain], (channel, "up", domain))]
    received = summed[:]
    for domain in reversed(leaves_first):
        parent = tree[domain]
        if parent is not None:
            ends = chains[parent][0], chains[domain][0]
            queue = channel, "down", domain
            received[domain] = [call.send(*ends, size, received[parent], queue)]
        _along(call, (channel, "descend"), chains[domain], size, received[domain])


def _along(
    call: Call, channel: Hashable, chain: Sequence[int], size: float, after: Sequence[int]
) -> list[int]:
    """Sends a slice along a chain of chips; returns what the last one waits for."""
    received = list(after)
    for source, target in zip(chain[:-1], chain[1:], strict=True):
        received = [call.send(source, target, size, received, (channel, source))]
    return received


def _depth(tree: Tree, domain: int) -> int:
    parent = tree[domain]
    return 0 if parent is None else 1 + _depth(tree, parent)


WRITERS: dict[str, Callable[[Call], None]] = {
    "ring": _add_ring,
    "tree": _add_tree,
    "nvls": _add_nvls,
}
