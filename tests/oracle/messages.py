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
from itertools import permutations

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.detours import shortest_ways
from scaling.meshes.graph import chip_name
from scaling.meshes.rings import FAST, direct_links, rings

Pair = tuple[int | str, int | str]
Chips = tuple[int, ...]  # device numbers
Detours = dict[Pair, tuple[Chips, ...]]  # what bytes between two go by, for each of their ways


@dataclass(frozen=True)
class Send:
    """Bytes from one node of the cluster's graph to another."""

    stops: tuple[str, ...]  # the two, and what the bytes have to go by between them
    bytes: float
    after: tuple[int, ...] = ()  # sends that have to arrive first, by their place in the schedule
    behind: tuple[int, ...] = ()  # sends that have to leave first

    @property
    def source(self) -> str:
        return self.stops[0]

    @property
    def target(self) -> str:
        return self.stops[-1]


@dataclass
class Plan:
    """A schedule while it is written: sends in order, and what each queue sent last."""

    cluster: Cluster
    by: Detours = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    last: dict[object, int] = field(default_factory=dict)  # queue -> its last send

    def send(
        self,
        source: int | str,
        target: int | str,
        bytes: float,
        after: Sequence[int] = (),
        queue: object = None,
        by: Chips = (),
    ) -> int:
        """Adds one send and returns its place. Those of one queue leave one after another.

        Args:
            by: devices that pass it on; none: the first that the plan has for the two.
        """
        behind = (self.last[queue],) if queue is not None and queue in self.last else ()
        place = len(self.sends)
        if queue is not None:
            self.last[queue] = place
        chips = by or self.by.get((source, target), ((),))[0]
        stops = tuple(map(self.name, (source, *chips, target)))
        self.sends.append(Send(stops, bytes, tuple(after), behind))
        return place

    def spread(
        self, source: int, target: int, bytes: float, after: Sequence[int] = ()
    ) -> list[int]:
        """Adds a send by each of the ways between two devices, with an equal part of the bytes."""
        found = self.by.get((source, target), ((),))
        return [self.send(source, target, bytes / len(found), after, by=by) for by in found]

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
    every ring uses other links; where some have, those are the rings that they hold. Over several
    homes, every member of a home has its turn to leave, of those behind PCIe one for each NIC;
    every other home is walked backwards, to keep the rail.
    """
    parts = homes(cluster, group)
    held = held_rings(cluster, parts)
    if len(parts) == 1 and held:
        return [members_of(walk) for walk in held[0]]
    if len(parts) == 1:
        return mesh_rings(parts[0]) if is_mesh(cluster) else [parts[0]]
    if held:
        return _through_all(held)
    if has_nvlink(cluster):
        walk, channels = _zigzag, list(range(len(parts[0])))
    else:
        walk, channels = _in_turn, nic_heads(cluster, parts[0])
    return [
        [d for i, part in enumerate(parts) for d in (walk(part, c)[:: -1 if i % 2 else 1])]
        for c in channels
    ]


def held_rings(cluster: Cluster, parts: Sequence[Sequence[int]]) -> list[list[Chips]]:
    """Of each home, the rings of devices that links between pairs hold; [] if one holds none."""
    links, n = direct_links(cluster, FAST), cluster.devices_per_node
    if has_nvlink(cluster) or not any(map(any, links)):
        return []
    found = []
    for part in parts:
        first = part[0] // n * n
        walks = rings(links, tuple(d - first for d in part)) if len(part) > 1 else ((part[0] % n,),)
        found.append([tuple(first + chip for chip in walk) for walk in walks])
    return found if all(found) and any(len(part) > 1 for part in parts) else []


def members_of(walk: Chips) -> list[int]:
    """Devices in the order of a ring, without a second visit."""
    return list(dict.fromkeys(walk))


def passed(cluster: Cluster, group: Sequence[int]) -> Detours:
    """Of two neighbours in the order of a ring, the device that is only passed between them."""
    found: Detours = {}
    for walk in (walk for walks in held_rings(cluster, homes(cluster, group)) for walk in walks):
        for k, device in enumerate(walk):
            if device in walk[:k]:
                found[walk[k - 1], walk[(k + 1) % len(walk)]] = ((device,),)
    return found


def detours(cluster: Cluster, group: Sequence[int]) -> Detours:
    """Of two in a home whose links hold rings, all shortest ways over those links."""
    found: Detours = {}
    parts, links = homes(cluster, group), direct_links(cluster, FAST)
    for part in parts if held_rings(cluster, parts) else []:
        first = part[0] // cluster.devices_per_node * cluster.devices_per_node
        chips = tuple(d - first for d in part)
        for i, j in permutations(chips, 2):
            ways = shortest_ways(links, chips, i, j)
            found[first + i, first + j] = tuple(
                tuple(first + chip for chip in way[1:-1]) for way in ways
            )
    return found


def _through_all(held: Sequence[Sequence[Chips]]) -> list[list[int]]:
    """Rings over homes: each of a home's rings, entered at each of its members in turn."""
    return [
        [
            device
            for home, walks in enumerate(held)
            for device in _turned(members_of(walks[ring % len(walks)]), head, home % 2 == 1)
        ]
        for ring in range(len(held[0]))
        for head in range(len(members_of(held[0][0])))
    ]


def _turned(order: Sequence[int], head: int, backwards: bool) -> list[int]:
    found = _in_turn(order, head)
    return found[::-1] if backwards else found


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
        link.kind in ("nvlink", "xgmi") and (link.parts[1] == "nvswitch" or link.wiring == "all")
        for link in cluster.links
    )


def is_mesh(cluster: Cluster) -> bool:
    """Whether every chip has a link to each of the others."""
    return any(link.parts == ("chip", "chip") and link.wiring == "all" for link in cluster.links)


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
