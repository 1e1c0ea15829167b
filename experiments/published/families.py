"""Families of chips whose collectives are fitted together, and what figures each needs.

    inside     the links of a node or NVLink domain: rings under three protocols, in-switch sums,
               all-to-all as sends to everyone
    between    the network: rings, trees, and trees above in-switch sums

NCCL's protocols: LL sends flags with every 8 bytes (half of the bytes are data), LL128 with every
128 (120 are), Simple waits for whole chunks; none is best for all sizes (NVIDIA/nccl 2.30.7).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from experiments.published.collectives import Case
from scaling.cost.algorithms import Algorithm
from scaling.cost.profile import Evidence, LinkFit, LinkKind

Figures = dict[str, float]
Where = Literal["inside", "between"]  # a node or NVLink domain; several of them
PLACES: tuple[Where, ...] = ("inside", "between")
RINGS = (
    ("all-reduce", "stall_sum"),
    ("all-gather", "stall_gather"),
    ("reduce-scatter", "stall_scatter"),
)
PROTOCOLS = ("Simple", "LL128", "LL")
US = 1e-6
# A ring's hop over the network in latencies of its links, 2.7 us on InfiniBand: NCCL's own steps of
# 14, 4 and 2.7 us (NVIDIA/nccl 2.30.7, src/graph/tuning.cc). Not fitted: in published rows trees
# are faster between nodes, so that nothing there tells what a ring's hop takes.
RING_HOPS = {"Simple": 14 / 2.7, "LL128": 4 / 2.7, "LL": 1.0}


@dataclass(frozen=True)
class Family:
    """Chips that share one set of figures."""

    chips: tuple[str, ...]
    clusters: tuple[str, ...]  # of the catalogue
    link: LinkKind  # inside a node
    start: Mapping[str, float]
    switch_adds: bool
    software: str = "any"
    machines: str = ""  # only those whose name begins so

    @property
    def stages(self) -> dict[Where, list[str]]:
        """Names of figures by where they hold."""
        between = [name for name in self.start if name.startswith("net_")]
        return {"inside": [n for n in self.start if n not in between], "between": between}

    def holds(self, case: Case) -> bool:
        """Whether a case was measured on chips of this family."""
        return case.cluster in self.clusters and case.machine.startswith(self.machines)

    def links(self, f: Mapping[str, float], evidence: Evidence) -> list[LinkFit]:
        """The fits that the figures say."""
        found = []

        def add(
            kind: str, link: LinkKind, algorithm: Algorithm, protocol: str, *figures: float
        ) -> None:
            efficiency, alpha, hop, stall = figures
            step, latency = (0.0, hop) if link == "network" else (hop, 0.0)
            found.append(
                LinkFit(
                    kind,  # type: ignore[arg-type]
                    link,
                    efficiency,
                    evidence,
                    protocol,
                    alpha,
                    step,
                    latency,
                    algorithm=algorithm,
                    stall=stall,
                )
            )

        for kind, stall in RINGS:
            for p in PROTOCOLS:
                add(kind, self.link, "ring", p, f[f"ring_{p}"], f["call"], f[f"hop_{p}"], f[stall])
                if "net_call" in f:
                    add(
                        kind,
                        "network",
                        "ring",
                        p,
                        f[f"net_ring_{p}"],
                        f["net_call"],
                        RING_HOPS[p],
                        0.0,
                    )
        add(
            "all-to-all",
            self.link,
            "pairwise",
            "Simple",
            f["pair"],
            f["pair_call"],
            f["pair_hop"],
            f["pair_stall"],
        )
        if "net_pair" in f:
            add(
                "all-to-all",
                "network",
                "pairwise",
                "Simple",
                f["net_pair"],
                f["pair_call"],
                f["net_pair_hop"],
                0.0,
            )
        if self.switch_adds:
            add("all-reduce", self.link, "nvls", "Simple", f["nvls"], f["nvls_call"], 0.0, 0.0)
        if "net_call" in f:
            for p in PROTOCOLS:
                add(
                    "all-reduce",
                    self.link,
                    "tree",
                    p,
                    f[f"ring_{p}"],
                    f["net_call"],
                    f[f"hop_{p}"],
                    0.0,
                )
                add(
                    "all-reduce",
                    "network",
                    "tree",
                    p,
                    f[f"net_tree_{p}"],
                    f["net_call"],
                    f[f"net_hop_{p}"],
                    0.0,
                )
            if self.switch_adds:
                add(
                    "all-reduce",
                    self.link,
                    "nvls-tree",
                    "Simple",
                    f["nvls"],
                    f["net_nvls_call"],
                    0.0,
                    0.0,
                )
                add(
                    "all-reduce",
                    "network",
                    "nvls-tree",
                    "Simple",
                    f["net_nvls"],
                    f["net_nvls_call"],
                    f["net_nvls_hop"],
                    0.0,
                )
        return found


INSIDE: Figures = {
    **{"call": 18 * US, "hop_Simple": 4 * US, "hop_LL128": 1.5 * US, "hop_LL": 0.6 * US},
    **{"ring_Simple": 0.81, "ring_LL128": 0.6, "ring_LL": 0.3},
    **{"stall_sum": 0.8, "stall_gather": 0.4, "stall_scatter": 0.9},
    **{"pair": 0.75, "pair_call": 30 * US, "pair_hop": 0.7 * US, "pair_stall": 0.1},
}
NVLS: Figures = {"nvls": 0.62, "nvls_call": 50 * US}
# Hops over the network are counted in latencies of its links, which differ between fabrics.
NETWORK: Figures = {
    **{"net_call": 30 * US, "net_hop_Simple": 5.0, "net_hop_LL128": 2.0, "net_hop_LL": 1.0},
    **{"net_ring_Simple": 0.85, "net_ring_LL128": 0.6, "net_ring_LL": 0.2},
    **{"net_tree_Simple": 0.85, "net_tree_LL128": 0.6, "net_tree_LL": 0.2},
    **{"net_pair": 0.8, "net_pair_hop": 0.3},
}
NET_NVLS: Figures = {"net_nvls": 0.65, "net_nvls_call": 100 * US, "net_nvls_hop": 5.0}

EFFICIENCIES = tuple(
    name
    for name in {**INSIDE, **NVLS, **NETWORK, **NET_NVLS}
    if name in ("pair", "nvls", "net_pair", "net_nvls")
    or name.startswith(("ring_", "net_ring", "net_tree"))
)

# Without peer access all goes through host memory, which a driver's copies share.
GEFORCE: Figures = {**INSIDE, "ring_Simple": 0.1, "ring_LL128": 0.05, "ring_LL": 0.05, "pair": 0.1}

# Ten cards below two PCIe switches get more of them than two cards of a rented machine; other
# figures than the rate of rings cannot be told from what was measured there, and stay as they are.
SWITCHED: Figures = {
    **{**GEFORCE, "ring_Simple": 0.5, "pair": 0.5},
    **{"stall_sum": 0.01, "stall_gather": 0.01, "stall_scatter": 0.01},
}

XLA = ("jax", "XLA table")

FAMILIES: dict[str, Family] = {
    "hopper": Family(
        ("h100-sxm", "h200-sxm"),
        ("dgx-h100", "dgx-h200", "p5", "p5e", "a3-mega", "nd-h100-v5", "nd-h200-v5"),
        "nvlink",
        {**INSIDE, **NVLS, **NETWORK, **NET_NVLS},
        True,
    ),
    "ampere": Family(
        ("a100-sxm-80g", "a100-sxm-40g"),
        ("dgx-a100", "dgx-a100-40g", "p4d", "p4de", "nd-a100-v4"),
        "nvlink",
        {**INSIDE, **NETWORK},
        False,
    ),
    "blackwell": Family(("b200-sxm",), ("dgx-b200",), "nvlink", {**INSIDE, **NVLS}, True),
    "blackwell-rack": Family(
        ("gb200", "gb300"),
        ("gb200-nvl72", "gb300-nvl72"),
        "nvlink",
        {**INSIDE, **NVLS, **NETWORK, **NET_NVLS},
        True,
    ),
    # XLA's own tables: the same chips under the settings with which JAX calls NCCL.
    "hopper-jax": Family(
        ("h100-sxm", "h200-sxm"), ("dgx-h100",), "nvlink", {**INSIDE, **NVLS}, True, *XLA
    ),
    "cdna3": Family(("mi300x",), ("mi300x-8",), "xgmi", INSIDE, False),
    "volta": Family(
        ("v100-sxm-16g", "v100-sxm-32g"),
        ("dgx-v100", "dgx-station-v100"),
        "nvlink",
        INSIDE,
        False,
    ),
    "geforce": Family(("rtx4090",), ("rtx4090-8",), "pcie", GEFORCE, False),
    "geforce-switched": Family(("rtx3090",), ("rtx3090-10",), "pcie", SWITCHED, False),
}
