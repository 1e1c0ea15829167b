"""Collectives played on the graph of a cluster: seconds, bytes on every link, the busiest of them.

    calls -> schedules -> flows over paths -> events -> when the last byte of each call arrives

The second derivation of what `scaling.collectives.cost` has in closed form, for the same cluster
and algorithms, without a profile: links at their full bandwidth, with their latency or without.
All groups of a call run at once, and several calls at once share the links max-min fairly
(`tests.oracle.flows`). It prices small clusters in milliseconds to seconds, not searches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.meshes.graph import Link
from scaling.profiles.profile import Algorithm
from scaling.program.ir import CollectiveKind
from tests.oracle.flows import Flow, Network, play
from tests.oracle.messages import Send
from tests.oracle.routes import Router, Stops, router
from tests.oracle.schedules import schedule


@dataclass(frozen=True, eq=False)
class Call:
    """One collective in all its groups."""

    kind: CollectiveKind
    bytes: float  # as in `scaling.collectives.cost.collective_time`
    groups: np.ndarray  # device ids, [groups, members]
    algorithm: Algorithm = "ring"
    slices: int = 1  # of pipelined algorithms
    skew: float = 1.0  # of an all-to-all: what the first of each group receives over the mean


@dataclass(frozen=True, eq=False)
class Replay:
    """What happened."""

    times: tuple[float, ...]  # s, the end of each call
    links: tuple[Link, ...]  # of the cluster
    bytes: np.ndarray  # over each link, [links]

    @property
    def time(self) -> float:
        """Seconds until the last call has ended."""
        return max(self.times, default=0.0)

    @property
    def busiest(self) -> Link:
        """The link whose bytes take longest."""
        rates = np.array([link.bandwidth for link in self.links])
        return self.links[int(np.argmax(self.bytes / rates))]

    def carried(self, source: str, target: str) -> dict[str, float]:
        """Bytes out of each node whose name has `source` in it to those with `target`."""
        found: dict[str, float] = {}
        for link, count in zip(self.links, self.bytes.tolist(), strict=True):
            if source in link.source and target in link.target:
                found[link.source] = found.get(link.source, 0.0) + count
        return found


def replay(calls: Sequence[Call], cluster: Cluster, latency: bool = True) -> Replay:
    """Plays all calls, which start together.

    Args:
        latency: False: links without latency, as in the ideal profile.

    Raises:
        InputError: an algorithm that does not do the kind, or links without figures or a path.
    """
    ways, parts = router(cluster), []
    flows: list[Flow] = []
    numbers: dict[Stops, int] = {}  # of the paths
    for call in calls:
        first = len(flows)
        for group in call.groups.tolist():
            how = call.algorithm, call.slices, call.skew
            sends = schedule(call.kind, call.bytes, group, cluster, *how)
            _add_flows(flows, sends, ways, numbers)
        parts.append(slice(first, len(flows)))
    network = ways.network(numbers)
    if not latency:
        network = Network(network.capacity, network.paths, 0 * network.latency)
    arrived = play(network, flows)
    times = tuple(float(arrived[part].max(initial=0.0)) for part in parts)
    return Replay(times, ways.graph.links, _bytes(network, flows))


def _add_flows(
    flows: list[Flow], sends: Sequence[Send], ways: Router, numbers: dict[Stops, int]
) -> None:
    """Each send as the flows of its ways side by side, and of their legs one after another."""
    firsts: list[list[int]] = []
    lasts: list[list[int]] = []
    for send in sends:
        after = tuple(flow for k in send.after for flow in lasts[k])
        behind = tuple(flow for k in send.behind for flow in firsts[k])
        firsts.append([])
        lasts.append([])
        taken = ways.ways(send.stops)
        for legs in taken:
            firsts[-1].append(len(flows))
            waits = after, behind
            for leg in legs:
                path = numbers.setdefault(leg, len(numbers))
                flows.append(Flow(path, send.bytes / len(taken), *waits))
                waits = (len(flows) - 1,), ()
            lasts[-1].append(len(flows) - 1)


def _bytes(network: Network, flows: Sequence[Flow]) -> np.ndarray:
    """Bytes over each link."""
    paths = np.array([flow.path for flow in flows], int)
    totals = np.bincount(paths, [flow.bytes for flow in flows], len(network.paths))
    found = np.zeros(len(network.capacity))
    for path, total in zip(network.paths, totals, strict=True):
        found[list(path)] += total
    return found
