"""What NCCL's tuning model is made of: one `Constants` per version (`collectives.nccl.versions`).

Microseconds and GB/s (1e9 bytes/s), as NCCL's sources have them. A *row* holds one figure for each
of the protocols LL, LL128 and Simple; a *cap* one row for each generation of GPUs, with a figure
for one node, for two, and for more. Figures only, from NVIDIA/nccl: src/graph/tuning.cc,
src/graph/topo.h, src/graph/search.cc, src/transport/nvls.cc, src/include/device.h.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from scaling.profiles.profile import Algorithm

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)
# In NCCL's order: of equal estimates the first is taken.
TUNED: tuple[Algorithm, ...] = ("tree", "ring", "nvls", "nvls-tree", "pat")

Row = tuple[float, float, float]  # LL, LL128, Simple
Rows = Mapping[Algorithm, Row]
Cap = tuple[Row, ...]  # Volta and before, Ampere, Hopper, Blackwell; 1 node, 2 nodes, more
Speeds = tuple[float, ...]  # GB/s of one channel that the search tries, from the top down

# NCCL measured what trees lack at medium sizes: a factor for every power of two from 64 B on.
CORRECTION_START = 64  # bytes
CORRECTIONS: Mapping[Protocol, tuple[float, ...]] = {
    "LL": (
        *(1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0),
    ),
    "LL128": (
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0),
    ),
    "Simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
TREE_CORRECTIONS = 23  # of them hold for trees


@dataclass(frozen=True)
class Hosts:
    """GB/s between the sockets of a host, and what each post to the network costs."""

    amd: float = 16.0
    arm: float = 6.0
    # Intel, by the GT/s of its links: Broadwell, Skylake to Ice Lake, Sapphire and Emerald Rapids
    intel: tuple[tuple[float, float], ...] = ((0, 6.0), (10, 10.0), (16, 22.0), (20, 40.0))
    unknown: float = 5000.0  # the speed of what is local
    post: float = 1.0  # us
    post_amd: float = 2.0  # us


@dataclass(frozen=True)
class Search:
    """What the search for channels tries, and what it takes links for."""

    nvlink: tuple[tuple[int, float], ...]  # GB/s of one link from this compute capability on
    inside: tuple[tuple[int, Speeds], ...]  # from this capability on, for one node
    outside: tuple[tuple[int, Speeds], ...]  # for several
    most_channels: int = 32  # rings before they are doubled when they connect
    nvls_heads: int = 32  # most channels of NVLS


@dataclass(frozen=True)
class Constants:
    """One version of NCCL."""

    version: str
    commit: str  # of its tag
    base: Rows  # us, one call
    nvlink: Rows  # us, one step
    pcie: Rows
    network: Rows
    ll_most: Cap  # GB/s, all channels together
    ring_ll128: Cap  # GB/s, one channel
    tree_ll128: Cap
    tree_most: Cap
    nvls_tree_most: Cap
    search: Search
    hosts: Hosts
    # What rings under LL get of the bandwidth: all-reduces and several nodes, and all else
    ring_ll: tuple[float, float] = (0.5, 0.5)
    ll128_on: tuple[int, ...] = ()  # compute capabilities that have LL128; (): all from Volta on
    lone_ll128: float = 0.92  # what rings under LL128 get where each node has one GPU
    lone_hop: bool = True  # with one GPU per node every algorithm takes a tree's step over networks
    closing: int = 1  # steps of a ring over the network are 2 (nodes - closing) in an all-reduce
    # How the bandwidth of NVLS is reckoned: see scaling.collectives.nccl.nvls
    nvls: Literal["first", "least", "gathers", "measured"] = "measured"
    nvls_efficiency: Row = (0.0, 0.85, 0.74)  # before Hopper, Hopper, Blackwell
    nvls_gpus: int = 2  # fewest of a node
    nvls_tree_corrections: int = 24  # hold for NVLS trees on Blackwell behind x86 CPUs
    pat: float = 0.75  # of the bandwidth; 0: no PAT


def capped(cap: Cap, generation: int, nodes: int) -> float:
    """The figure for so many nodes; what is newer than the version counts as its newest."""
    return cap[min(generation, len(cap) - 1)][min(nodes, 3) - 1]


def correction(protocol: Protocol, exponent: int, known: int) -> float:
    """The factor for 64 x 2^exponent bytes, of the first `known`; 1 beyond them."""
    return CORRECTIONS[protocol][exponent] if 0 <= exponent < known else 1.0
