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
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS, CollectiveAlgorithm, algorithms_of
from scaling.collectives.contention import LinkLoad, Loads, PlacedGroups, link_loads, split_loads
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.levels import NetworkLevel
from scaling.meshes.units import format_rate, format_size
from scaling.profiles.link_fits import algorithms, link_fit
from scaling.profiles.profile import LinkFit, Profile
from scaling.program.ir import CollectiveKind, Number

FASTEST = "fastest"  # of all that the links can run, whatever a library would take by itself
CLOSE = 1e-9  # relative: of levels so close to the busiest, the innermost is named


@dataclass(frozen=True)
class Candidate:
    """An algorithm with its cost, a function of the bytes of a call."""

    algorithm: str
    latency: float  # s
    per_byte: float  # s per byte of the call
    level: NetworkLevel  # the busiest
    load: LinkLoad  # of that level
    fits: tuple[LinkFit, ...]  # of the levels that it loads, from the chip outwards
    decides: LinkFit  # of the busiest level
    waits: LinkFit  # of the level that latency waits for longest
    wires: tuple[tuple[NetworkLevel, float], ...]  # s per byte that each level's links are busy
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

    With "fastest" also of those that no library considers, such as sums in the network's switches.

    The placement keeps them: a search of meshes asks again and again.
    """
    kept = placement.look_ups.get((kind, algorithm))
    if kept is None or kept[0] is not profile:
        kept = profile, _candidates(kind, placement, profile, algorithm)
        placement.look_ups[kind, algorithm] = kept
    return kept[1]


def _candidates(
    kind: CollectiveKind, placement: PlacedGroups, profile: Profile, algorithm: str
) -> tuple[Candidate, ...]:
    runnable: list[Candidate] = []
    for name in _names(kind, profile, algorithm):
        reason = refusal(name, kind, placement)
        if reason and algorithm not in ("auto", FASTEST):
            raise InputError(f"{placement.cluster.name}: {reason}")
        if reason or (algorithm == "auto" and not is_considered(name, kind, placement)):
            continue
        loads = link_loads(kind, placement, name)
        if algorithm == FASTEST:
            loads = split_loads(kind, placement, loads)
        uses = uses_of(kind, name, loads, placement.ranks)
        if known := _with_fits(uses, name, kind, profile):
            runnable.append(candidate(kind, name, known))
    if not runnable:
        links = ", ".join(level.link for level in placement.levels)
        raise InputError(f"profile {profile.name} says nothing of {kind} over {links}")
    return tuple(runnable)


def refusal(name: str, kind: CollectiveKind, placement: PlacedGroups) -> str:
    """Reason why an algorithm cannot run a kind of collective there; "" if it can."""
    algorithm, cluster = ALGORITHMS[name], placement.cluster
    if kind not in algorithm.kinds:
        return f"{name} does not do {kind}; what does: {', '.join(algorithms_of(kind))}"
    if cluster.torus is not None and not algorithm.on_torus:
        able = ", ".join(a.name for a in ALGORITHMS.values() if a.on_torus)
        return f"{name} does not run on a torus; what does: {able}"
    if algorithm.in_switch and not cluster.has_nvls:
        return f"{name} needs NVSwitches that can add (NVLink SHARP, from Hopper on)"
    if algorithm.in_network and not (cluster.fabric and cluster.fabric.has_sharp):
        return f"{name} needs switches between the nodes that can add (`has_sharp` of the fabric)"
    return algorithm.refusal(_units(link_loads(kind, placement, name)))


def is_considered(name: str, kind: CollectiveKind, placement: PlacedGroups) -> bool:
    """True if `auto` considers an algorithm that can run there."""
    return ALGORITHMS[name].is_considered(_units(link_loads(kind, placement, name)))


def _names(kind: CollectiveKind, profile: Profile, algorithm: str) -> list[str]:
    """Names of the algorithms to try: "auto" tries those with figures of their own in the profile.

    Without any figures only what every library has; "fastest" tries all.
    """
    if algorithm == FASTEST:
        able = [name for name in ALGORITHMS if kind in ALGORITHMS[name].kinds]
        # of equally fast ones that which needs least of the switches is named
        return sorted(able, key=lambda n: ALGORITHMS[n].in_switch + ALGORITHMS[n].in_network)
    if algorithm != "auto":
        check_keys([algorithm], ALGORITHMS, "algorithm")
        return [algorithm]
    own = algorithms(profile, kind)
    check_keys(own, ALGORITHMS, f"profile {profile.name}: algorithm")
    names = [name for name in ALGORITHMS if name in own and kind in ALGORITHMS[name].kinds]
    return names or ["pairwise" if kind == "all-to-all" else "ring"]


@dataclass(frozen=True)
class Use:
    """A level that an algorithm loads, with the fit of its links."""

    level: NetworkLevel
    load: LinkLoad
    hops: float  # that wait for one another
    fit: LinkFit | None = None  # None: not looked up yet


def uses_of(kind: CollectiveKind, name: str, loads: Loads, ranks: int) -> list[Use]:
    """The levels that an algorithm loads, from the chip outwards, in groups of so many ranks."""
    hops = _hops(kind, ALGORITHMS[name], loads, ranks)
    return [
        Use(level, load, count)
        for (level, load), count in zip(loads, hops, strict=True)
        if load.share > 0
    ]


def transports_of(uses: list[Use]) -> list[str]:
    """The transport of each level: of the network, or "host" for PCIe through host memory."""
    staged = any(
        use.level.staged or 0 < use.level.most_peers < use.load.units
        for use in uses
        if use.level.link == "pcie"
    )
    return ["host" if staged and u.level.link == "pcie" else u.level.transport for u in uses]


def _with_fits(
    uses: list[Use], name: str, kind: CollectiveKind, profile: Profile
) -> list[Use] | None:
    """The uses with the fits of their links, or None: the profile lacks one.

    What no library runs (`hierarchical`, `one-way-ring`) has the figures of a ring, an all-to-all
    those of sends to each peer.
    """
    nearest = "pairwise" if kind == "all-to-all" else "ring"
    own = name if name in algorithms(profile, kind) else nearest
    found = []
    for use, transport in zip(uses, transports_of(uses), strict=True):
        fit = link_fit(profile, own, kind, use.level.link, transport)
        if fit is None:
            return None
        found.append(replace(use, fit=fit))
    return found


def candidate(kind: CollectiveKind, name: str, uses: list[Use]) -> Candidate:
    """The cost of an algorithm from the levels that it loads, each with the fit of its links."""
    total = max if kind == "permute" else sum  # of a permute the one longest way counts
    hops: dict[str, list[float]] = defaultdict(list)  # s, by kind of link
    alphas: dict[str, float] = defaultdict(float)
    fits, per_bytes, torus, waits = [], [], [], []
    for use in uses:
        fit, load, level = use.fit, use.load, use.level
        assert fit is not None
        fits.append(fit)
        serial = 1 + fit.fill_drain / load.serial_steps if load.serial_steps else 1.0
        per_bytes.append(load.share / (level.bandwidth * fit.efficiency) * serial)
        wire, count = fit.latency_factor * level.hop_latency, use.hops * load.hops_per_message
        if load.torus_hops is not None:
            torus.append(load.torus_hops * wire)
            wire, count = 0.0, load.torus_hops
        elif fit.overlaps:
            torus.append(count * wire)
            wire = 0.0
        members = fit.member_overhead * (load.units - 1) if fit.member_overhead else 0.0
        hops[level.link].append(count * (wire + fit.hop_overhead) + members)
        overlapped = torus[-1] if fit.overlaps or load.torus_hops is not None else 0.0
        waits.append(fit.alpha + hops[level.link][-1] + overlapped)
        alphas[level.link] = max(alphas[level.link], fit.alpha)
    most = max(per_bytes)
    busiest = next(i for i, one in enumerate(per_bytes) if one >= most * (1 - CLOSE))
    return Candidate(
        name,
        total(alphas[link] + total(hops[link]) for link in hops),
        most,
        uses[busiest].level,
        uses[busiest].load,
        tuple(fits),
        fits[busiest],
        fits[int(np.argmax(waits))],
        tuple((use.level, seconds) for use, seconds in zip(uses, per_bytes, strict=True)),
        *max((fit.knee, fit.knee_end) for fit in fits),
        total(torus) if torus else 0.0,
    )


def _units(loads: Loads) -> list[int]:
    """Units that one group joins in each level with hops of its own, from the chip outwards."""
    return [load.units for level, load in loads if level.own_hops] or [1]


def _hops(
    kind: CollectiveKind, algorithm: CollectiveAlgorithm, loads: Loads, ranks: int
) -> list[float]:
    """Hops over each level that wait for one another; 0 where they count with another level's."""
    counts = iter(algorithm.hops(kind, _units(loads), ranks))
    return [next(counts) if level.own_hops else 0.0 for level, _ in loads]


def bottleneck_words(candidate: Candidate, bytes: float) -> str:
    """`NICs of a node: 8 groups x 117 MB over 400 GB/s`; prefixed if latency takes longer."""
    level, load = candidate.level, candidate.load
    each = format_size(bytes * load.share / load.groups)
    groups = f"{load.groups} groups x " if load.groups > 1 else ""
    text = f"{level.name}: {groups}{each} over {format_rate(level.bandwidth)}"
    if level.staged or candidate.decides.transport == "host":
        text += ", through host memory"
    return f"latency, then {text}" if candidate.is_late(bytes) else text
