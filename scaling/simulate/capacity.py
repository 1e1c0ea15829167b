"""Bytes of a device that the arrays and temporaries of a program can take.

    capacity = min(share x usable,                         what XLA's pool is given
                   usable - CUDA context - NCCL buffers)   what is left for the pool

XLA allocates one pool when it starts, a share of all memory that the driver reports
(openxla/xla, xla/pjrt/gpu/gpu_helpers.cc: total memory x memory fraction); `scaling train` sets the
share to `MEMORY_FRACTION`. The context and NCCL's buffers lie outside the pool. Devices of a CPU
share the memory of their host, of which every byte counts.
"""

from dataclasses import dataclass

from scaling.meshes.accelerator import MEMORY_FRACTION
from scaling.meshes.cluster import Cluster
from scaling.meshes.units import format_rate
from scaling.program.ir import Program, collectives

POOLED = ("NVIDIA", "AMD")  # vendors of the chips on which XLA allocates such a pool
# Bytes of one H100 in use besides arrays before the first collective (github.com/NVIDIA/nccl,
# issue 1685); the catalogue's notes say 0.5 to 1 GB for context and library workspaces.
CONTEXT = 1.06e9
# Bytes after the first all-reduce of one communicator (github.com/NVIDIA/nccl, issue 864). XLA
# splits further communicators from the first one, with shared buffers (openxla/xla,
# xla/backends/gpu/collectives/gpu_clique*: split_share).
NCCL_BUFFERS = 1.6e9
# The same after an all-to-all among 8 H100, which connects each pair: 4.34 - 1.06 GB (issue 1685).
NCCL_PAIR_BUFFERS = 3.28e9


@dataclass(frozen=True)
class Capacity:
    """Bytes that a program can take on one device, and how they are made up."""

    bytes: float | None  # None: not known
    source: str = ""


def capacity_of(cluster: Cluster, program: Program) -> Capacity:
    """Bytes that a program can allocate on a device of the cluster."""
    usable = cluster.accelerator.usable_memory
    if usable is None or cluster.virtual_devices or cluster.accelerator.vendor not in POOLED:
        return Capacity(usable)
    kinds = {collective.kind for collective, _ in collectives(program)}
    buffers = NCCL_PAIR_BUFFERS if "all-to-all" in kinds else NCCL_BUFFERS if kinds else 0.0
    pool, left = MEMORY_FRACTION * usable, usable - CONTEXT - buffers
    driver = f"{format_rate(usable, 'B')} that the driver reports"
    if pool <= left:
        return Capacity(pool, f"{MEMORY_FRACTION:g} of the {driver}, the share of XLA's pool")
    nccl = f" and {format_rate(buffers, 'B')} of NCCL" if buffers else ""
    context = f"{format_rate(CONTEXT, 'B')} of CUDA's context"
    return Capacity(max(left, 0.0), f"{driver}, less {context}{nccl}")
