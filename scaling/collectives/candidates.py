"""The candidates for a collective: algorithms under their protocols, with their costs.

seconds = latency + max(torus latency, per_byte x bytes)

latency        alpha + hops that wait for one another x what a hop takes, over all levels
per_byte       of the busiest level: share of its links' load over the bandwidth that a fit says
               they achieve, x (1 + fill_drain / serial steps)
torus latency  of the links of a torus, which overlaps with the bytes
"""

from dataclasses import dataclass

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS, CollectiveAlgorithm, algorithms_of
from scaling.collectives.contention import LinkLoad, Loads, PlacedGroups, link_loads
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate, format_size
from scaling.profiles.link_fits import algorithms, has_figures, link_fit, protocols
from scaling.profiles.profile import Evidence, LinkFit, Profile
from scaling.program.ir import CollectiveKind, Number

CLOSE = 1e-9  # relative: of levels so close to the busiest, the innermost is named
INSIDE_A_NODE = ("chip", "node", "domain")  # levels below the network
BETWEEN_NODES = ("tree", "pat")  # of NCCL and RCCL, beside their rings


@dataclass(frozen=True)
class Candidate:
    """An algorithm under one protocol: seconds = latency + max(torus latency, per_byte x bytes)."""

    algorithm: str
    protocol: str
    latency: float  # s
    per_byte: float  # s per byte of the call
    level: NetworkLevel  # the busiest
    load: LinkLoad  # of that level
    evidence: Evidence  # of that level's fit
    torus_latency: float = 0.0  # s, overlapped with the bytes

    def seconds(self, bytes: Number) -> Number:
        """Seconds of one call of so many bytes."""
        return self.latency + np.maximum(self.torus_latency, self.per_byte * bytes)


def candidates(
    kind: CollectiveKind, placement: PlacedGroups, profile: Profile, algorithm: str
) -> list[Candidate]:
    """Every candidate that can run: of one algorithm, or with "auto" of all that are considered."""
    runnable: list[Candidate] = []
    for name in _names(kind, profile, algorithm, placement):
        reason = _cluster_refusal(name, kind, placement.cluster)
        loads = () if reason else link_loads(kind, placement, name)
        units = _units(loads)
        reason = reason or ALGORITHMS[name].refusal(units)
        if reason and algorithm != "auto":
            raise InputError(f"{placement.cluster.name}: {reason}")
        if not reason and (algorithm != "auto" or ALGORITHMS[name].is_considered(units)):
            every = (_candidate(kind, name, loads, profile, p) for p in protocols(profile, name))
            runnable += [candidate for candidate in every if candidate is not None]
    if not runnable:
        links = ", ".join(level.link for level in placement.levels)
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return runnable


def _cluster_refusal(name: str, kind: CollectiveKind, cluster: Cluster) -> str:
    """Reason why an algorithm cannot run a kind of collective on a cluster; "" if it can."""
    algorithm = ALGORITHMS[name]
    if kind not in algorithm.kinds:
        return f"{name} does not do {kind}; what does: {', '.join(algorithms_of(kind))}"
    if cluster.torus is not None and not algorithm.on_torus:
        able = ", ".join(a.name for a in ALGORITHMS.values() if a.on_torus)
        return f"{name} does not run on a torus; what does: {able}"
    if algorithm.in_switch and not cluster.has_nvls:
        return f"{name} needs NVSwitches that can add (NVLink SHARP, from Hopper on)"
    return ""


def _names(
    kind: CollectiveKind, profile: Profile, algorithm: str, placement: PlacedGroups
) -> list[str]:
    """Names of the algorithms to try.

    "auto" tries those with figures of their own in the profile, and between nodes, where none has
    any, also NCCL's trees and PAT; without any figures only what every library has.
    """
    if algorithm != "auto":
        check_keys([algorithm], ALGORITHMS, "algorithm")
        return [algorithm]
    own = algorithms(profile, kind)
    check_keys(own, ALGORITHMS, f"profile {profile.name}: algorithm")
    names = [name for name in ALGORITHMS if name in own and kind in ALGORITHMS[name].kinds]
    if names and placement.crossed_level not in INSIDE_A_NODE:
        if not has_figures(profile, kind, "network"):
            names += [n for n in BETWEEN_NODES if kind in ALGORITHMS[n].kinds and n not in names]
    return names or ["pairwise" if kind == "all-to-all" else "ring"]


@dataclass(frozen=True)
class _Use:
    """A level that an algorithm loads, with the fit of its links."""

    level: NetworkLevel
    load: LinkLoad
    hops: float  # that wait for one another
    fit: LinkFit

    @property
    def per_byte(self) -> float:
        """Seconds per byte of the call."""
        steps = self.load.serial_steps
        fill_drain = 1 + self.fit.fill_drain / steps if steps else 1.0
        return self.load.share / (self.level.bandwidth * self.fit.efficiency) * fill_drain

    @property
    def latency(self) -> float:
        """Seconds of all hops, without those that overlap with bytes."""
        if self.load.torus_hops is not None:
            return self.load.torus_hops * self.fit.hop_overhead
        hop = self.fit.latency_factor * self.level.hop_latency + self.fit.hop_overhead
        return self.hops * self.load.hops_per_message * hop

    @property
    def torus_latency(self) -> float:
        """Seconds of the links of a torus, while bytes flow already."""
        return (self.load.torus_hops or 0.0) * self.fit.latency_factor * self.level.hop_latency


def _candidate(
    kind: CollectiveKind, name: str, loads: Loads, profile: Profile, protocol: str
) -> Candidate | None:
    """The cost under one protocol, or None if the profile has no fit of one of the links."""
    uses, own = [], name in algorithms(profile, kind)
    figures = "ring" if name == "tree" and not own else name  # a ring's chain inside a node
    for (level, load), hops in zip(loads, _hops(kind, ALGORITHMS[name], loads), strict=True):
        if load.share > 0:
            fit = link_fit(profile, figures, kind, level.link, protocol, level.transport)
            if fit is None:
                return None
            uses.append(_Use(level, load, hops, fit))
    per_byte = [use.per_byte for use in uses]
    close = max(per_byte) * (1 - CLOSE)
    busiest = next(use for use, one in zip(uses, per_byte, strict=True) if one >= close)
    total = max if kind == "permute" else sum  # of a permute the one longest hop counts
    return Candidate(
        name,
        protocol,
        max(use.fit.alpha for use in uses) + total(use.latency for use in uses),
        max(per_byte),
        busiest.level,
        busiest.load,
        busiest.fit.evidence,
        total(use.torus_latency for use in uses),
    )


def _units(loads: Loads) -> list[int]:
    """Units that one group joins in each level with hops of its own, from the chip outwards."""
    return [load.units for level, load in loads if level.own_hops] or [1]


def _hops(kind: CollectiveKind, algorithm: CollectiveAlgorithm, loads: Loads) -> list[float]:
    """Hops over each level that wait for one another; 0 where they count with another level's."""
    counts = iter(algorithm.hops(kind, _units(loads)))
    return [next(counts) if level.own_hops else 0.0 for level, _ in loads]


def bottleneck_words(candidate: Candidate, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`; prefixed if latency takes longer."""
    level, load = candidate.level, candidate.load
    each = format_size(bytes * load.share / load.groups)
    groups = f"{load.groups} groups x " if load.groups > 1 else ""
    text = f"{level.name}: {groups}{each} over {format_rate(level.bandwidth)}"
    if level.staged:
        text += ", through host memory"
    latency = max(candidate.latency, candidate.torus_latency)
    return f"latency, then {text}" if latency > candidate.per_byte * bytes else text
