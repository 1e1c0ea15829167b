"""Who sends how much to whom, and after what: the parts that schedules of collectives are made of.

    ring over homes   enter at 0 .. leave at 4 | enter at 4 .. leave at 0 | enter at 0 ..
                      a channel enters every home on the rail on which it left the one before

A *home* is where chips reach each other over NVLink: a node or an NVLink domain, else a node. A
schedule is a list of sends; each starts when those in `after` have arrived and those in `behind`
have left, as a thread block that works through its channel step by step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from meshes.cluster import Cluster
from meshes.graph import chip_name


@dataclass(frozen=True)
class Send:
    """Bytes from one node of the cluster's graph to another."""

    source: str
    target: str
    bytes: float
    after: tuple[int, ...] = ()  # sends that have to arrive first, by their place in the schedule
    behind: tuple[int, ...] = ()  # sends that have to leave first


@dataclass
class Plan:
    """A schedule while it is written: sends in order, and what each queue sent last."""

    cluster: Cluster
    sends: list[Send] = field(default_factory=list)
    last: dict[object, int] = field(default_factory=dict)  # queue -> its last send

    def send(
        self,
        source: int | str,
        target: int | str,
        bytes: float,
        after: Sequence[int] = (),
        queue: object = None,
    ) -> int:
        """Adds one send and returns its place. Those of one queue leave one after another."""
        behind = (self.last[queue],) if queue is not None and queue in self.last else ()
        place = len(self.sends)
        if queue is not None:
            self.last[queue] = place
        ends = self.name(source), self.name(target)
        self.sends.append(Send(*ends, bytes, tuple(after), behind))
        return place

    def name(self, end: int | str) -> str:
        """Name in the graph of a device number, or the name itself."""
        return end if isinstance(end, str) else chip_name(self.cluster, int(end))


def homes(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """The members of a group by node or NVLink domain, both in order."""
    size = cluster.devices_per_node * cluster.domain_nodes
    found: dict[int, list[int]] = {}
    for device in sorted(int(d) for d in group):
        found.setdefault(device // size, []).append(device)
    return list(found.values())


def channel_orders(cluster: Cluster, group: Sequence[int]) -> list[list[int]]:
    """Rings through a group, one per channel: as many as are needed to use every link.

    In one home with a switch, or over PCIe, one ring does. Where chips have a link to each other,
    every ring uses other links. Over several homes, every member of a home has its turn to leave,
    of those behind PCIe one for each NIC; every other home is walked backwards, to keep the rail.
    """
    parts = homes(cluster, group)
    if len(parts) == 1:
        return mesh_rings(parts[0]) if is_mesh(cluster) else [parts[0]]
    if has_nvlink(cluster):
        walk, channels = _zigzag, list(range(len(parts[0])))
    else:
        walk, channels = _in_turn, nic_heads(cluster, parts[0])
    return [
        [d for i, part in enumerate(parts) for d in (walk(part, c)[:: -1 if i % 2 else 1])]
        for c in channels
    ]


def mesh_rings(members: Sequence[int]) -> list[list[int]]:
    """Rings through all members that use every directed link between them equally often.

    Once each where that can be: n - 1 rings, for all n but 4 and 6 (Tillson, "A Hamiltonian
    decomposition of K*2m, 2m >= 8", 1980). Twice each for those two.
    """
    n = len(members)
    if n < 3:
        return [list(members)]
    found = _cycles(n, 2 if n in (4, 6) else 1)
    return [[members[i] for i in cycle] for cycle in found]


def has_nvlink(cluster: Cluster) -> bool:
    """Whether chips reach each other without PCIe."""
    return any(
        joint.kind in ("nvlink", "xgmi") and (joint.parts[1] == "nvswitch" or joint.wiring == "all")
        for joint in cluster.joints
    )


def is_mesh(cluster: Cluster) -> bool:
    """Whether every chip has a link to each of the others."""
    return any(j.parts == ("chip", "chip") and j.wiring == "all" for j in cluster.joints)


def switch_name(cluster: Cluster, device: int) -> str:
    """Name in the graph of the NVSwitch of a device."""
    node = device // cluster.devices_per_node
    if cluster.domain_nodes > 1:
        return f"domain{node // cluster.domain_nodes}/nvswitch0"
    return f"node{node}/nvswitch0"


def grid(cluster: Cluster, group: Sequence[int]) -> np.ndarray:
    """A group as device numbers [homes, members of each], for groups with as many in each."""
    parts = homes(cluster, group)
    assert len({len(part) for part in parts}) == 1, "homes with as many members each"
    return np.array(parts)


def nic_heads(cluster: Cluster, part: Sequence[int]) -> list[int]:
    """Places in one home of the first member of each NIC."""
    chips = [d % cluster.devices_per_node for d in part]
    nics = [chip * max(1, cluster.nics) // cluster.devices_per_node for chip in chips]
    return [i for i, nic in enumerate(nics) if nic not in nics[:i]]


def _in_turn(part: Sequence[int], head: int) -> list[int]:
    """From one member around to the one before it: chips of one switch stay together."""
    return [*part[head:], *part[:head]]


def _zigzag(part: Sequence[int], head: int) -> list[int]:
    """Of 8, 0 1 7 2 6 3 5 4, then 1 2 0 3 ..: every link between two chips once, if they are even.

    Williams, "Experimental designs balanced for the estimation of residual effects", 1949.
    """
    n = len(part)
    steps = [(i + 1) // 2 if i % 2 else -(i // 2) for i in range(n)]
    return [part[(head + step) % n] for step in steps]


@lru_cache(maxsize=16)
def _cycles(n: int, copies: int) -> list[list[int]]:
    """Directed cycles through 0 .. n-1 that use each of the n (n-1) arcs `copies` times.

    Depth first; the k-th cycle leaves 0 by the k-th of its arcs, so none is tried in two orders.
    """
    spare = [[0 if i == j else copies for j in range(n)] for i in range(n)]
    found: list[list[int]] = []

    def extend(path: list[int]) -> bool:
        if len(found) == copies * (n - 1):
            return True
        here = path[-1]
        if len(path) == n:
            return _taken(here, 0, lambda: _kept(path))
        ways = [v for v in range(1, n) if v not in path and spare[here][v]]
        return any(
            _taken(here, v, lambda v=v: extend([*path, v]))  # type: ignore[misc]
            for v in (ways[:1] if here == 0 else ways)
        )

    def _kept(path: list[int]) -> bool:
        found.append(path)
        if extend([0]):
            return True
        found.pop()
        return False

    def _taken(a: int, b: int, go: Callable[[], bool]) -> bool:
        """Whether the rest can be found once the arc is used."""
        if not spare[a][b]:
            return False
        spare[a][b] -= 1
        if go():
            return True
        spare[a][b] += 1
        return False

    extend([0])
    return found
