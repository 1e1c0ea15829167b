"""A collective replayed message by message on the graph of a cluster.

    schedules -> flows over paths -> events -> time at which the last byte arrives

The tests' oracle: an independent derivation of the closed form in `scaling.collectives`, for the
same cluster and algorithms, with links at their full bandwidth. All groups run at once and share
the links max-min fairly (`tests.oracle.flows`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.meshes.cluster import Cluster
from scaling.program.ir import CollectiveKind
from tests.oracle.flows import Flow, Network, arrival_times
from tests.oracle.graph import Link
from tests.oracle.routes import Router, Stops, router
from tests.oracle.schedules import Message, schedule


@dataclass(frozen=True, eq=False)
class Replay:
    """Time and bytes of a replayed collective."""

    time: float  # s, until the last byte arrives
    links: tuple[Link, ...]  # of the cluster
    bytes: np.ndarray  # over each link, [links]

    @property
    def busiest(self) -> Link:
        """The link whose bytes take longest."""
        rates = np.array([link.bandwidth for link in self.links])
        return self.links[int(np.argmax(self.bytes / rates))]

    def carried(self, source: str, target: str) -> dict[str, float]:
        """Bytes out of each node with `source` in its name to nodes with `target` in theirs."""
        totals: dict[str, float] = {}
        for link, count in zip(self.links, self.bytes.tolist(), strict=True):
            if source in link.source and target in link.target:
                totals[link.source] = totals.get(link.source, 0.0) + count
        return totals


def replay(
    kind: CollectiveKind,
    bytes: float,
    groups: np.ndarray,
    cluster: Cluster,
    algorithm: str = "ring",
    slices: int = 1,
    latency: bool = False,
) -> Replay:
    """Replays one collective in all its groups at once.

    Args:
        kind, bytes: as in `scaling.collectives.cost.collective_time`.
        groups: device ids, [groups, members].
        cluster: where the devices are.
        algorithm: one of `tests.oracle.schedules`.
        slices: parts that a pipelined algorithm works on at once.
        latency: False: links without latency, as in the ideal profile.

    Raises:
        InputError: links without figures or a path.
    """
    routes = router(cluster)
    flows: list[Flow] = []
    paths: dict[Stops, int] = {}  # index of each path
    for group in groups.tolist():
        _add_flows(flows, schedule(kind, bytes, group, cluster, algorithm, slices), routes, paths)
    network = routes.network(paths)
    if not latency:
        network = Network(network.capacity, network.paths, 0 * network.latency)
    time = float(arrival_times(network, flows).max(initial=0.0))
    return Replay(time, routes.graph.links, _link_bytes(network, flows))


def _add_flows(
    flows: list[Flow], messages: Sequence[Message], routes: Router, paths: dict[Stops, int]
) -> None:
    """Adds each message as the flows of its legs, one after another."""
    firsts: list[int] = []
    lasts: list[int] = []
    for message in messages:
        waits = tuple(lasts[k] for k in message.after), tuple(firsts[k] for k in message.behind)
        firsts.append(len(flows))
        for leg in routes.legs(message.source, message.target):
            flows.append(Flow(paths.setdefault(leg, len(paths)), message.bytes, *waits))
            waits = (len(flows) - 1,), ()
        lasts.append(len(flows) - 1)


def _link_bytes(network: Network, flows: Sequence[Flow]) -> np.ndarray:
    """Bytes over each link, [links]."""
    paths = np.array([flow.path for flow in flows], int)
    totals = np.bincount(paths, [flow.bytes for flow in flows], len(network.paths))
    carried = np.zeros(len(network.capacity))
    for path, total in zip(network.paths, totals, strict=True):
        carried[list(path)] += total
    return carried
