"""Families of chips whose collectives are fitted together, with the parameters of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from experiments.published.collectives import Case
from experiments.published.parameters import (
    NET,
    Parameters,
    links_between,
    links_inside,
    transport_parameter,
)
from scaling.profiles.profile import Evidence, LinkFit, LinkKind

FOLDER = Path("scaling/profiles/data/links")  # one shipped file per family
# Scope of a parameter: inside a node or NVLink domain; between them over verbs, or over the
# transports that clouds have instead.
Scope = Literal["inside", "between", "efa", "tcpx"]
SCOPES: tuple[Scope, ...] = ("inside", "between", "efa", "tcpx")
US = 1e-6


@dataclass(frozen=True)
class Family:
    """Chips that share one set of parameters."""

    chips: tuple[str, ...]
    clusters: tuple[str, ...]  # of the catalogue
    link: LinkKind  # inside a node
    initial: Mapping[str, float]
    has_nvls: bool
    software: str = "any"
    machines: str = ""  # prefix of the names of the machines that count
    transports: tuple[Scope, ...] = ()  # with parameters beside those of verbs

    @property
    def stages(self) -> dict[Scope, list[str]]:
        """Names of parameters by scope, in the order in which they are searched."""
        net = [name for name in self.initial if name.startswith(NET)]
        scopes: dict[Scope, list[str]] = {
            "inside": [name for name in self.initial if name not in net],
            "between": net,
        }
        return scopes | {t: [transport_parameter(name, t) for name in net] for t in self.transports}

    def scope(self, transport: str) -> Scope:
        """Scope of the parameters of a network with that transport."""
        return next((t for t in self.transports if t == transport), "between")

    def includes(self, case: Case) -> bool:
        """True if a case was measured on chips of this family."""
        return case.cluster in self.clusters and case.machine.startswith(self.machines)

    def links(self, f: Mapping[str, float], evidence: Evidence) -> list[LinkFit]:
        """Link fits that follow from the parameters."""
        network = any(name.startswith(NET) for name in self.initial)
        fits = [*links_inside(f, self.link, evidence, self.has_nvls, network)]
        if network:
            fits += links_between(f, evidence, self.has_nvls)
        for transport in self.transports:
            fits += links_between(f, evidence, self.has_nvls, transport)
        return fits


INSIDE: Parameters = {
    **{"call": 18 * US, "hop_Simple": 4 * US, "hop_LL128": 1.5 * US, "hop_LL": 0.6 * US},
    **{"ring_Simple": 0.81, "ring_LL128": 0.6, "ring_LL": 0.3},
    **{"stall_sum": 0.8, "stall_gather": 0.4, "stall_scatter": 0.9},
    **{"pair": 0.75, "pair_call": 30 * US, "pair_hop": 0.7 * US, "pair_stall": 0.1},
}
NVLS: Parameters = {"nvls": 0.62, "nvls_call": 50 * US}
# Hops over the network are multiples of the latency of its links, which differs between fabrics.
NETWORK: Parameters = {
    **{"net_call": 30 * US, "net_hop_Simple": 5.0, "net_hop_LL128": 2.0, "net_hop_LL": 1.0},
    **{"net_ring_Simple": 0.85, "net_ring_LL128": 0.6, "net_ring_LL": 0.2},
    **{"net_tree_Simple": 0.85, "net_tree_LL128": 0.6, "net_tree_LL": 0.2},
    **{"net_pair": 0.8, "net_pair_hop": 0.3},
}
NET_NVLS: Parameters = {"net_nvls": 0.65, "net_nvls_call": 100 * US, "net_nvls_hop": 5.0}

EFFICIENCIES = tuple(
    name
    for name in {**INSIDE, **NVLS, **NETWORK, **NET_NVLS}
    if name in ("pair", "nvls", "net_pair", "net_nvls")
    or name.startswith(("ring_", "net_ring", "net_tree"))
)


def is_efficiency(name: str) -> bool:
    """True if a parameter is a fraction of a link's bandwidth, of whatever transport."""
    return name in EFFICIENCIES or NET + name.partition("_")[2] in EFFICIENCIES


# Without peer access all bytes go through host memory, which a driver's copies share.
GEFORCE: Parameters = {
    **INSIDE,
    "ring_Simple": 0.1,
    "ring_LL128": 0.05,
    "ring_LL": 0.05,
    "pair": 0.1,
}

# Ten cards below two PCIe switches get more of them than two cards of a rented machine. The rows
# of that machine determine the rate of rings only; the other parameters keep these values.
SWITCHED: Parameters = {
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
