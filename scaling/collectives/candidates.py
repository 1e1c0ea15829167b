"""The candidates for a collective: the algorithms that can run, with their costs.

seconds = latency + max(torus latency, wire) + knee x latency x p / (1 + knee_end x p)
wire    = per_byte x bytes,  p = sqrt(wire / latency)

latency        alphas + hops that wait for one another x what a hop takes, over all levels
per_byte       of the busiest level: share of its links' load over the bandwidth that a fit says
               they achieve, x (1 + fill_drain / serial steps)
knee           medium sizes, where neither the hops nor the bytes alone decide
torus latency  of the links of a torus, which overlaps with the bytes

A message that is cut into k pieces to overlap its h hops takes (h + k) x (hop + wire / k); the best
k, proportional to p, makes that  latency + wire + 2 latency p / sqrt(h).  Libraries have a few
protocols, and pieces of at most some size, so that the term ends; both constants are fitted.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS, algorithms_of
from scaling.collectives.contention import LinkLoad, Loads, PlacedGroups, split_loads
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.levels import NetworkLevel
from scaling.profiles.profile import LinkFit, Profile, algorithms, link_fit
from scaling.program.ir import CollectiveKind, Number

BEST_POSSIBLE = "best-possible"  # of all that links can run, whatever a library would take
CLOSE = 1e-9  # relative: of levels so close to the busiest, the innermost is named


@dataclass(frozen=True)
class LoadedLevel:
    """A level that an algorithm loads, with the fit of its links."""

    level: NetworkLevel
    load: LinkLoad
    hops: float  # that wait for one another
    transport: str  # of a network; "host" for PCIe through host memory
    fit: LinkFit | None = None  # None: not looked up yet

    @property
    def figures(self) -> LinkFit:
        """The fit, once it was looked up."""
        assert self.fit is not None
        return self.fit

    @property
    def link_hops(self) -> float:
        """Hops over single links that wait for one another; a torus has its own."""
        on_torus = self.load.torus_hops
        return self.hops * self.load.hops_per_message if on_torus is None else on_torus

    @property
    def per_byte(self) -> float:
        """Seconds per byte of the call that the busiest links of the level are busy."""
        fit, steps = self.figures, self.load.serial_steps
        serial = 1 + fit.fill_drain / steps if steps else 1.0
        return self.load.share / (self.level.bandwidth * fit.efficiency) * serial


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its cost, a function of the bytes of a call."""

    algorithm: str
    latency: float  # s
    per_byte: float  # s per byte of the call
    busiest: LoadedLevel
    loaded: tuple[LoadedLevel, ...]  # all levels that it loads, from the chip outwards
    waits: LinkFit  # of the level that latency waits for longest
    knee: float = 0.0
    knee_end: float = 0.0
    torus_latency: float = 0.0  # s, overlapped with the bytes

    def seconds(self, bytes: Number) -> Number:
        """Seconds of one call of so many bytes."""
        return seconds_of(self.figures, bytes)

    def is_late(self, bytes: float) -> bool:
        """True if latency takes longer than the bytes of a call."""
        return max(self.latency, self.torus_latency) > self.per_byte * bytes

    @property
    def figures(self) -> tuple[float, float, float, float, float]:
        """What `seconds_of` takes: latency, per byte, knee, its end, torus latency."""
        return self.latency, self.per_byte, self.knee, self.knee_end, self.torus_latency


def seconds_of(figures: Iterable[Number], bytes: Number) -> Number:
    """Seconds of calls of so many bytes, by `Candidate.figures` first, numbers or arrays."""
    latency, per_byte, knee, knee_end, torus_latency, *_ = figures
    wire = per_byte * bytes
    pieces = np.sqrt(wire / np.where(np.greater(latency, 0), latency, 1))
    medium = knee * latency * pieces / (1 + knee_end * pieces)
    return latency + np.maximum(torus_latency, wire) + medium


def candidates(
    kind: CollectiveKind, placement: PlacedGroups, profile: Profile, algorithm: str
) -> tuple[Candidate, ...]:
    """Every candidate that can run: of one algorithm, or with "auto" of all that are considered.

    With "best-possible" also of those that no library considers, but no sums in switches, which
    the textbook's all-reduce of 2 V / W does without.

    The placement keeps them: a search of meshes asks again and again.
    """
    kept = placement.cache.get((kind, algorithm))
    if kept is None or kept[0] is not profile:
        kept = profile, _candidates(kind, placement, profile, algorithm)
        placement.cache[kind, algorithm] = kept
    return kept[1]


