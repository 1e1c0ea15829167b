"""Families of chips whose collectives are fitted together, and what figures each needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from experiments.published.collectives import Case
from experiments.published.uses import NET, Figures, between, inside, of_transport
from scaling.profiles.profile import Evidence, LinkFit, LinkKind

# A node or NVLink domain; several of them, over verbs; over what clouds have instead.
Where = Literal["inside", "between", "efa", "tcpx"]
PLACES: tuple[Where, ...] = ("inside", "between", "efa", "tcpx")
US = 1e-6


@dataclass(frozen=True)
class Family:
    """Chips that share one set of figures."""

    chips: tuple[str, ...]
    clusters: tuple[str, ...]  # of the catalogue
    link: LinkKind  # inside a node
    start: Mapping[str, float]
    has_nvls: bool
    software: str = "any"
    machines: str = ""  # only those whose name begins so
    transports: tuple[Where, ...] = ()  # with figures of their own beside those of verbs

    @property
    def stages(self) -> dict[Where, list[str]]:
        """Names of figures by where they hold, in the order in which they are searched."""
        net = [name for name in self.start if name.startswith(NET)]
        found: dict[Where, list[str]] = {
            "inside": [name for name in self.start if name not in net],
            "between": net,
        }
        return found | {t: [of_transport(name, t) for name in net] for t in self.transports}

    def place(self, transport: str) -> Where:
        """Where the figures of a network hold that a transport serves."""
        return next((t for t in self.transports if t == transport), "between")

    def holds(self, case: Case) -> bool:
        """Whether a case was measured on chips of this family."""
        return case.cluster in self.clusters and case.machine.startswith(self.machines)

    def links(self, f: Mapping[str, float], evidence: Evidence) -> list[LinkFit]:
        """The fits that the figures say."""
        network = any(name.startswith(NET) for name in self.start)
        found = [*inside(f, self.link, evidence, self.has_nvls, network)]
        if network:
            found += between(f, evidence, self.has_nvls)
        for transport in self.transports:
            found += between(f, evidence, self.has_nvls, transport)
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


def is_efficiency(name: str) -> bool:
    """Whether a figure is a fraction of a link, of whatever transport."""
    return name in EFFICIENCIES or NET + name.partition("_")[2] in EFFICIENCIES


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
        transports=("efa", "tcpx"),
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
