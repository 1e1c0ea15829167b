"""Constants of NCCL's tuning model, as NVIDIA/nccl 2.30.7 has them.

Microseconds and GB/s (1e9 bytes/s). A *row* holds one figure for each of the protocols LL, LL128
and Simple; a *cap* holds one row for each generation of GPUs (Volta and before, Ampere, Hopper,
Blackwell), with a figure for one node, for two nodes, and for more. Source: tag v2.30.7-1, commit
73cf112295c33aee2b895f329f592f2a9b4b0f97, src/graph/tuning.cc, src/graph/topo.h,
src/graph/search.cc, src/transport/nvls.cc, src/include/device.h.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

VERSION = "2.30.7"

Protocol = Literal["LL", "LL128", "Simple"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

T = TypeVar("T")
Row = tuple[float, float, float]  # LL, LL128, Simple
Cap = tuple[Row, ...]  # per generation: 1 node, 2 nodes, more
Speeds = tuple[float, ...]  # GB/s of one channel, in the order in which the search tries them

# Latencies in us: of one call, and of one step over NVLink, PCIe and the network.
NONE: Row = (0, 0, 0)
LATENCIES: dict[str, tuple[Row, Row, Row, Row]] = {
    "tree": ((6.8, 14, 8.4), (0.6, 1.25, 4), (1, 1.9, 4), (5, 8.5, 14)),
    "ring": ((6.6, 14, 8.4), (0.6, 1.9, 3.4), (1, 2.5, 5.7), (2.7, 4, 14)),
    "nvls": (NONE, (0, 0, 25), NONE, (0, 0, 18)),
    "nvls-tree": (NONE, (0, 0, 25), NONE, (0, 0, 20.9)),
    "pat": ((8, 8, 8), (0, 0, 4), (0, 0, 4), (0, 0, 14)),
}
NETWORK_POST, NETWORK_POST_AMD = 1.0, 2.0  # us of one post to the network, by the CPU
SIMPLE_POSTS = 3  # posts of one piece under Simple
PLATEAU, PLATEAU_VOLTA = 1.4, 1.9  # x latency of Simple rings between nodes, for large pieces
PLATEAU_PIECE = 64  # bytes per channel and rank from which the plateau holds
PAT_DEPTH, PAT_RANK = 3.5, 2.8  # steps of PAT in one network latency; us per rank

# Bandwidth limits in GB/s
LL_MOST: Cap = ((39, 39, 20.4), (87.7, 22.5, 19), (141, 45, 35), (282, 90, 70))  # all channels
RING_LL128: Cap = ((20, 20, 20), (20, 20, 20), (36.7, 36.7, 36.7), (40, 40, 40))  # one channel
TREE_LL128: Cap = ((20, 20, 20), (20, 20, 20), (36.7, 36.7, 29), (55.6, 31.67, 20))
TREE_MOST: Cap = ((26.5, 18.5, 10), (24, 23.6, 17.8), (38.7, 41.4, 36), (70, 42.8, 24))
NVLS_TREE_MOST: Cap = ((26.5, 18.5, 10), (24, 23.6, 17.8), (0, 57.7, 45.5), (0, 96, 80))
# Fractions of the channels' bandwidth
RING_LL = 0.5
LL128_SHARE = 0.92  # 120 of 128 bytes are payload
TREE_SHARE, TREE_LL = 0.92, 1 / 3.8
TREE_LL128_ONE_NODE, TREE_LL128_NODES = 7 / 9, 120 / 128
TREE_ONE_GPU = 0.85  # with one GPU per node, which cannot split the tree over two
NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)  # per generation
PAT_SHARE = 0.75
# Trees lack bandwidth at medium sizes: a factor for every power of two from 64 bytes on.
CORRECTION_START = 64  # bytes
TREE_CORRECTIONS, NVLS_TREE_CORRECTIONS = 23, 24  # how many of the factors hold
CORRECTION_TENTHS: dict[Protocol, tuple[int, ...]] = {
    "LL": (10, 10, 10, 10, 9, 8, 7, 7, 7, 7, 6, 5, 4, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10, 10),
    "LL128": (10, 10, 10, 10, 10, 9, 8, 8, 8, 7, 6, 6, 6, 6, 6, 6, 8, 9, 9, 9, 9, 10, 10, 10),
    "Simple": (9, 9, 9, 9, 9, 9, 9, 8, 7, 6, 6, 5, 5, 5, 5, 6, 7, 8, 7, 7, 8, 9, 9, 9),
}

# Compute capability x 10 -> a figure, from that capability on
VOLTA, AMPERE, HOPPER, BLACKWELL = 70, 80, 90, 100
GENERATIONS = ((0, 0), (AMPERE, 1), (HOPPER, 2), (BLACKWELL, 3))  # row of a cap
NVLINK_SHARE = (  # GB/s that NCCL counts for one link over its rated GB/s
    *((60, 18 / 20), (VOLTA, 20 / 25), (86, 12 / 14.0625), (87, 20 / 25)),
    *((HOPPER, 20.6 / 25), (BLACKWELL, 40.1 / 50)),
)
PCIE_SHARE = 12 / 15.75  # NCCL's 12 GB/s of 8 GT/s x 16 lanes x 128/130 (Gen3 x16), and so on
INTEL_DETOUR = 6 / 5  # bytes through an Intel CPU, where GPUs exchange small packets
SLOW: Speeds = (6, 3, 2.4, 1.2, 0.24, 0.12)
SPEEDS_ONE_NODE: tuple[tuple[int, Speeds], ...] = (
    (0, (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3)),
    (HOPPER, (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3)),
    (BLACKWELL, (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18)),
)
SPEEDS_NODES: tuple[tuple[int, Speeds], ...] = (
    (0, (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12)),
    (HOPPER, (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)),
    (BLACKWELL, (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, *SLOW)),
)
MOST_CHANNELS = 32  # rings before they are doubled; channels of NVLS
# GB/s between the sockets of a host. Intel: by the GT/s of its links (Broadwell, Skylake to Ice
# Lake, Sapphire and Emerald Rapids, Granite Rapids); unknown CPUs count as local.
SOCKETS = {"amd": 16.0, "arm": 6.0}
BYTES_PER_TRANSFER = 2  # of a link between sockets
INTEL_SOCKETS = ((0, 6.0), (10, 10.0), (16, 22.0), (20, 40.0))
UNKNOWN_SOCKETS = 5000.0


def step_value(steps: Sequence[tuple[int, T]], value: int) -> T:
    """Value of a step function at `value`: the last step reached, or the first step."""
    return next((figure for start, figure in reversed(steps) if value >= start), steps[0][1])


def cap_of(cap: Cap, generation: int, nodes: int) -> float:
    """Figure of a cap for one generation of GPUs on so many nodes."""
    return cap[generation][min(nodes, 3) - 1]


def correction(protocol: Protocol, exponent: int, known: int) -> float:
    """Factor on a tree's bandwidth at 64 x 2^exponent bytes; 1 outside the first `known`."""
    return CORRECTION_TENTHS[protocol][exponent] / 10 if 0 <= exponent < known else 1.0
