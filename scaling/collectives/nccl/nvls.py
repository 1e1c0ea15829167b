"""The bandwidth that NCCL's model gives to sums in the switch (NVLS), which changed with versions.

    first     2.18          like a ring's, of which 5/6 count; trees 0.7 M / (2 (M - 1))
    least     2.19 to 2.26  the lesser of inside and outside; 5/6 count
    gathers   2.27          gathers and scatters: what comes from other GPUs, 0.9 of the outside
    measured  2.28 on       inside x efficiency x (channels - 1) / channels, twice for all-reduces

With M nodes; in GB/s of a channel. From NVIDIA/nccl, src/graph/tuning.cc.
"""

from scaling.collectives.nccl.channels import Channels
from scaling.collectives.nccl.communicator import Communicator
from scaling.collectives.nccl.constants import Constants, capped
from scaling.program.ir import CollectiveKind

COUNTED = 5 / 6  # of the bandwidth, before it was measured
FIRST_TREE = 0.7
GATHERED = 0.9  # of the bandwidth outside
LEAST_CHANNELS = 2  # from "measured" on
BEFORE_HOPPER, HOPPER = 1, 2  # generations


def nvls_bandwidth(
    kind: CollectiveKind, tree: bool, comm: Communicator, constants: Constants
) -> float:
    """GB/s, as bytes of the call per second; 0: NVLS cannot run here.

    Args:
        kind: all-reduce, all-gather or reduce-scatter.
        tree: between nodes, with sums in the switch of each (NVLS tree).
        comm: the GPUs.
        constants: of a version.
    """
    channels = comm.nvls
    several = comm.nodes > 1
    if channels is None or tree != several or (tree and kind != "all-reduce"):
        return 0.0
    if constants.nvls == "first" and kind != "all-reduce":
        return 0.0
    if constants.nvls == "measured":
        if channels.count < LEAST_CHANNELS:
            return 0.0
        bus = channels.count * _measured(kind, tree, comm, channels, constants)
        reduces = kind == "all-reduce"
        return bus * comm.ranks / (2 * (comm.ranks - 1)) if reduces else bus
    return channels.count * _before(kind, tree, comm, channels, constants)


def _measured(
    kind: CollectiveKind,
    tree: bool,
    comm: Communicator,
    channels: Channels,
    constants: Constants,
) -> float:
    efficiency = constants.nvls_efficiency[max(0, comm.generation - BEFORE_HOPPER)]
    within = channels.inside * efficiency * (channels.count - 1) / channels.count
    within *= 2 if kind == "all-reduce" else (comm.per_node - 1) / comm.per_node
    outside = channels.outside * (2 if tree and comm.nodes == 2 else 1)
    limits = [within, outside]
    if tree:
        limits.append(capped(constants.nvls_tree_most, comm.generation, comm.nodes))
    return min(limits)


def _before(
    kind: CollectiveKind,
    tree: bool,
    comm: Communicator,
    channels: Channels,
    constants: Constants,
) -> float:
    """Of a channel, and as bytes of the call; gathers and scatters count in full from PAT on."""
    few = comm.nodes <= 2
    reduces = kind == "all-reduce"
    counted = 1.0 if not reduces and constants.pat else COUNTED
    if constants.nvls == "first":
        counted = FIRST_TREE * comm.nodes / (2 * (comm.nodes - 1)) if tree else COUNTED
        return counted * (channels.inside if few else channels.outside)
    if constants.nvls == "gathers" and not reduces:
        others = (comm.per_node - 1) / comm.per_node
        return counted * min(channels.inside * others, GATHERED * channels.outside)
    outside = channels.outside if few or not tree else channels.outside / 2
    return counted * min(channels.inside, outside)
