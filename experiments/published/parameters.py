"""Link fits of a family from its parameters: one fit for each kind, algorithm and protocol.

    inside     the links of a node or NVLink domain: rings under three protocols, in-switch sums,
               all-to-alls as messages to everyone
    between    the network: rings, trees, and trees above in-switch sums, for each transport

NCCL's protocols: LL sends a flag with every 8 bytes (half of the bytes are data), LL128 with every
128 (120 are data), Simple waits for whole chunks; none is best for all sizes (NVIDIA/nccl 2.30.7).
"""

from collections.abc import Iterator, Mapping
from functools import partial

from scaling.profiles.profile import ANY, Evidence, LinkFit, LinkKind

Parameters = dict[str, float]
NET = "net_"  # prefix of the parameters of a network
RINGS = (
    ("all-reduce", "stall_sum"),
    ("all-gather", "stall_gather"),
    ("reduce-scatter", "stall_scatter"),
)
PROTOCOLS = ("Simple", "LL128", "LL")
# Latency factor of a ring's hop over the network, whose links take 2.7 us on InfiniBand: NCCL's own
# steps of 14, 4 and 2.7 us (NVIDIA/nccl 2.30.7, src/graph/tuning.cc). Not fitted: in published rows
# trees are faster between nodes, so that no row depends on the hop of a ring.
RING_HOPS = {"Simple": 14 / 2.7, "LL128": 4 / 2.7, "LL": 1.0}


def transport_parameter(name: str, transport: str) -> str:
    """`efa_ring_LL` for `net_ring_LL`: the parameter of another transport than verbs."""
    return f"{transport}_{name.removeprefix(NET)}"


def links_inside(
    f: Mapping[str, float], link: LinkKind, evidence: Evidence, has_nvls: bool, network: bool
) -> Iterator[LinkFit]:
    """Fits of the links of a node or domain; with a network, also for trees between nodes."""
    use = partial(LinkFit, link=link, evidence=evidence, latency_factor=0.0)
    for p in PROTOCOLS:
        ring = partial(use, efficiency=f[f"ring_{p}"], protocol=p, hop_overhead=f[f"hop_{p}"])
        for kind, stall in RINGS:
            yield ring(kind, alpha=f["call"], algorithm="ring", fill_drain=f[stall])
        if network:
            yield ring("all-reduce", alpha=f["call"], algorithm="tree")
    yield use(
        "all-to-all",
        efficiency=f["pair"],
        protocol="Simple",
        alpha=f["pair_call"],
        hop_overhead=f["pair_hop"],
        algorithm="pairwise",
        fill_drain=f["pair_stall"],
    )
    if has_nvls:
        adds = partial(use, "all-reduce", efficiency=f["nvls"], protocol="Simple")
        yield adds(alpha=f["nvls_call"], algorithm="nvls")
        if network:
            yield adds(alpha=f["call"], algorithm="nvls-tree")


def links_between(
    f: Mapping[str, float], evidence: Evidence, has_nvls: bool, transport: str = ANY
) -> Iterator[LinkFit]:
    """Fits of the network; a hop takes a multiple of the latency of its links."""

    def own(name: str) -> float:
        return f.get(transport_parameter(name, transport), f[NET + name])

    use = partial(LinkFit, link="network", evidence=evidence, transport=transport)
    for p in PROTOCOLS:
        ring_or_tree = partial(use, protocol=p, alpha=own("call"))
        for kind, _ in RINGS:
            yield ring_or_tree(
                kind, efficiency=own(f"ring_{p}"), latency_factor=RING_HOPS[p], algorithm="ring"
            )
        yield ring_or_tree(
            "all-reduce",
            efficiency=own(f"tree_{p}"),
            latency_factor=own(f"hop_{p}"),
            algorithm="tree",
        )
    yield use(
        "all-to-all",
        efficiency=own("pair"),
        protocol="Simple",
        alpha=f["pair_call"],
        latency_factor=own("pair_hop"),
        algorithm="pairwise",
    )
    if has_nvls:
        yield use(
            "all-reduce",
            efficiency=own("nvls"),
            protocol="Simple",
            alpha=own("nvls_call"),
            latency_factor=own("nvls_hop"),
            algorithm="nvls-tree",
        )
