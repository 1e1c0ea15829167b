"""Each algorithm as a list of messages: which device sends how many bytes to whom, after what.

    ring        N-1 steps (2 N - 2 of an all-reduce) of B/N to the next member, on every channel
    tree        a chain in each NVLink domain, a double binary tree between their heads
    nvls        everyone to the switch, the sum from there; nvls-tree: then a tree between domains
    pairwise    N-1 rounds: in the own domain, then to the same and other chips of the next
    pat         log2 N steps: 1, 2, 4 .. shares from as far away
    permute     one message to each target; broadcast: along each ring

Pipelined algorithms work on `slices`: the closed form of `scaling.collectives` is the limit of
many. Bytes are those of nccl-tests. Sources: NVIDIA/nccl 2.30.7, src/graph/tuning.cc; PAT: Jeaugey,
"PAT: a new algorithm for all-gather and reduce-scatter operations at scale" (arXiv 2506.20252).
"""

from collections.abc import Sequence
from typing import NamedTuple

from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind
from tests.oracle.channels import (
    channel_orders,
    domain_grid,
    forwarding_chips,
    has_nvlink,
    is_mesh,
    nvlink_domains,
)
from tests.oracle.messages import Message, ScheduleBuilder
from tests.oracle.trees import add_tree_slice, mirrored, parents

Waits = dict[int, list[int]]  # device -> the messages after which it goes on


class Call(NamedTuple):
    """One collective in one group; bytes as nccl-tests counts them."""

    kind: CollectiveKind
    bytes: float
    group: list[int]
    slices: int


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

    Raises:
        ValueError: the algorithm is not replayed on that cluster.
    """
    group = [int(d) for d in group]
    builder = ScheduleBuilder(cluster, forwarding_chips(cluster, group))
    writer = _WRITERS.get(kind) or _WRITERS.get(algorithm)
    if writer is None or cluster.torus is not None:
        raise ValueError(f"{algorithm} on {cluster.name} is not replayed")
    if len(group) > 1:
        writer(builder, Call(kind, bytes, group, slices))
    return builder.messages


def _rounds(kind: CollectiveKind) -> int:
    """An all-reduce is a reduce-scatter and an all-gather."""
    return 2 if kind == "all-reduce" else 1


def _add_ring(builder: ScheduleBuilder, call: Call) -> None:
    """Every member forwards what it received, one N-th of its channel's bytes at a time."""
    orders, n = channel_orders(builder.cluster, call.group), len(call.group)
    size = call.bytes / len(orders) / n / call.slices
    for channel, order in enumerate(orders):
        received: list[list[list[int]]] = [[[]] * call.slices for _ in order]  # [place][slice]
        for _ in range(_rounds(call.kind) * (n - 1)):
            sent = [
                [
                    builder.send(order[i], order[(i + 1) % n], size, after, (channel, i))
                    for after in received[i]
                ]
                for i in range(n)
            ]
            received = [[[number] for number in sent[i - 1]] for i in range(n)]


def _add_broadcast(builder: ScheduleBuilder, call: Call) -> None:
    """Along each ring from the first member to the last, slice by slice."""
    orders = channel_orders(builder.cluster, call.group)
    size = call.bytes / len(orders) / call.slices
    for channel, order in enumerate(orders):
        first = order.index(call.group[0])
        chain = order[first:] + order[:first]
        for _ in range(call.slices):
            received: list[int] = []
            for i, (source, target) in enumerate(zip(chain[:-1], chain[1:], strict=True)):
                received = [builder.send(source, target, size, received, (channel, i))]


def _add_permute(builder: ScheduleBuilder, call: Call) -> None:
    """A pair, or a ring in which each member sends to the next."""
    targets = call.group[1:] if len(call.group) == 2 else [*call.group[1:], call.group[0]]
    for source, target in zip(call.group, targets, strict=False):
        if source != target:
            builder.send(source, target, call.bytes)


def _add_pairwise(builder: ScheduleBuilder, call: Call) -> None:
    """Round by round, everyone to the member so many domains and so many chips further on.

    Chips with a link to each of the others use all of them at once.
    """
    members, at_once = domain_grid(builder.cluster, call.group), is_mesh(builder.cluster)
    domains, width = members.shape
    received: Waits = {device: [] for device in call.group}
    for far in range(domains):
        for along in range(width):
            if far == along == 0:
                continue
            arriving: Waits = {}
            for i in range(domains):
                for j in range(width):
                    source = int(members[i, j])
                    target = int(members[(i + far) % domains, (j + along) % width])
                    number = builder.send(
                        source, target, call.bytes / len(call.group), received[source]
                    )
                    arriving[target] = [number]
            received = received if at_once and far == 0 else arriving