def _candidates(
    kind: CollectiveKind, placement: PlacedGroups, profile: Profile, algorithm: str
) -> tuple[Candidate, ...]:
    runnable: list[Candidate] = []
    for name in _names(kind, profile, algorithm):
        rule, reason = ALGORITHMS[name], refusal(name, kind, placement.cluster)
        loads = () if reason else placement.loads(kind)[name]
        reason = reason or rule.refusal(units_of(loads))
        if reason and algorithm not in ("auto", BEST_POSSIBLE):
            raise InputError(f"{placement.cluster.name}: {reason}")
        if reason or (algorithm == "auto" and not rule.is_considered(units_of(loads))):
            continue
        if algorithm == BEST_POSSIBLE:
            loads = split_loads(kind, placement, loads)
        # No library runs `hierarchical` or `one-way-ring`: they take the figures of a ring, and an
        # all-to-all takes those of sends to each peer.
        nearest = "pairwise" if kind == "all-to-all" else "ring"
        fitted = name if name in algorithms(profile, kind) else nearest
        loaded = loaded_levels(kind, name, loads, placement.ranks)
        fits = [link_fit(profile, fitted, kind, x.level.link, x.transport) for x in loaded]
        if loaded and all(fits):
            loaded = [replace(x, fit=fit) for x, fit in zip(loaded, fits, strict=True)]
            runnable.append(candidate(kind, name, loaded))
    if not runnable:
        links = ", ".join(level.link for level in placement.levels)
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return tuple(runnable)


def refusal(name: str, kind: CollectiveKind, cluster: Cluster) -> str:
    """Reason why no groups of a cluster can run a collective by an algorithm; "" if some can."""
    algorithm = ALGORITHMS[name]
    if kind not in algorithm.kinds:
        return f"{name} does not do {kind}; what does: {', '.join(algorithms_of(kind))}"
    if cluster.torus is not None and not algorithm.on_torus:
        able = ", ".join(a.name for a in ALGORITHMS.values() if a.on_torus)
        return f"{name} does not run on a torus; what does: {able}"
    if algorithm.in_switch and not cluster.has_nvls:
        return f"{name} needs NVSwitches that can add (NVLink SHARP, from Hopper on)"
    if algorithm.in_network and not (cluster.fabric and cluster.fabric.has_sharp):
        return f"{name} needs switches between the nodes that can add (`has_sharp` of the fabric)"
    return ""


def _names(kind: CollectiveKind, profile: Profile, algorithm: str) -> list[str]:
    """Names of the algorithms to try: "auto" tries those with figures of their own in the profile.

    Without any figures only what every library has; "best-possible" tries all.
    """
    if algorithm == BEST_POSSIBLE:
        return [
            a.name
            for a in ALGORITHMS.values()
            if kind in a.kinds and not (a.in_switch or a.in_network)
        ]
    if algorithm != "auto":
        check_keys([algorithm], ALGORITHMS, "algorithm")
        return [algorithm]
    fitted = algorithms(profile, kind)
    check_keys(fitted, ALGORITHMS, f"profile {profile.name}: algorithm")
    names = [name for name in ALGORITHMS if name in fitted and kind in ALGORITHMS[name].kinds]
    return names or ["pairwise" if kind == "all-to-all" else "ring"]


def loaded_levels(kind: CollectiveKind, name: str, loads: Loads, ranks: int) -> list[LoadedLevel]:
    """The levels that an algorithm loads, from the chip outwards, in groups of so many ranks."""
    counts = iter(ALGORITHMS[name].hops(kind, units_of(loads), ranks))
    # hops of a level without hops of its own count with another level's
    hops = [next(counts) if level.own_hops else 0.0 for level, _ in loads]
    used = [(level, load, n) for (level, load), n in zip(loads, hops, strict=True) if load.share]
    staged = any(
        level.link == "pcie" and (level.staged or 0 < level.most_peers < load.units)
        for level, load, _ in used
    )
    # what writes to and reads from host memory is a chip; links that several share carry its bytes
    of_chip = lambda level: staged and level.link == "pcie" and level.own_hops
    through = lambda level: "host" if of_chip(level) else level.transport
    return [LoadedLevel(level, load, n, through(level)) for level, load, n in used]


def candidate(kind: CollectiveKind, name: str, loaded: Sequence[LoadedLevel]) -> Candidate:
    """The cost of an algorithm from the levels that it loads, each with the fit of its links."""
    total = max if kind == "permute" else sum  # of a permute the one longest way counts
    hops: dict[str, list[float]] = defaultdict(list)  # s, by kind of link
    alphas: dict[str, float] = defaultdict(float)
    torus, waits = [], []
    for one in loaded:
        fit, load, link = one.figures, one.load, one.level.link
        wire, beside = fit.latency_factor * one.level.hop_latency, 0.0
        if fit.overlaps or load.torus_hops is not None:
            wire, beside = 0.0, one.link_hops * wire
            torus.append(beside)
        members = fit.member_overhead * (load.units - 1)
        hops[link].append(one.link_hops * (wire + fit.hop_overhead) + members)
        waits.append(fit.alpha + hops[link][-1] + beside)
        alphas[link] = max(alphas[link], fit.alpha)
    per_bytes = [one.per_byte for one in loaded]
    most = max(per_bytes)
    knee, knee_end = max((one.figures.knee, one.figures.knee_end) for one in loaded)
    return Candidate(
        name,
        total(alphas[link] + total(hops[link]) for link in hops),
        most,
        next(one for one, n in zip(loaded, per_bytes, strict=True) if n >= most * (1 - CLOSE)),
        tuple(loaded),
        loaded[int(np.argmax(waits))].figures,
        knee,
        knee_end,
        total(torus) if torus else 0.0,
    )


def units_of(loads: Loads) -> list[int]:
    """Units that one group joins in each level with hops of its own, from the chip outwards."""
    return [load.units for level, load in loads if level.own_hops] or [1]
