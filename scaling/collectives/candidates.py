"""Every way a collective can run on a cluster: algorithms and their protocols, with their costs.

seconds = latency + max(filling, per_byte x bytes)

latency     alpha + hops that wait for one another x what a hop takes
per_byte    of the busiest uplink: what all groups put on it, over what a fit says it achieves
filling     on a torus: the latency of the links, which overlaps with the bytes
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from scaling.collectives.algorithms import KINDS, hops, is_chosen, refusal
from scaling.collectives.loads import Loads, Placed, loads_of, placed
from scaling.collectives.traffic import Load
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate, format_size
from scaling.profiles.link_fits import algorithms, has_figures, link_fit, protocols
from scaling.profiles.profile import ALGORITHMS, Algorithm, Evidence, LinkFit, Profile
from scaling.program.ir import CollectiveKind, Number

CLOSE = 1e-9  # relative: of uplinks so close to the busiest, the first is named
ON_TORUS = ("ring", "hierarchical", "pairwise")
WIRED = ("chip", "node", "domain")  # levels below the network
BETWEEN_NODES: tuple[Algorithm, ...] = ("tree", "pat")  # of NCCL, beside its rings


@dataclass(frozen=True)
class Way:
    """An algorithm under one protocol: seconds = latency + max(filling, per_byte x bytes)."""

    algorithm: Algorithm
    protocol: str
    latency: float
    per_byte: float
    uplink: NetworkLevel
    load: Load
    evidence: Evidence
    filling: float = 0.0  # s, of hops on a torus: bytes flow meanwhile

    def seconds(self, bytes: Number) -> Number:
        """Of one call."""
        return self.latency + np.maximum(self.filling, self.per_byte * bytes)


def ways(
    kind: CollectiveKind,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    asked: str,
    skew: float = 1.0,
) -> list[Way]:
    """All ways that are open: what was asked for, or else every algorithm that can run."""
    return ways_of(kind, placed(groups, cluster), profile, asked, skew)


def ways_of(
    kind: CollectiveKind, where: Placed, profile: Profile, asked: str, skew: float = 1.0
) -> list[Way]:
    """The same, of groups that are placed."""
    found: list[Way] = []
    cluster = where.cluster
    for algorithm in _candidates(kind, profile, asked, where):
        carried = loads_of(kind, where, algorithm, skew)
        units = _units(carried)
        reason = refusal(algorithm, kind, units, cluster.has_nvls)
        if not reason and cluster.torus is not None and algorithm not in ON_TORUS:
            reason = f"{algorithm} does not run on a torus; what does: {', '.join(ON_TORUS)}"
        if reason and asked != "auto":
            raise InputError(f"{cluster.name}: {reason}")
        if not reason and (asked != "auto" or is_chosen(algorithm, units)):
            counts = _hops(kind, algorithm, carried, units)
            like = _like(algorithm, kind, profile)
            for protocol in protocols(profile, algorithm):
                way = _way(kind, algorithm, carried, counts, profile, protocol, like)
                found += [way] if way is not None else []
    if not found:
        links = ", ".join(dict.fromkeys(u.link for u, load in carried if load.share > 0))
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return found


def _candidates(
    kind: CollectiveKind, profile: Profile, asked: str, where: Placed
) -> Iterable[Algorithm]:
    """Those with figures of their own; between nodes, where none has any, those of NCCL as well."""
    if asked != "auto":
        check_keys([asked], ALGORITHMS, "algorithm")
        return [a for a in ALGORITHMS if a == asked]
    own = [a for a in algorithms(profile, kind) if kind in KINDS[a]]
    if own and where.level not in WIRED and not has_figures(profile, kind, "network"):
        own += [a for a in BETWEEN_NODES if kind in KINDS[a] and a not in own]
    return own or (["pairwise"] if kind == "all-to-all" else ["ring", "hierarchical"])


def _like(algorithm: Algorithm, kind: CollectiveKind, profile: Profile) -> Algorithm:
    """Whose figures an algorithm takes: a tree without its own is a ring's chain inside a node."""
    own = algorithm in algorithms(profile, kind)
    return "ring" if algorithm == "tree" and not own else algorithm


@dataclass(frozen=True)
class _Use:
    """An uplink that an algorithm loads, and what a fit says of that."""

    uplink: NetworkLevel
    load: Load
    hops: float  # that wait for one another
    fit: LinkFit

    @property
    def per_byte(self) -> float:
        """Seconds per byte of the call."""
        pieces = self.load.transfers
        stall = 1 + self.fit.fill_drain / pieces if pieces else 1.0
        rate = self.uplink.bandwidth * self.fit.efficiency
        return self.load.share / rate * stall

    @property
    def waiting(self) -> float:
        """Seconds of all hops, those that bytes hide left out."""
        if self.load.hops is not None:
            return self.load.hops * self.fit.hop_overhead
        hops = self.hops * self.load.legs
        return hops * (self.fit.latency_factor * self.uplink.hop_latency + self.fit.hop_overhead)

    @property
    def filling(self) -> float:
        """Seconds of hops on a torus, while bytes flow already."""
        return (self.load.hops or 0.0) * self.fit.latency_factor * self.uplink.hop_latency


def _way(
    kind: CollectiveKind,
    algorithm: Algorithm,
    loads: Loads,
    counts: list[float],
    profile: Profile,
    protocol: str,
    like: Algorithm,
) -> Way | None:
    """The cost under one protocol by the figures of `like`, or None where there are none.

    Args:
        counts: hops over each uplink.
    """
    uses = []
    for (uplink, carried), count in zip(loads, counts, strict=True):
        if carried.share > 0:
            fit = link_fit(profile, like, kind, uplink.link, protocol, uplink.transport)
            if fit is None:
                return None
            uses.append(_Use(uplink, carried, count, fit))
    per_byte = [use.per_byte for use in uses]
    most = max(per_byte)
    busiest = next(k for k, one in enumerate(per_byte) if one >= most * (1 - CLOSE))
    total = max if kind == "permute" else sum  # of a permute the one longest hop counts
    latency = max(use.fit.alpha for use in uses) + total(use.waiting for use in uses)
    filling = total(use.filling for use in uses)
    use = uses[busiest]
    return Way(
        *(algorithm, protocol, latency, most, use.uplink, use.load, use.fit.evidence, filling)
    )


def _units(loads: Loads) -> list[int]:
    """Units that one group joins in each level, inside out; 1 where it has one member in each."""
    return [carried.neighbours for uplink, carried in loads if uplink.own_hops] or [1]


def _hops(
    kind: CollectiveKind, algorithm: Algorithm, loads: Loads, units: list[int]
) -> list[float]:
    """Hops over each uplink that wait for one another; those without latency have none."""
    counts = iter(hops(algorithm, kind, units))
    return [next(counts) if uplink.own_hops else 0.0 for uplink, _ in loads]


def bottleneck(way: Way, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`, or that latency is more than that."""
    uplink, carried = way.uplink, way.load
    each = format_size(bytes * carried.share / carried.groups)
    groups = f"{carried.groups} groups x " if carried.groups > 1 else ""
    words = f"{uplink.name}: {groups}{each} over {format_rate(uplink.bandwidth)}"
    if uplink.staged:
        words += ", through host memory"
    waiting = max(way.latency, way.filling)
    return f"latency, then {words}" if waiting > way.per_byte * bytes else words
