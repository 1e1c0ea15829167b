"""Sums made in switches: NVLink SHARP inside a home, a tree or SHARP's leaf switches between homes.

    nvls       all chips send their slice up; the switch sends each its share of the sum;
               each sends that share up once, and the switch repeats it to all others
    nvls-tree  between the two halves, the shares go over a double tree of the same chips
    sharp      there, each NIC sends its share to its leaf switch, which sends back the sum

A switch that adds sends on a slice when all have sent theirs; slices follow one another.
"""

from collections.abc import Callable, Sequence

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.graph import leaf_name
from scaling.program.ir import CollectiveKind
from tests.oracle.messages import Plan, grid, homes, switch_name
from tests.oracle.trees import add_slice, mirrored, parents

Waits = dict[int, list[int]]  # device -> the sends after which it goes on


def add_nvls(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Inside one home."""
    members = [int(d) for d in group]
    if len(homes(plan.cluster, members)) > 1:
        raise InputError("nvls stays inside one NVLink domain; nvls-tree or sharp go further")
    for _ in range(slices):
        got: Waits = {d: [] for d in members}
        if kind != "all-gather":
            got = reduce_inside(plan, bytes / slices, members, kind == "all-reduce")
        if kind != "reduce-scatter":
            repeat_inside(plan, bytes / slices, members, got, kind == "all-reduce")


def add_nvls_tree(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Over several homes, which a double tree joins."""
    _add_beyond(plan, bytes, group, slices, _over_trees)


def add_sharp(
    plan: Plan, kind: CollectiveKind, bytes: float, group: Sequence[int], slices: int
) -> None:
    """Over several homes, whose leaf switches add."""
    _add_beyond(plan, bytes, group, slices, _over_leaf)


def _add_beyond(
    plan: Plan,
    bytes: float,
    group: Sequence[int],
    slices: int,
    between: Callable[[Plan, float, Sequence[int], Waits], None],
) -> None:
    """An all-reduce over several homes: shares of the sums of all homes meet in between."""
    members, size = grid(plan.cluster, group), bytes / slices
    for _ in range(slices):
        got: Waits = {}
        for part in members.tolist():
            got |= reduce_inside(plan, size, part, True)
        for rail in members.T.tolist():
            between(plan, size / members.shape[1], rail, got)
        for part in members.tolist():
            repeat_inside(plan, size, part, got, True)


def reduce_inside(plan: Plan, bytes: float, members: Sequence[int], own: bool) -> Waits:
    """A reduce-scatter by the switch; with `own`, a chip's own part comes by way of it too."""
    switch, n = switch_name(plan.cluster, members[0]), len(members)
    share = bytes * (1 if own else (n - 1) / n)
    sent = [plan.send(d, switch, share, (), ("in", d)) for d in members]
    return {d: [plan.send(switch, d, bytes / n, sent, ("sum", d))] for d in members}


def repeat_inside(plan: Plan, bytes: float, members: Sequence[int], got: Waits, own: bool) -> None:
    """An all-gather by the switch, which repeats what each sends once."""
    switch, n = switch_name(plan.cluster, members[0]), len(members)
    for source in members:
        up = plan.send(source, switch, bytes / n, got[source], ("out", source))
        for target in members:
            if own or target != source:
                plan.send(switch, target, bytes / n, [up], ("repeat", source, target))


def _over_trees(plan: Plan, bytes: float, rail: Sequence[int], got: Waits) -> None:
    """Two trees over one chip of every home, with half of the share each."""
    trees = [parents(len(rail)), mirrored(parents(len(rail)))]
    ready = [got[d] for d in rail]
    ends = [
        add_slice(plan, (rail[0], number), [[d] for d in rail], above, bytes / 2, ready)
        for number, above in enumerate(trees)
    ]
    for home, device in enumerate(rail):
        got[device] = [*ends[0][home], *ends[1][home]]


def _over_leaf(plan: Plan, bytes: float, rail: Sequence[int], got: Waits) -> None:
    """Up to the leaf switch of the rail, which adds, and back."""
    leaf = _leaf(plan.cluster, rail)
    sent = [plan.send(d, leaf, bytes, got[d], ("up", d)) for d in rail]
    for device in rail:
        got[device] = [plan.send(leaf, device, bytes, sent, ("down", device))]


def _leaf(cluster: Cluster, rail: Sequence[int]) -> str:
    """The leaf switch that the NICs of these chips have in common."""
    places = [divmod(d, cluster.devices_per_node) for d in rail]
    leaves = {
        leaf_name(cluster, node, chip * cluster.nics // cluster.devices_per_node)
        for node, chip in places
    }
    if len(leaves) > 1:
        raise InputError(
            f"{cluster.name}: sharp is played under one leaf switch, these need {len(leaves)}; "
            "use fewer nodes, or groups along a rail"
        )
    return leaves.pop()
