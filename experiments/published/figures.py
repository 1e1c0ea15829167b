"""The figures of all links, and the link fits that follow from them.

A figure has one value for all machines, "hop", and where data of several machines tell, factors for
one generation of chips, "hop:hopper", or of PCIe, "host:pcie5", or one transport between nodes,
"net_hop:efa". A chip or transport without factors of its own has the common value. Every ring
inside a node, under whatever collective, has the same alpha, hop, efficiency, fill and knee; so has
every ring between nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from scaling.profiles.profile import ANY, Evidence, LinkFit, LinkKind
from scaling.program.ir import CollectiveKind

Figures = Mapping[str, float]
US = 1e-6
RINGS: tuple[CollectiveKind, ...] = ("all-reduce", "all-gather", "reduce-scatter", "broadcast")
PAIRS: tuple[CollectiveKind, ...] = ("all-to-all", "permute")
GENERATIONS: dict[str, tuple[str, ...]] = {
    "volta": ("v100-sxm-16g", "v100-sxm-32g"),
    "ampere": ("a100-sxm-40g", "a100-sxm-80g"),
    "hopper": ("h100-sxm", "h200-sxm"),
    "blackwell": ("b200-sxm", "gb200", "gb300"),
    "cdna": ("mi300x", "mi250x-gcd"),
    "pcie5": ("rtx-pro-6000", "h100-pcie"),
}
LINK_OF: dict[str, LinkKind] = {
    **dict.fromkeys(("volta", "ampere", "hopper", "blackwell"), "nvlink"),
    "cdna": "xgmi",
    "pcie5": "pcie",
}
TRANSPORTS = ("verbs", "efa", "tcpx")

# Where the search starts, and towards which it is pulled: orders of magnitude from NCCL 2.30.7
# (src/graph/tuning.cc: a call of 7 to 8 us, LL steps of 0.6 us over NVLink, 2.7 to 5 outside).
COMMON: dict[str, float] = {
    "alpha": 6 * US,  # s, a call
    "hop": 0.5 * US,  # s, beyond the latency of the links
    "ring": 0.8,  # efficiencies
    "nvls": 0.6,
    "pair": 0.8,
    "pcie": 0.6,
    "host": 0.2,  # of the PCIe of a chip, through host memory
    "fill": 0.4,  # transfers
    "knee": 0.8,
    "knee_end": 0.2,
    "nvls_call": 25 * US,  # s, beyond alpha: a step of NVLS in NCCL's table
    "nvls_peer": 0.4 * US,  # s, every other member
    "nvls_knee": 0.8,
    "pair_call": 2 * US,
    "pair_peer": 0.4 * US,  # s, every peer of an all-to-all
    "pair_knee": 0.8,
    "net_call": 5 * US,  # s, beyond what happens inside the nodes
    "net_hop": 3 * US,
    "net_ring": 0.85,
    "net_tree": 0.8,
    "net_pair": 0.75,
    "net_send": 0.6,
    "net_peer": 0.5 * US,
    "net_fill": 0.4,
    "net_knee": 1.2,
    "net_tree_knee": 1.2,
    "net_sharp": 0.5,
}
# Standard deviations of the logarithm of a figure, and of its factors, as taken by the search. Only
# NCCL's own table tells a small sum in the switch from a small ring: they take as long.
LOOSE, OWN = 1.0, {"nvls_call": 0.1}
FACTOR = {"alpha": 0.5, "hop": 0.5, "fill": 1.0, "net_call": 1.0, "net_hop": 0.5}
TIGHT = 0.15  # of efficiencies
NVLINK_CHIPS = tuple(g for g, link in LINK_OF.items() if link != "pcie")
FACTORS: tuple[tuple[str, str], ...] = (
    *((n, g) for n in ("alpha", "hop", "ring", "pair") for g in NVLINK_CHIPS),
    *((n, "pcie5") for n in ("pcie", "host")),
    ("fill", "volta"),
    *(("nvls", g) for g in ("hopper", "blackwell")),
    *((n, t) for n in ("net_call", "net_ring", "net_tree") for t in TRANSPORTS),
)
EFFICIENCIES = (
    "ring",
    "nvls",
    "pair",
    "pcie",
    "host",
    "net_ring",
    "net_tree",
    "net_pair",
    "net_send",
    "net_sharp",
)
NAMES = (*COMMON, *(f"{name}:{scope}" for name, scope in FACTORS))


def start(name: str) -> float:
    """Where the search of a figure or factor starts."""
    return COMMON.get(name, 1.0)


def deviation(name: str) -> float:
    """Standard deviation of the logarithm of a figure or factor."""
    figure, _, scope = name.partition(":")
    if not scope:
        return OWN.get(figure, TIGHT * 2 if figure in EFFICIENCIES else LOOSE)
    return LOOSE if figure == "host" else FACTOR.get(figure, TIGHT)


@dataclass(frozen=True)
class Key:
    """The use of a link that one fit describes."""

    algorithm: str
    kind: CollectiveKind
    link: LinkKind
    scope: str  # a generation of chips inside a node, a transport between nodes; ANY: no factors
    staged: bool = False  # PCIe through host memory


def keys() -> Iterator[Key]:
    """Everything that has a link fit."""
    for scope, link in (*LINK_OF.items(), (ANY, "nvlink"), (ANY, "xgmi"), (ANY, "pcie")):
        for key in _keys(link, scope, has_nvls=link == "nvlink"):
            yield key
            if link == "pcie":
                yield replace(key, staged=True)
    for transport in (*TRANSPORTS, ANY):
        yield from _keys("network", transport, has_nvls=True)


def _keys(link: LinkKind, scope: str, has_nvls: bool) -> Iterator[Key]:
    for kind in RINGS:
        yield Key("ring", kind, link, scope)
    yield Key("tree", "all-reduce", link, scope)
    if has_nvls and link != "network":
        yield Key("nvls", "all-reduce", link, scope)
    if has_nvls:
        yield Key("nvls-tree", "all-reduce", link, scope)
        yield Key("sharp", "all-reduce", link, scope)
    if link == "network":
        yield Key("pat", "all-gather", link, scope)
        yield Key("pat", "reduce-scatter", link, scope)
    for kind in PAIRS:
        yield Key("pairwise", kind, link, scope)


def link_fit_of(f: Figures, key: Key, evidence: Evidence) -> LinkFit:
    """The link fit that follows from the figures."""
    fit = _between(f, key, evidence) if key.link == "network" else _inside(f, key, evidence)
    return replace(fit, efficiency=min(1.0, fit.efficiency))


def _own(f: Figures, name: str, scope: str) -> float:
    return f[name] * f.get(f"{name}:{scope}", 1.0)


def _inside(f: Figures, key: Key, evidence: Evidence) -> LinkFit:
    """Return the fit of a link inside a node."""

    def own(name: str) -> float:
        return _own(f, name, key.scope)

    def rate(name: str) -> float:
        return own("host" if key.staged else "pcie" if key.link == "pcie" else name)

    fit = LinkFit(
        key.kind,
        key.link,
        rate("ring"),
        evidence,
        algorithm=key.algorithm,
        alpha=own("alpha"),
        hop_overhead=own("hop"),
        knee=f["knee"],
        knee_end=f["knee_end"],
        fill_drain=own("fill") if key.link == "nvlink" else 0.0,  # xGMI: a link to each other
        transport="host" if key.staged else ANY,
    )
    if key.algorithm in ("nvls", "nvls-tree", "sharp"):
        fit = replace(fit, efficiency=own("nvls"), knee=f["nvls_knee"])
        fit = replace(fit, hop_overhead=0.0, member_overhead=f["nvls_peer"])
        return replace(fit, alpha=fit.alpha + f["nvls_call"])
    if key.algorithm != "pairwise":
        return fit
    fit = replace(fit, efficiency=rate("pair"), alpha=fit.alpha + f["pair_call"])
    return _to_all(replace(fit, knee=f["pair_knee"]), f["pair_peer"])


def _to_all(fit: LinkFit, peer: float) -> LinkFit:
    """Messages to all peers do not wait for one another: each costs its call."""
    if fit.kind != "all-to-all":
        return replace(fit, fill_drain=0.0)
    return replace(fit, latency_factor=0.0, hop_overhead=peer)


# PAT reaches 0.75 of a ring's bandwidth, and its steps take 14 us (NVIDIA/nccl 2.30.7,
# src/graph/tuning.cc); nothing that was published tells it from a ring.
PAT, PAT_HOP = 0.75, 14 * US


def _between(f: Figures, key: Key, evidence: Evidence) -> LinkFit:
    """Return the fit of the network between nodes."""

    def own(name: str) -> float:
        return _own(f, name, key.scope)

    fit = LinkFit(
        key.kind,
        key.link,
        own("net_ring"),
        evidence,
        algorithm=key.algorithm,
        alpha=own("net_call"),
        hop_overhead=own("net_hop"),
        knee=f["net_knee"],
        knee_end=f["knee_end"],
        fill_drain=f["net_fill"],
        transport=key.scope,
    )
    if key.algorithm == "pat":
        return replace(fit, efficiency=PAT * fit.efficiency, hop_overhead=PAT_HOP)
    if key.algorithm == "sharp":
        return replace(fit, efficiency=f["net_sharp"], knee=f["net_tree_knee"])
    if key.algorithm in ("tree", "nvls-tree"):
        return replace(fit, efficiency=own("net_tree"), knee=f["net_tree_knee"])
    if key.algorithm == "pairwise":
        name = "net_pair" if key.kind == "all-to-all" else "net_send"
        return _to_all(replace(fit, efficiency=f[name]), f["net_peer"])
    return fit
