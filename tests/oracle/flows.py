"""Arrival times of flows over shared links with max-min fair rates.

    a link of 6:   flows a, b, c        a, b and c get 2 each, unless another link limits c to 1:
    another of 1:  flow c               then a and b share the rest, 2.5 each

Rates come from progressive filling: all rise together, and a flow stops at the first of its links
that is full (Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2). They change when a flow
starts or ends. The last byte of a flow arrives one latency after it has left.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CLOSE = 1e-9  # relative: times so close count as equal, or rounding would separate equal flows


@dataclass(frozen=True)
class Flow:
    """Bytes over a path of links."""

    path: int  # index into Network.paths
    bytes: float
    after: tuple[int, ...] = ()  # flows whose last byte has to arrive first
    behind: tuple[int, ...] = ()  # flows whose last byte has to leave first


@dataclass(frozen=True, eq=False)
class Network:
    """Links, and the paths over them that flows take."""

    capacity: np.ndarray  # bytes/s, [links]
    paths: tuple[tuple[int, ...], ...]  # links of each path, in order
    latency: np.ndarray  # s, [paths]


def fair_rates(network: Network, users: np.ndarray) -> np.ndarray:
    """Max-min fair rate of one flow on each path, in bytes/s, [paths]; 0 on unused paths.

    Args:
        users: flows on each path at once, [paths].
    """
    used = np.flatnonzero(users)
    lengths = [len(network.paths[p]) for p in used]
    owner = np.repeat(used, lengths)
    link = np.array([k for p in used for k in network.paths[p]], int)
    rates = np.zeros(len(users))
    left, rising = network.capacity.astype(float), users.astype(float)
    while len(link):
        sharing = np.bincount(link, rising[owner], len(left))
        level = np.divide(left, sharing, out=np.full(len(left), np.inf), where=sharing > 0)
        full = level <= level.min() * (1 + CLOSE)
        stopped = np.unique(owner[full[link]])
        rates[stopped] = level.min()
        ended = np.isin(owner, stopped)
        taken = np.bincount(link[ended], (rates * users)[owner[ended]], len(left))
        left = np.maximum(left - taken, 0.0)
        owner, link = owner[~ended], link[~ended]
    return rates


def arrival_times(network: Network, flows: Sequence[Flow]) -> np.ndarray:
    """Time at which the last byte of each flow arrives, in seconds, [flows].

    Raises:
        ValueError: flows wait for each other.
    """
    state = _State(network, flows)
    state.start(np.flatnonzero(state.waits == 0))
    while state.active.size or state.arriving:
        state.advance()
    if np.isnan(state.arrived).any():
        raise ValueError(f"{int(np.isnan(state.arrived).sum())} flows wait for each other")
    return state.arrived


class _State:
    """Active flows and those whose last byte is on its way."""

    def __init__(self, network: Network, flows: Sequence[Flow]) -> None:
        self.network = network
        self.path = np.array([f.path for f in flows], int)
        self.left = np.array([f.bytes for f in flows], float)
        self.after = _successors([f.after for f in flows])
        self.behind = _successors([f.behind for f in flows])
        self.waits = np.array([len(f.after) + len(f.behind) for f in flows], int)
        self.arrived = np.full(len(flows), np.nan)
        self.active = np.zeros(0, int)
        self.arriving: list[tuple[float, int, np.ndarray]] = []  # heap by time
        self.now, self.pushed = 0.0, 0
        self.cache: dict[bytes, np.ndarray] = {}  # rates by users of the paths

    def start(self, flows: np.ndarray) -> None:
        self.active = np.concatenate([self.active, flows])

    def rates(self) -> np.ndarray:
        users = np.bincount(self.path[self.active], minlength=len(self.network.paths))
        key = users.tobytes()
        if key not in self.cache:
            self.cache[key] = fair_rates(self.network, users)
        return self.cache[key][self.path[self.active]]

    def advance(self) -> None:
        """Advances to the next time at which a flow leaves or arrives."""
        rates = self.rates()
        needed = self.left[self.active] / rates
        wait = self.arriving[0][0] - self.now if self.arriving else np.inf
        step = max(0.0, min(wait, float(needed.min(initial=np.inf))))
        self.now += step
        self.left[self.active] -= rates * step
        gone = needed <= step * (1 + CLOSE) + self.now * CLOSE
        left, self.active = self.active[gone], self.active[~gone]
        self.release(self.behind, left)
        for latency in np.unique(self.network.latency[self.path[left]]):
            self.push(left[self.network.latency[self.path[left]] == latency], float(latency))
        while self.arriving and self.arriving[0][0] <= self.now * (1 + CLOSE):
            time, _, flows = heapq.heappop(self.arriving)
            self.arrived[flows] = time
            self.release(self.after, flows)

    def push(self, flows: np.ndarray, latency: float) -> None:
        heapq.heappush(self.arriving, (self.now + latency, self.pushed, flows))
        self.pushed += 1

    def release(self, successors: list[list[int]], flows: np.ndarray) -> None:
        """Starts the flows that waited for these alone."""
        waiting = np.array([later for flow in flows for later in successors[flow]], int)
        np.subtract.at(self.waits, waiting, 1)
        waiting = np.unique(waiting)
        self.start(waiting[self.waits[waiting] == 0])


def _successors(predecessors: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """The flows that wait for each flow."""
    later: list[list[int]] = [[] for _ in predecessors]
    for flow, earlier in enumerate(predecessors):
        for before in earlier:
            later[before].append(flow)
    return later
