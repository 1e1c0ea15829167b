"""Routes between two nodes of a cluster's graph: the fewest links, the own rail first.

    same rail     chip3 - pcie_switch3 - nic3 - leaf0.3 - nic3 - pcie_switch3 - chip3
    other rail    chip0 - nvswitch - chip3 - pcie_switch3 - nic3 - leaf0.3 - ..    as NCCL's PXN: by
                  the chip of the target's number
    no peers      chip0 - pcie_switch - socket - memory | memory - .. - chip1      two legs

Without peer access a transfer has several legs, one after another: written to host memory, sent to
the other host's, read from there. Each leg is one flow of `tests.oracle.flows`. Of paths of equal
length the one counts whose first step comes first in the cluster's file (NVLink, where there is),
from a chip's own NIC on. Inside a node a chip forwards what is for its rail, and nothing else.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from tests.oracle.flows import Network
from tests.oracle.graph import expand

Stops = tuple[str, ...]  # names of nodes of the graph: source, nodes to pass, target


class Router:
    """Routes of one cluster, each searched once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.graph = expand(cluster)
        self._kinds = {node.name: node.kind for node in self.graph.nodes}
        self._leaving: dict[str, list[int]] = {node.name: [] for node in self.graph.nodes}
        for number, link in enumerate(self.graph.links):
            self._leaving[link.source].append(number)
        self._legs: dict[tuple[str, str], list[Stops]] = {}
        # (source, whether chips forward) -> node -> the link that leads there
        self._trees: dict[tuple[str, bool], dict[str, int]] = {}

    def legs(self, source: str, target: str) -> list[Stops]:
        """Legs in a row that lead from one node to another."""
        if (source, target) not in self._legs:
            self._legs[source, target] = self._searched(source, target)
        return self._legs[source, target]

    def _searched(self, source: str, target: str) -> list[Stops]:
        if not self.cluster.peer_access:
            return self._staged(source, target)
        if _host(source) == _host(target) or not self._leaves(source, target):
            return [(source, target)]
        return [self._by_nic(source, target)]

    def path(self, stops: Stops) -> tuple[int, ...]:
        """Numbers of the links in the graph; InputError if none lead there."""
        return tuple(link for ends in pairwise(stops) for link in self._shortest(*ends))

    def network(self, legs: Iterable[Stops]) -> Network:
        """All links of the graph, and one path for each leg."""
        paths = tuple(self.path(stops) for stops in legs)
        links = self.graph.links
        latency = np.array([sum(links[k].latency for k in path) for path in paths])
        return Network(np.array([link.bandwidth for link in links]), paths, latency)

    def _staged(self, source: str, target: str) -> list[Stops]:
        """By the memory of both hosts."""
        stops = [source]
        stops += [self._memory(end) for end in (source, target) if self._kinds[end] == "chip"]
        return list(pairwise(dict.fromkeys([*stops, target])))

    def _leaves(self, source: str, target: str) -> bool:
        """True if the shortest route goes over a network."""
        return any(self.graph.links[k].kind == "network" for k in self._shortest(source, target))

    def _by_nic(self, source: str, target: str) -> Stops:
        """By the NICs of both chips.

        On rails by that of the target's, which NVLink leads to; behind PCIe, of the source's.
        An NVSwitch leads to the chip that has the target's place in the source's node.
        """
        ends = [end for end in (source, target) if self._kinds[end] == "chip"]
        nics, first = [self._own_nic(end) for end in ends], [source]
        if len(ends) == 2 and self.cluster.fabric is not None and self.cluster.fabric.rails:
            switched = "nvswitch" in self.cluster.parts
            if switched and nics[0] != nics[1]:
                first.append(f"{_host(source)}/chip{_number(target)}")
            nics = [nics[1 if switched else 0]] * 2
        return (*first, *(f"{_host(e)}/nic{k}" for e, k in zip(ends, nics, strict=True)), target)

    def _shortest(self, source: str, target: str) -> tuple[int, ...]:
        at_nic = "nic" in (self._kinds.get(source), self._kinds.get(target))
        tree = self._tree(source, at_nic or _host(source) != _host(target))
        if target not in tree and target != source:
            raise InputError(f"{self.cluster.name}: no links lead from {source} to {target}")
        links: list[int] = []
        while target != source:
            links.append(tree[target])
            target = self.graph.links[tree[target]].source
        return tuple(reversed(links))

    def _tree(self, source: str, forward: bool = False) -> dict[str, int]:
        """Breadth first: the last link of the shortest path from `source` to every node.

        Chips on the path forward only with `forward`.
        """
        if (source, forward) not in self._trees:
            tree: dict[str, int] = {}
            frontier, own = [source], self._own_nic(source)
            while frontier:
                steps = [k for name in frontier for k in self._ordered(name, own)]
                frontier = []
                for k in steps:
                    target = self.graph.links[k].target
                    if target != source and target not in tree:
                        tree[target] = k
                        if forward or self._kinds[target] != "chip":
                            frontier.append(target)
            self._trees[source, forward] = tree
        return self._trees[source, forward]

    def _ordered(self, name: str, own: int) -> list[int]:
        """Links that leave a node; those to NICs from number `own` on."""
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
        tree = self._tree(chip)  # in the order of distance
        return next(name for name in tree if self._kinds[name] == "memory")


def _host(name: str) -> str:
    """node0 of node0/nic3; of a switch between nodes, its own name."""
    return name.split("/")[0]


def _number(name: str) -> int:
    """3 of node0/nic3."""
    return int(name[len(name.rstrip("0123456789")) :])


@lru_cache(maxsize=16)
def router(cluster: Cluster) -> Router:
    """The router of a cluster, kept for the next call."""
    return Router(cluster)
