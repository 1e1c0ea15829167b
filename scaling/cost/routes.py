"""The links that bytes take between two nodes of a cluster's graph: the fewest, its own rail first.

    same rail     chip3 - pcie_switch3 - nic3 - leaf0.3 - nic3 - pcie_switch3 - chip3
    other rail    chip0 - nvswitch - chip3 - pcie_switch3 - nic3 - leaf0.3 - ..    as NCCL's PXN
    no peers      chip0 - pcie_switch - socket - memory | memory - .. - chip1      two legs

Without peer access a transfer has several legs, one after another: written to host memory, sent to
the other host's, read from there. Each leg is one flow of `scaling.cost.flows`. Of paths of equal
length the one is taken whose first step comes first in the cluster's file: NVLink, where there is;
of several NICs as near, each chip takes its own.
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from meshes.cluster import Cluster
from meshes.errors import InputError
from meshes.graph import expand
from scaling.cost.flows import Network

Ends = tuple[str, str]  # names of two nodes of the graph


class Router:
    """Paths of one cluster, found once each."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.graph = expand(cluster)
        self._kinds = {node.name: node.kind for node in self.graph.nodes}
        self._leaving: dict[str, list[int]] = {node.name: [] for node in self.graph.nodes}
        for number, link in enumerate(self.graph.links):
            self._leaving[link.source].append(number)
        self._trees: dict[str, dict[str, int]] = {}  # source -> node -> the link that leads there

    def legs(self, source: str, target: str) -> list[Ends]:
        """The parts of the way between two nodes that follow one another."""
        if self.cluster.peer_access or source == target:
            return [(source, target)]
        stops = [source]
        stops += [self._memory(end) for end in (source, target) if self._kinds[end] == "chip"]
        found = list(dict.fromkeys([*stops, target]))
        return list(zip(found, found[1:], strict=False))

    def path(self, source: str, target: str) -> tuple[int, ...]:
        """Numbers of the links in the graph; InputError if none lead there."""
        came = self._tree(source)
        if target not in came and target != source:
            raise InputError(f"{self.cluster.name}: no links lead from {source} to {target}")
        found: list[int] = []
        while target != source:
            found.append(came[target])
            target = self.graph.links[came[target]].source
        return tuple(reversed(found))

    def network(self, pairs: Iterable[Ends]) -> Network:
        """Links of the graph, and one path for every pair."""
        paths = tuple(self.path(*pair) for pair in pairs)
        links = self.graph.links
        latency = np.array([sum(links[k].latency for k in path) for path in paths])
        return Network(np.array([link.bandwidth for link in links]), paths, latency)

    def _tree(self, source: str) -> dict[str, int]:
        """Breadth first: the last link of the shortest path to every node."""
        if source not in self._trees:
            came: dict[str, int] = {}
            frontier, own = [source], self._own_nic(source)
            while frontier:
                steps = [k for name in frontier for k in self._ordered(name, own)]
                frontier = []
                for k in steps:
                    target = self.graph.links[k].target
                    if target != source and target not in came:
                        came[target] = k
                        frontier.append(target)
            self._trees[source] = came
        return self._trees[source]

    def _ordered(self, name: str, own: int) -> list[int]:
        """Links that leave a node; of those to NICs, from number `own` on."""
        links, count = self.graph.links, max(1, self.cluster.nics)

        def turn(k: int) -> int:
            target = links[k].target
            return (_number(target) - own) % count if self._kinds[target] == "nic" else 0

        return sorted(self._leaving[name], key=turn)

    def _own_nic(self, source: str) -> int:
        """Number of the NIC that a chip takes where several are as near."""
        if self._kinds[source] != "chip":
            return 0
        return _number(source) * self.cluster.nics // self.cluster.devices_per_node

    def _memory(self, chip: str) -> str:
        """The host memory nearest to a chip."""
        reached = self._tree(chip)  # in the order of distance
        return next(name for name in reached if self._kinds[name] == "memory")


def _number(name: str) -> int:
    """3 of node0/nic3."""
    return int(name[len(name.rstrip("0123456789")) :])


@lru_cache(maxsize=16)
def router(cluster: Cluster) -> Router:
    """The router of a cluster, kept for the next question."""
    return Router(cluster)
