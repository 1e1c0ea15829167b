"""Each algorithm written out: which device sends how many bytes to whom, and after what.

    ring          N-1 steps (2 N - 2 of an all-reduce) of B/N to the next, on every channel
    hierarchical  a ring in the home, rings between homes, back; in slices that follow one another
    tree          a chain in each home, a binary tree between their heads and its mirror image
    nvls          everyone to the switch, the sum from there; nvls-tree, sharp: then between homes
    pairwise      N-1 rounds: in one's own home, then to the same and other chips of the next;
                  with a skew, all at once
    pat           log2 N steps: 1, 2, 4 .. shares from as far away
    on a torus    rings and lines along its dimensions (`torus_sends`, `torus_pairs`)

The closed form (`collectives.algorithms`) counts what these load; here they are played, link by
link, by `tests.oracle.replay`. What is pipelined is cut into `slices`: the closed form is the limit
of many. Bytes are counted as in nccl-tests. Sources are those of `scaling.collectives.algorithms`.
"""

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np

from scaling.collectives.algorithms import KINDS, rounds
from scaling.collectives.skew import check_skew, fractions
from scaling.collectives.traffic import STRAIGHT
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind
from tests.oracle.messages import (
    Plan,
    Send,
    channel_orders,
    detours,
    grid,
    homes,
    is_mesh,
    passed,
)
from tests.oracle.switched import add_nvls, add_nvls_tree, add_sharp
from tests.oracle.torus_messages import add_gathers
from tests.oracle.torus_pairs import add_broadcast, add_exchange, add_pairs
from tests.oracle.trees import add_tree


def schedule(
    kind: CollectiveKind,
    bytes: float,
    group: Sequence[int],
    cluster: Cluster,
    algorithm: Algorithm,
    slices: int = 1,
    skew: float = 1.0,
) -> list[Send]:
    """The sends of one group, in an order in which each comes after those that it waits for.

    Args:
        kind, bytes: of the call, as in `scaling.collectives.cost.collective_time`.
        group: device ids; of a permute, the order of the ring, or (source, target).
        slices: parts that a pipelined algorithm works on at once.
        skew: of an all-to-all, what the first member receives over the mean.

    Raises:
        InputError: the algorithm does not do that kind, or a skew that there cannot be.
    """
    if kind not in KINDS[algorithm]:
        able = ", ".join(a for a, kinds in KINDS.items() if kind in kinds)
        raise InputError(f"{algorithm} does not do {kind}; what does: {able}")
    if skew != 1:
        check_skew(kind, skew, len(group))
    plan = Plan(cluster, (detours if kind in STRAIGHT else passed)(cluster, group))
    if len(group) == 1:
        return plan.sends
    if cluster.torus is not None:
        _add_on_torus(plan, kind, bytes, group, slices, skew)
    elif kind == "permute":
        _add_permute(plan, bytes, group)
    elif kind == "broadcast":
        _add_broadcast(plan, bytes, group, slices)
    elif skew > 1:
        _add_skewed(plan, bytes, group, skew)
    elif kind == "all-to-all":
        _add_rounds(plan, bytes, group)
    elif algorithm == "sharp" and kind != "all-reduce":
        _add_hierarchical(plan, kind, bytes, group, slices)
    else:
        _WRITERS[algorithm](plan, kind, bytes, group, slices)
    return plan.sends


def _add_on_torus(
    plan: Plan,
    kind: CollectiveKind,
    bytes: float,
    group: Sequence[int],
    slices: int,
    skew: float,
) -> None:
    """Every algorithm is its rings and lines."""
    if kind == "permute":
        add_pairs(plan, bytes, group)
    elif kind == "all-to-all":
        add_exchange(plan, bytes, group, skew)
    elif kind == "broadcast":
        add_broadcast(plan, bytes, group, slices)
    else:
        add_gathers(plan, kind, bytes, group, slices)


