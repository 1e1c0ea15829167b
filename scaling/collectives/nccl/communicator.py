"""What NCCL knows of the GPUs that take part in a collective, before any bytes are counted.

A node is an NVLink domain where there is one. NCCL sees one group of GPUs at a time: that others
use the same links at the same time does not enter its choice.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scaling.collectives.nccl.channels import Channels, nvls_channels, ring_channels, tree_channels
from scaling.collectives.nccl.constants import Constants
from scaling.collectives.nccl.links import Inside, at_least, far_nics, inside, nics
from scaling.collectives.nccl.versions import constants_of
from scaling.meshes.cluster import Cluster

GENERATIONS = ((0, 0), (80, 1), (90, 2), (100, 3))  # compute capability -> row of a cap
HOPPER, VOLTA = 90, 70
VENDOR = "NVIDIA"
WIDE = 45.0  # GB/s: on Hopper and later, few channels above it are doubled once more
WIDE_CHANNELS = 16


@dataclass(frozen=True)
class Communicator:
    """One group of GPUs as NCCL sees it."""

    ranks: int
    nodes: int
    capability: int  # 90 for 9.0
    cpu: str  # one of scaling.meshes.cluster.CPUS
    nvlink: bool  # all hops inside a node
    ll128: bool  # is safe on these links
    same: bool  # all rings have one order
    rings: Channels
    trees: Channels
    nvls: Channels | None = None
    most_channels: int = 32

    @property
    def generation(self) -> int:
        """0 Volta and before, 1 Ampere, 2 Hopper, 3 Blackwell."""
        return at_least(GENERATIONS, self.capability)

    @property
    def per_node(self) -> float:
        """Ranks of a node."""
        return self.ranks / self.nodes

    @property
    def connected(self) -> int:
        """Channels once the rings are connected: each is used twice."""
        count = min(2 * self.most_channels, 2 * self.rings.count)
        wide = self.capability >= HOPPER and self.nodes > 1 and self.rings.inside > WIDE
        return 2 * count if wide and count < WIDE_CHANNELS else count


def communicator(groups: np.ndarray, cluster: Cluster, version: str) -> Communicator | None:
    """The group that touches most nodes; None where NCCL has no say: no NVIDIA GPUs, or one alone.

    Args:
        groups: device ids, [groups, members].
        cluster: where they are.
        version: of NCCL.

    Raises:
        InputError: an unknown version.
    """
    constants = constants_of(version)
    if cluster.accelerator.vendor != VENDOR or groups.shape[1] == 1:
        return None
    units = np.sort(groups // _domain(cluster), axis=1)
    nodes = 1 + (np.diff(units, axis=1) > 0).sum(axis=1)
    widest = int(np.argmax(nodes))
    there, counts = np.unique(units[widest], return_counts=True)
    members = groups[widest]
    fullest = members[members // _domain(cluster) == there[int(np.argmax(counts))]]
    chips = tuple(sorted((fullest % _domain(cluster)).tolist()))
    return _of(cluster, len(members), len(there), chips, constants.version)


def _domain(cluster: Cluster) -> int:
    return cluster.devices_per_node * cluster.domain_nodes


@lru_cache(maxsize=256)
def _of(
    cluster: Cluster, ranks: int, nodes: int, chips: tuple[int, ...], version: str
) -> Communicator:
    constants = constants_of(version)
    search, capability = constants.search, round(10 * (cluster.accelerator.compute_capability or 0))
    links = inside(cluster, chips, capability, search, constants.hosts)
    cards = nics(cluster, len(chips)) if nodes > 1 else ()
    speeds = at_least(search.inside if nodes == 1 else search.outside, capability)
    rings = ring_channels(links, cards, speeds, search.most_channels, capability)
    nvls = _has_nvls(cluster, links, constants)
    return Communicator(
        ranks=ranks,
        nodes=nodes,
        capability=capability,
        cpu=cluster.cpu,
        nvlink=links.kind in ("switch", "pairs"),
        ll128=_has_ll128(cluster, links, nodes, capability, constants),
        same=links.kind != "pairs" and (nodes == 1 or len(cards) == 1),
        rings=rings,
        trees=tree_channels(rings, links, speeds),
        nvls=nvls_channels(links, cards, speeds, search.nvls_heads) if nvls else None,
        most_channels=search.most_channels,
    )


def _has_nvls(cluster: Cluster, links: Inside, constants: Constants) -> bool:
    enough = len(links.gpus) >= constants.nvls_gpus
    return cluster.has_nvls and links.kind == "switch" and enough


def _has_ll128(
    cluster: Cluster, links: Inside, nodes: int, capability: int, constants: Constants
) -> bool:
    """NVLink inside, NICs that no CPU stands before, and GPUs from Volta on."""
    known = capability in constants.ll128_on if constants.ll128_on else capability >= VOLTA
    return known and links.kind != "pcie" and (nodes == 1 or not far_nics(cluster, capability))
