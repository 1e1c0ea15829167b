"""Bytes of a device that a program can take, and bytes that the driver then shows as in use.

    jax      capacity = min(share x usable,                    what XLA's pool is given
                            usable - CUDA context - NCCL)      what is left for the pool
             in use   = pool + CUDA context + NCCL             the pool is taken when JAX starts
    PyTorch  capacity = usable - CUDA context - NCCL           cached blocks are given back in need
             in use   = reserved + CUDA context + NCCL         at most all that there is
             reserved = reserve x peak
             needed   = stored + s (peak - stored), s lognormal: a step fits with the probability
                        that this is below the capacity

XLA allocates one pool when it starts, a share of all memory that the driver reports (openxla/xla,
xla/pjrt/gpu/gpu_helpers.cc: total memory x memory fraction); `scaling train` sets the share to
`MEMORY_FRACTION`, of other programs it is `xla_pool`. The context and NCCL's buffers lie outside
the pool. PyTorch's allocator keeps freed blocks, which it gives back in need; what is stored
between steps leaves no fragments. XLA's plan is kept to the byte: it fits or it does not. Devices
of a CPU share the memory of their host, of which every byte counts.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from scaling.collectives.algorithms import SENDS
from scaling.meshes.cluster import Cluster
from scaling.meshes.memory_pool import TRAINERS, Pool
from scaling.meshes.units import format_rate
from scaling.program.ir import CollectiveKind, Number, Program, as_float, collectives
from scaling.simulate.memory import persistent_bytes
from scaling.simulate.side_by_side import later

NORMAL = NormalDist()
_cdf = np.frompyfunc(NORMAL.cdf, 1, 1)
POOLED = ("NVIDIA", "AMD")  # vendors of the chips on which XLA allocates such a pool


@dataclass(frozen=True)
class Demand:
    """What steps take beside what is stored, over their closed form: a lognormal."""

    median: Number
    sigma: Number  # of the logarithm

    def at(self, risk: float) -> Number:
        """What they take more of with this probability."""
        return self.median * np.exp(self.sigma * NORMAL.inv_cdf(1 - risk))

    def met_by(self, room: Number) -> Number:
        """The probability that they take no more."""
        return as_float(np.asarray(_cdf(np.log(room / self.median) / self.sigma), float))


# Bytes of one H100 in use besides arrays before the first collective (github.com/NVIDIA/nccl,
# issue 1685); the catalogue's notes say 0.5 to 1 GB for context and library workspaces.
CONTEXT = 1.06e9
# Bytes after the first all-reduce of one communicator (github.com/NVIDIA/nccl, issue 864). They
# grow with channels, and not with ranks beyond two nodes: a ring has two neighbours, however many
# there are (its maintainer, there and in issue 986).
NCCL_BUFFERS = 1.6e9
# Bytes of each peer that a rank sends to and receives from directly: an all-to-all among 8 H100
# took 4.34 - 1.06 GB (issue 1685: 32 channels for each of 7 peers, buffers of 10 and 2 MiB).
NCCL_PEER = 3.28e9 / 7
MOST_PEERS = 7  # that anybody measured; what more of them take is not known
# The buffer that sends and receives over the network share (issues 1450 and 2363: 512 MiB).
NCCL_NETWORK = 2.0**29
# Of every further communicator, which has other neighbours. PyTorch's share nothing: 688 MiB each
# among 4 A100
# (github.com/NVIDIA/nccl, issue 964), 576 MiB among 8 GB200 (github.com/sgl-project/sglang, 30908),
# 0.65 GiB on MI250X (github.com/Lumi-supercomputer/LUMI-AI-Guide, issue 111): the median. XLA
# splits its own from the first with shared resources (openxla/xla, gpu_clique*: split_share), so
# that they take this much at most.
COMMUNICATOR = 0.65 * 2**30
# Most bytes that PyTorch reserved over the most that were allocated, by software, where the device
# had room: the medians that experiments/published/reserve.py prints. DeepSpeed's is fitted on
# nvidia-smi over the closed form of its step (15 runs), and so holds what that leaves out as well;
# nanotron's on reserved bytes over the closed form. Aleph Alpha's is assumed to be Megatron's.
RESERVE = {
    "megatron": 1.16, "nemo": 1.16, "pytorch-fsdp": 1.31, "deepspeed": 1.32, "nanotron": 1.34,
    "aleph-alpha": 1.16,
}  # fmt: skip
# What steps take at least: 909 configurations of nanotron ran and 244 ran out of memory. Sigmas are
# those of the likeliest lognormal, and how far medians differ that are fitted on one model each
# (`python -m experiments.published.reserve`). Gathers over tensor keep what they gather for the
# backward pass, and their host runs ahead, so that blocks in use on a second stream are not free in
# time (pytorch.org/docs, Tensor.record_stream); a pipeline's host waits for it in every tick.
NEEDED, GATHERED = Demand(1.09, 0.03), Demand(1.53, 0.18)
# Software without such rows: both kinds as one, with the widest sigma that a model left out has.
# Where gathers go into one buffer (NVIDIA/Megatron-LM, core/utils.py: GlobalMemoryBuffer) or are
# freed after use, and published runs say that they take less, the kind that keeps nothing.
EITHER, LESS = Demand(1.18, 0.26), Demand(NEEDED.median, 0.26)
BORROWED = {"deepspeed": EITHER, "aleph-alpha": EITHER}
BORROWED |= dict.fromkeys(("megatron", "nemo", "pytorch-fsdp"), LESS)
# With less than this the allocator frees its cache and asks again in the step (pytorch.org/docs,
# CUDA semantics: memory management), which then takes so many times as long: 16 of 19 runs of
# nanotron; medians of one model each are 1.33 and 1.33, and 3.0 and 5.4 times.
RETRIED, RETRIES = Demand(1.33, 0.04), 3.9
RISK = 0.05  # of running out of memory that a plan takes, unless another is stated
LIKELY = 0.5  # what fits with this probability or more is said to fit


@dataclass(frozen=True)
class Capacity:
    """Bytes that a program can take on one device, and how they are made up."""

    bytes: Number | None  # None: not known; an array of several configurations
    source: str = ""


def capacity_of(
    cluster: Cluster, program: Program, software: str = "jax", of_xla: Pool = TRAINERS
) -> Capacity:
    """Bytes that a program can allocate on a device of the cluster, run by that software."""
    usable = cluster.accelerator.usable_memory
    if usable is None or not _has_driver(cluster):
        return Capacity(usable)
    driver = f"{format_rate(usable, 'B')} that the driver reports"
    buffers = nccl_buffers(program, software, cluster.devices_per_node)
    pool, left = of_xla.share * usable, usable - CONTEXT - buffers
    capacity = np.maximum(left, 0.0) if software in RESERVE else np.clip(left, 0.0, pool)
    if np.ndim(capacity):
        return Capacity(capacity)
    if software not in RESERVE and pool <= left:
        return Capacity(pool, f"{of_xla.share:g} of the {driver}, {of_xla.source}")
    nccl = f" and {format_rate(float(buffers), 'B')} of NCCL" if buffers else ""
    context = f"{format_rate(CONTEXT, 'B')} of CUDA's context"
    return Capacity(float(capacity), f"{driver}, less {context}{nccl}")


def demand_of(program: Program, software: str) -> Demand:
    """What a step of PyTorch takes."""
    if software in BORROWED:
        return BORROWED[software]
    sizes = program.mesh
    gathers = np.greater(sizes.get("tensor", 1), 1) & np.equal(sizes.get("stage", 1), 1)
    pairs = ((GATHERED.median, NEEDED.median), (GATHERED.sigma, NEEDED.sigma))
    return Demand(*(as_float(np.where(gathers, *pair)) for pair in pairs))


def least_share(software: str, risk: float) -> float:
    """What no step takes less of, over its closed form beside what is stored, at that risk."""
    if software not in RESERVE:
        return 1.0
    return float(BORROWED.get(software, NEEDED).at(risk))


def needed_bytes(program: Program, peak: Number, software: str, risk: float = 1 - LIKELY) -> Number:
    """Bytes of a device that a step of this peak takes, more with this probability."""
    stored = persistent_bytes(program)
    share = demand_of(program, software).at(risk) if software in RESERVE else 1.0
    return stored + (peak - stored) * share


def fit_probability(program: Program, peak: Number, capacity: Number, software: str) -> Number:
    """The probability with which a step of this peak (bytes) fits into so many bytes."""
    if software not in RESERVE:
        return as_float(np.less_equal(peak, capacity))
    stored = persistent_bytes(program)
    likely = demand_of(program, software).met_by(_room(stored, peak, capacity))
    return as_float(np.where(np.less_equal(stored, capacity), likely, 0.0))


def slower(program: Program, peak: Number, capacity: Number, software: str) -> Number:
    """How many times as long a step is expected to take that may have to wait for its allocator."""
    if software not in RESERVE:
        return 1.0
    room = _room(persistent_bytes(program), peak, capacity)
    return 1 + (RETRIES - 1) * (1 - RETRIED.met_by(room))


def _room(stored: Number, peak: Number, capacity: Number) -> Number:
    """Bytes beside what is stored, over those that the closed form takes there."""
    return np.maximum(capacity - stored, 1.0) / np.maximum(peak - stored, 1.0)


def bytes_in_use(
    cluster: Cluster, program: Program, peak: Number, software: str, of_xla: Pool = TRAINERS
) -> Number | None:
    """Bytes of a device that nvidia-smi shows in a step of that peak; None without such a driver.

    A step that does not fit is shown as one that fills the device.
    """
    usable = cluster.accelerator.usable_memory
    if usable is None or not _has_driver(cluster):
        return None
    reserve = RESERVE.get(software)
    allocated = of_xla.share * usable if reserve is None else reserve * peak
    buffers = nccl_buffers(program, software, cluster.devices_per_node)
    return np.minimum(allocated + CONTEXT + buffers, usable)[()]


def nccl_buffers(program: Program, software: str = "jax", node: int = MOST_PEERS + 1) -> Number:
    """Bytes that NCCL allocates at most for the collectives of a program, on nodes of so many GPUs.

    Rings and trees: the first communicator, and each further one. Sends and receives: each peer in
    the node, which a permute has one of, and one buffer for all others.
    """
    used = _groups_used(program)
    if software in RESERVE:  # a communicator for each combination of axes, and one of all devices
        count = _distinct([code for _, code, _ in used])
        return as_float(COMMUNICATOR * (count + 1) * np.greater(count, 0))
    count = _distinct([code for kind, code, _ in used if kind not in SENDS])
    rings = NCCL_BUFFERS * np.greater(count, 0) + COMMUNICATOR * np.maximum(count - 1, 0)
    peers: Number = 0.0
    network: Number = 0.0
    for kind, code, ranks in used:
        if kind in SENDS:
            near = np.minimum(ranks, min(node, MOST_PEERS + 1)) - 1
            peers += np.minimum(near, 1 if kind == "permute" else near) * np.not_equal(code, 0)
            network = np.maximum(network, np.greater(ranks, node) * np.not_equal(code, 0))
    return as_float(rings + NCCL_PEER * peers + NCCL_NETWORK * network)


def _distinct(codes: list[np.ndarray]) -> np.ndarray:
    """How many codes there are besides 0, which is a group of one, or no call."""
    ordered = np.sort(np.stack(np.broadcast_arrays(*codes, 0)), axis=0)
    return np.not_equal(ordered[1:], ordered[:-1]).sum(axis=0)


def _groups_used(program: Program) -> list[tuple[CollectiveKind, np.ndarray, Number]]:
    """Each kind of call over each combination of axes, with the number of the combination in each
    configuration (a bit for each axis of more than one device; 0 where nothing is called), and the
    ranks of a group."""
    ranks: dict[tuple[CollectiveKind, tuple[str, ...], bool], Number] = {}
    runs: dict[tuple[CollectiveKind, tuple[str, ...], bool], Number] = {}
    for call, times in collectives(program):
        key = call.kind, call.axes, bool(call.groups)
        runs[key] = later(runs.get(key, 0), np.not_equal(call.bytes * times, 0))
        whole = math.prod(program.mesh[axis] for axis in call.axes)
        ranks[key] = later(ranks.get(key, 1), len(call.groups[0]) if call.groups else whole)
    bits = {
        axis: np.greater(size, 1) * 2**i for i, (axis, size) in enumerate(program.mesh.items(), 1)
    }
    number = lambda axes, stated: sum((bits[axis] for axis in axes), int(stated))
    return [(key[0], np.asarray(n * number(*key[1:])), ranks[key]) for key, n in runs.items()]


def _has_driver(cluster: Cluster) -> bool:
    """True if contexts and pools lie beside the arrays, as on GPUs."""
    return not cluster.virtual_devices and cluster.accelerator.vendor in POOLED