def _add_ring(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Every member passes on what it got, one N-th of its channel's bytes at a time."""
    orders, n = channel_orders(plan.cluster, group), len(group)
    size = bytes / len(orders) / n / slices
    for channel, order in enumerate(orders):
        got: list[list[list[int]]] = [[[]] * slices for _ in order]  # what arrived last, by place
        for _ in range(rounds(kind) * (n - 1)):
            sent = [
                [
                    plan.send(order[i], order[(i + 1) % n], size, waits, (channel, i))
                    for waits in got[i]
                ]
                for i in range(n)
            ]
            got = [[[place] for place in sent[i - 1]] for i in range(n)]


def _add_broadcast(plan: Plan, bytes: float, group: Sequence[int], slices: int) -> None:
    """Along each ring from the first member to the last, slice by slice."""
    orders = channel_orders(plan.cluster, group)
    for channel, order in enumerate(orders):
        first = order.index(int(group[0]))
        chain = order[first:] + order[:first]
        for _ in range(slices):
            got: list[int] = []
            for i in range(len(chain) - 1):
                size = bytes / len(orders) / slices
                got = [plan.send(chain[i], chain[i + 1], size, got, (channel, i))]


def _add_permute(plan: Plan, bytes: float, group: Sequence[int]) -> None:
    """A pair, or a ring in which each member sends to the next."""
    targets = list(group[1:]) if len(group) == 2 else [*group[1:], group[0]]
    for source, target in zip(group, targets, strict=False):
        if source != target:
            plan.spread(source, target, bytes)


def _add_rounds(plan: Plan, bytes: float, group: Sequence[int]) -> None:
    """Round by round, everyone to the one so many homes and so many chips further on.

    Chips that have links to others use all of them at once.
    """
    members, at_once = grid(plan.cluster, group), is_mesh(plan.cluster) or bool(plan.by)
    count, width = members.shape
    got: dict[int, list[int]] = {int(d): [] for d in members.ravel()}
    for far in range(count):
        for along in range(width):
            if far == along == 0:
                continue
            arriving = {}
            for i in range(count):
                for j in range(width):
                    source = int(members[i, j])
                    target = int(members[(i + far) % count, (j + along) % width])
                    arriving[target] = plan.spread(
                        source, target, bytes / members.size, got[source]
                    )
            got = got if at_once and far == 0 else arriving


def _add_skewed(plan: Plan, bytes: float, group: Sequence[int], skew: float) -> None:
    """Everyone to everyone at once: rounds would wait for the one that takes longest in each."""
    busiest, others = fractions(skew, len(group))
    for source, target in permutations(group, 2):
        plan.spread(source, target, bytes * (busiest if target == group[0] else others))


def _add_hierarchical(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Slice by slice: a ring in each home on all of it, rings between homes on a share of it."""
    members = grid(plan.cluster, group)
    width = members.shape[1]
    inside, across = list(members), list(members.T)
    for _ in range(slices):
        got: dict[int, list[int]] = {int(d): [] for d in members.ravel()}
        if kind != "all-gather":
            _level(plan, "down-in", inside, bytes / slices, got)
            _level(plan, "down-out", across, bytes / slices / width, got)
        if kind != "reduce-scatter":
            _level(plan, "up-out", across, bytes / slices / width, got)
            _level(plan, "up-in", inside, bytes / slices, got)


def _level(
    plan: Plan, phase: str, rings: Sequence[np.ndarray], bytes: float, got: dict[int, list[int]]
) -> None:
    """One round of rings side by side; `got`, what each waits for, becomes what it received."""
    for ring in rings:
        orders = channel_orders(plan.cluster, ring.tolist())
        waits = {int(d): got[int(d)] for d in ring}
        ends: dict[int, list[int]] = {int(d): [] for d in ring}
        for channel, order in enumerate(orders):
            held = dict(waits)
            for _ in range(len(order) - 1):
                passed = {}
                for i, source in enumerate(order):
                    target = order[(i + 1) % len(order)]
                    size = bytes / len(orders) / len(order)
                    queue = (phase, channel, source)
                    passed[target] = [plan.send(source, target, size, held[source], queue)]
                held = passed
            for device, last in held.items():
                ends[device] += [place for place in last if place not in ends[device]]
        got.update(ends)


def _add_pat(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Twice as many shares from twice as far at every step; a reduce-scatter runs it backwards."""
    order, n = [d for part in homes(plan.cluster, group) for d in part], len(group)
    steps = [1 << k for k in range((n - 1).bit_length())]
    if kind == "reduce-scatter":
        steps.reverse()
    got: list[list[int]] = [[] for _ in order]
    for step in steps:
        size = min(step, n - step) * bytes / n
        sent = [plan.send(order[i], order[(i + step) % n], size, got[i]) for i in range(n)]
        got = [[sent[(i - step) % n]] for i in range(n)]


_WRITERS: dict[Algorithm, Callable[..., None]] = {
    "ring": _add_ring,
    "tree": add_tree,
    "nvls": add_nvls,
    "nvls-tree": add_nvls_tree,
    "sharp": add_sharp,
    "hierarchical": _add_hierarchical,
    "pat": _add_pat,
}
