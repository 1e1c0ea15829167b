"""Every way a collective can run on a cluster: algorithms and their protocols, with their costs.

seconds = latency + max(filling, per_byte x bytes)

latency     alpha + hops that wait for one another x what a hop takes
per_byte    of the busiest uplink: what all groups put on it, over what a fit says it achieves
filling     on a torus: the latency of the links, which overlaps with the bytes
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from meshes.cluster import Cluster
from meshes.errors import InputError, check_keys
from meshes.units import format_rate, format_size
from scaling.cost.algorithms import ALGORITHMS, KINDS, Algorithm, hops, is_chosen, refusal
from scaling.cost.profile import Evidence, LinkFit, Profile, algorithms, link_fit, protocols
from scaling.cost.traffic import Load, Uplink, load
from scaling.cost.uplinks import have_rings, uplinks
from scaling.program import CollectiveKind, Number

ON_TORUS = ("ring", "hierarchical", "pairwise")


@dataclass(frozen=True)
class Way:
    """An algorithm under one protocol: seconds = latency + max(filling, per_byte x bytes)."""

    algorithm: Algorithm
    protocol: str
    latency: float
    per_byte: float
    uplink: Uplink
    load: Load
    evidence: Evidence
    filling: float = 0.0  # s, of hops on a torus: bytes flow meanwhile

    def seconds(self, bytes: Number) -> Number:
        """Of one call."""
        return self.latency + np.maximum(self.filling, self.per_byte * bytes)


def ways(
    kind: CollectiveKind, groups: np.ndarray, cluster: Cluster, profile: Profile, asked: str
) -> list[Way]:
    """All ways that are open: what was asked for, or else every algorithm that can run."""
    found: list[Way] = []
    for algorithm in _candidates(kind, profile, asked):
        loads = loads_of(kind, groups, cluster, algorithm)
        units = _units(loads)
        reason = refusal(algorithm, kind, units, cluster.switch_reduction)
        if not reason and cluster.torus is not None and algorithm not in ON_TORUS:
            reason = f"{algorithm} does not run on a torus; what does: {', '.join(ON_TORUS)}"
        if reason and asked != "auto":
            raise InputError(f"{cluster.name}: {reason}")
        if not reason and (asked != "auto" or is_chosen(algorithm, units)):
            for protocol in protocols(profile, algorithm):
                way = _way(kind, algorithm, loads, profile, protocol)
                found += [way] if way is not None else []
    if not found:
        links = ", ".join(dict.fromkeys(u.link for u, carried in loads if carried.share > 0))
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return found


def _candidates(kind: CollectiveKind, profile: Profile, asked: str) -> Iterable[Algorithm]:
    if asked != "auto":
        check_keys([asked], ALGORITHMS, "algorithm")
        return [a for a in ALGORITHMS if a == asked]
    own = [a for a in algorithms(profile, kind) if kind in KINDS[a]]
    return own or (["pairwise"] if kind == "all-to-all" else ["ring", "hierarchical"])


def loads_of(
    kind: CollectiveKind, groups: np.ndarray, cluster: Cluster, algorithm: Algorithm
) -> tuple[tuple[Uplink, Load], ...]:
    """All uplinks, and what they carry: nothing where no group leaves a unit."""
    return _known_loads(kind, groups.tobytes(), groups.shape, cluster, algorithm)


@lru_cache(maxsize=4096)
def _known_loads(
    kind: CollectiveKind,
    ids: bytes,
    shape: tuple[int, ...],
    cluster: Cluster,
    algorithm: Algorithm,
) -> tuple[tuple[Uplink, Load], ...]:
    groups = np.frombuffer(ids, int).reshape(shape)
    all_ = uplinks(cluster, have_rings(cluster, groups))
    loads = ((uplink, load(kind, groups, uplink, algorithm)) for uplink in all_)
    return tuple(loads)


def _way(
    kind: CollectiveKind,
    algorithm: Algorithm,
    loads: Sequence[tuple[Uplink, Load]],
    profile: Profile,
    protocol: str,
) -> Way | None:
    """The cost under one protocol, or None where the profile lacks it."""
    counts = _hops(kind, algorithm, loads)
    busy = [k for k, (_, carried) in enumerate(loads) if carried.share > 0]
    loads, counts = [loads[k] for k in busy], [counts[k] for k in busy]
    fits = [link_fit(profile, algorithm, kind, uplink.link, protocol) for uplink, _ in loads]
    known = [fit for fit in fits if fit is not None]
    if len(known) < len(fits):
        return None
    per_byte = [
        carried.share / (uplink.bandwidth * fit.efficiency) * _stall(fit, carried)
        for (uplink, carried), fit in zip(loads, known, strict=True)
    ]
    # of equals, the first
    busiest = int(np.argmax(np.round(np.array(per_byte) / max(per_byte), 9)))
    waiting, filling = _latency(kind, counts, loads, known)
    latency = max(fit.alpha for fit in known) + waiting
    evidence = known[busiest].evidence
    return Way(algorithm, protocol, latency, per_byte[busiest], *loads[busiest], evidence, filling)


def _stall(fit: LinkFit, carried: Load) -> float:
    return 1 + fit.stall / carried.transfers if carried.transfers else 1.0


def _units(loads: Sequence[tuple[Uplink, Load]]) -> list[int]:
    """Units that one group joins in each level, inside out; 1 where it has one member in each."""
    return [carried.neighbours for uplink, carried in loads if uplink.latency > 0] or [1]


def _hops(
    kind: CollectiveKind, algorithm: Algorithm, loads: Sequence[tuple[Uplink, Load]]
) -> list[float]:
    """Hops over each uplink that wait for one another; those without latency have none."""
    counts = iter(hops(algorithm, kind, _units(loads)))
    return [next(counts) if uplink.latency > 0 else 0.0 for uplink, _ in loads]


def _latency(
    kind: CollectiveKind,
    counts: Sequence[float],
    loads: Sequence[tuple[Uplink, Load]],
    fits: Sequence[LinkFit],
) -> tuple[float, float]:
    """Seconds of all hops that wait for one another, and of those that bytes hide on a torus.

    Of a permute the one longest hop counts.
    """
    waiting, filling = [0.0], [0.0]
    for n, (uplink, carried), fit in zip(counts, loads, fits, strict=True):
        if carried.hops is None:
            waiting.append(n * (fit.latency * uplink.latency + fit.step))
        else:
            waiting.append(carried.hops * fit.step)
            filling.append(carried.hops * fit.latency * uplink.latency)
    total = max if kind == "permute" else sum
    return total(waiting), total(filling)


def bottleneck(way: Way, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`, or that latency is more than that."""
    uplink, carried = way.uplink, way.load
    each = format_size(bytes * carried.share / carried.groups)
    groups = f"{carried.groups} groups x " if carried.groups > 1 else ""
    words = f"{uplink.words}: {groups}{each} over {format_rate(uplink.bandwidth)}"
    if uplink.staged:
        words += ", through host memory"
    waiting = max(way.latency, way.filling)
    return f"latency, then {words}" if waiting > way.per_byte * bytes else words
