"""A group of GPUs as NCCL sees it, before any bytes are counted.

A node is an NVLink domain where there is one. NCCL sees one group of GPUs at a time: other groups
that use the same links at the same time do not enter its choice.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from scaling.collectives.nccl import constants as c
from scaling.collectives.nccl.channels import Channels, nvls_channels, ring_channels, tree_channels
from scaling.collectives.nccl.constants import step_value
from scaling.collectives.nccl.links import NodeLinks, nic_speeds, nics_behind_cpu, node_links
from scaling.meshes.cluster import Cluster

VENDOR = "NVIDIA"
NVLS_GPUS = 2  # fewest of a node (NVIDIA/nccl 2.30.7, src/transport/nvls.cc)
WIDE, WIDE_CHANNELS = 45.0, 16  # GB/s above which few channels are doubled again, on Hopper and on


@dataclass(frozen=True)
class Communicator:
    """One group of GPUs."""

    ranks: int
    nodes: int
    capability: int  # 90 for 9.0
    cpu: str  # one of scaling.meshes.cluster.CPUS
    nvlink: bool  # all hops inside a node go over NVLink
    ll128: bool  # safe on these links
    rings: Channels
    trees: Channels
    nvls: Channels | None = None

    @property
    def generation(self) -> int:
        """Row of a cap: 0 Volta and before, 1 Ampere, 2 Hopper, 3 Blackwell."""
        return step_value(c.GENERATIONS, self.capability)

    @property
    def ranks_per_node(self) -> float:
        """Mean number of ranks on a node."""
        return self.ranks / self.nodes

    @property
    def connected_channels(self) -> int:
        """Channels once the rings are connected: each is used twice."""
        count = min(2 * c.MOST_CHANNELS, 2 * self.rings.count)
        wide = self.capability >= c.HOPPER and self.nodes > 1 and self.rings.inside > WIDE
        return 2 * count if wide and count < WIDE_CHANNELS else count


def communicator(groups: np.ndarray, cluster: Cluster) -> Communicator | None:
    """The group that spans most nodes; None without NVIDIA GPUs, or for groups of one rank.

    Args:
        groups: device ids, [groups, members].
        cluster: where the devices are.
    """
    if cluster.accelerator.vendor != VENDOR or groups.shape[1] == 1:
        return None
    size = cluster.devices_per_node * cluster.domain_nodes
    domains = np.sort(groups // size, axis=1)
    nodes = 1 + (np.diff(domains, axis=1) > 0).sum(axis=1)
    widest = int(np.argmax(nodes))
    present, counts = np.unique(domains[widest], return_counts=True)
    members = groups[widest]
    fullest = members[members // size == present[int(np.argmax(counts))]]
    chips = tuple(sorted((fullest % size).tolist()))
    return _communicator(cluster, len(members), len(present), chips)


@lru_cache(maxsize=256)
def _communicator(cluster: Cluster, ranks: int, nodes: int, chips: tuple[int, ...]) -> Communicator:
    """The communicator of `ranks` on `nodes`, the fullest of which has `chips`."""
    capability = round(10 * (cluster.accelerator.compute_capability or 0))
    links = node_links(cluster, chips, capability)
    nics = nic_speeds(cluster, len(chips)) if nodes > 1 else ()
    speeds = step_value(c.SPEEDS_ONE_NODE if nodes == 1 else c.SPEEDS_NODES, capability)
    rings = ring_channels(links, nics, speeds, capability)
    return Communicator(
        ranks=ranks,
        nodes=nodes,
        capability=capability,
        cpu=cluster.cpu,
        nvlink=links.kind in ("switch", "pairs"),
        ll128=_has_ll128(cluster, links, nodes, capability),
        rings=rings,
        trees=tree_channels(rings, links, speeds),
        nvls=nvls_channels(links, nics, speeds) if _has_nvls(cluster, links) else None,
    )


def _has_nvls(cluster: Cluster, links: NodeLinks) -> bool:
    return cluster.has_nvls and links.kind == "switch" and len(links.gpus) >= NVLS_GPUS


def _has_ll128(cluster: Cluster, links: NodeLinks, nodes: int, capability: int) -> bool:
    """NVLink inside the node, no CPU in front of its NICs, and GPUs from Volta on."""
    near = nodes == 1 or not nics_behind_cpu(cluster, capability)
    return capability >= c.VOLTA and links.kind != "pcie" and near