def _add_pat(builder: ScheduleBuilder, call: Call) -> None:
    """Twice as many shares from twice as far at every step; a reduce-scatter runs it backwards."""
    order, n = sorted(call.group), len(call.group)
    steps = [1 << k for k in range((n - 1).bit_length())]
    received: list[list[int]] = [[] for _ in order]
    for step in reversed(steps) if call.kind == "reduce-scatter" else steps:
        size = min(step, n - step) * call.bytes / n
        sent = [builder.send(order[i], order[(i + step) % n], size, received[i]) for i in range(n)]
        received = [[sent[(i - step) % n]] for i in range(n)]


def _add_tree(builder: ScheduleBuilder, call: Call) -> None:
    """An all-reduce on two trees for every head, slice by slice."""
    members = domain_grid(builder.cluster, call.group)
    domains, width = members.shape
    trees = [parents(domains), mirrored(parents(domains))] if domains > 1 else [parents(1)]
    heads = range(width) if has_nvlink(builder.cluster) else range(1)
    size = call.bytes / len(trees) / len(heads) / call.slices
    for head in heads:
        chains = [[int(part[(head + i) % width]) for i in range(width)] for part in members]
        for number, tree in enumerate(trees):
            for _ in range(call.slices):
                add_tree_slice(builder, (head, number), chains, tree, size)


def _add_nvls(builder: ScheduleBuilder, call: Call) -> None:
    """The switch of one NVLink domain adds up, and repeats."""
    assert len(nvlink_domains(builder.cluster, call.group)) == 1
    reduces = call.kind == "all-reduce"
    for _ in range(call.slices):
        received: Waits = {device: [] for device in call.group}
        if call.kind != "all-gather":
            received = _reduce_in_switch(builder, call.bytes / call.slices, call.group, reduces)
        if call.kind != "reduce-scatter":
            _repeat_in_switch(builder, call.bytes / call.slices, call.group, received, reduces)


def _add_nvls_tree(builder: ScheduleBuilder, call: Call) -> None:
    """An all-reduce: sums of each domain in its switch, shares of them over two trees."""
    members, size = domain_grid(builder.cluster, call.group), call.bytes / call.slices
    trees = [parents(len(members)), mirrored(parents(len(members)))]
    for _ in range(call.slices):
        received: Waits = {}
        for part in members.tolist():
            received |= _reduce_in_switch(builder, size, part, True)
        for rail in members.T.tolist():
            share = size / members.shape[1] / len(trees)
            ready, chains = [received[d] for d in rail], [[d] for d in rail]
            sums = [
                add_tree_slice(builder, (rail[0], number), chains, tree, share, ready)
                for number, tree in enumerate(trees)
            ]
            received |= {d: [*sums[0][i], *sums[1][i]] for i, d in enumerate(rail)}
        for part in members.tolist():
            _repeat_in_switch(builder, size, part, received, True)


def _reduce_in_switch(
    builder: ScheduleBuilder, bytes: float, members: list[int], own: bool
) -> Waits:
    """A reduce-scatter; with `own`, a chip's own part passes the switch too."""
    switch, n = _switch_name(builder.cluster, members[0]), len(members)
    share = bytes * (1 if own else (n - 1) / n)
    sent = [builder.send(d, switch, share, (), ("in", d)) for d in members]
    return {d: [builder.send(switch, d, bytes / n, sent, ("sum", d))] for d in members}


def _repeat_in_switch(
    builder: ScheduleBuilder, bytes: float, members: list[int], received: Waits, own: bool
) -> None:
    """An all-gather: the switch repeats what each chip sends once."""
    switch, n = _switch_name(builder.cluster, members[0]), len(members)
    for source in members:
        up = builder.send(source, switch, bytes / n, received[source], ("out", source))
        for target in members:
            if own or target != source:
                builder.send(switch, target, bytes / n, [up], ("repeat", source, target))


def _switch_name(cluster: Cluster, device: int) -> str:
    """Name in the graph of the NVSwitch of a device."""
    node = device // cluster.devices_per_node
    if cluster.domain_nodes > 1:
        return f"domain{node // cluster.domain_nodes}/nvswitch0"
    return f"node{node}/nvswitch0"


# By kind where it decides, else by algorithm
_WRITERS = {
    "permute": _add_permute,
    "broadcast": _add_broadcast,
    "all-to-all": _add_pairwise,
    "ring": _add_ring,
    "tree": _add_tree,
    "nvls": _add_nvls,
    "nvls-tree": _add_nvls_tree,
    "pat": _add_pat,
}
