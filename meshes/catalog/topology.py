"""A cluster of one host from what `nvidia-smi topo -m`, and `-p2p r` behind it, print on it.

    NV# everywhere, more than a GPU has links for    one NVSwitch
    NV# otherwise                                    links from GPU to GPU
    PIX, PXB                                         below one PCIe switch
    PHB, NODE                                        on one socket (NUMA node)
    SYS                                              on two sockets

The text has no speeds. NVLink and PCIe run at what the GPU is specified for; those of the CPUs are
assumed, and say so; of the network it says nothing at all, so the cluster is one host.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.catalog.topology_text import (
    ACROSS,
    BRIDGES,
    OK,
    SAME_NODE,
    Matrix,
    Peers,
    read_matrix,
    split_peers,
)
from scaling.meshes.cluster import Cluster, LinkSpec
from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue

SHARP_CAPABILITY = 9.0  # NVSwitches add up from Hopper on (NVIDIA H100 whitepaper, 2023)
NVIDIA_SMI = SourcedValue(0, "nvidia-smi topo -m of the machine", "as given")
NCCL = "NVIDIA/nccl 2.30.7, src/graph/tuning.cc, low-latency ring steps: NVLink 0.6, PCIe 1.0 us"
ASSUMED = "assumed by this project: nvidia-smi does not say"


@dataclass(frozen=True)
class Ports:
    """Ports of the GPUs of one compute capability: NVLinks, bytes/s of one way of each, PCIe."""

    nvlinks: int
    nvlink: float
    pcie_generation: int
    source: str
    date: str


# by NVIDIA compute capability
PORTS = {
    6.0: Ports(4, 20e9, 3, "NVIDIA Tesla P100 whitepaper", "2016-05"),
    7.0: Ports(6, 25e9, 3, "NVIDIA Tesla V100 GPU Architecture, whitepaper", "2017-08"),
    7.5: Ports(2, 25e9, 3, "NVIDIA Turing GPU Architecture, whitepaper", "2018-09"),
    8.0: Ports(12, 25e9, 4, "NVIDIA A100 Tensor Core GPU Architecture, whitepaper", "2020-05"),
    8.6: Ports(4, 14.0625e9, 4, "NVIDIA Ampere GA102 GPU Architecture, whitepaper", "2021-01"),
    8.9: Ports(0, 0.0, 4, "NVIDIA Ada GPU Architecture, whitepaper", "2023-03"),
    9.0: Ports(18, 25e9, 5, "NVIDIA H100 Tensor Core GPU Architecture, whitepaper", "2023-06"),
    10.0: Ports(18, 50e9, 5, "NVIDIA Blackwell Architecture Technical Brief", "2024-03"),
    10.3: Ports(18, 50e9, 6, "NVIDIA GB300 NVL72 datasheet", "2025-03"),
    12.0: Ports(0, 0.0, 5, "NVIDIA RTX Blackwell PRO GPU Architecture, whitepaper", "2025-03"),
}
# bytes/s of 16 lanes, one way: PCI-SIG, 8, 16 and 32 GT/s x 128/130, 64 GT/s x 242/256
PCIE_X16 = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}


def cluster_from_topology(text: str, accelerator: Accelerator) -> Cluster:
    """The host that the output of `nvidia-smi topo -m` describes.

    Args:
        text: the output; that of `-p2p r` or `w` beside it says who has peer access.
        accelerator: its GPUs; the text does not name them.

    Raises:
        InputError: the text is not understood, contradicts itself, or does not fit the chip.
    """
    ports, (text, peers) = _ports(accelerator), split_peers(text)
    matrix = read_matrix(text)
    if peers is not None and peers.gpus != matrix.gpus:
        raise InputError(
            f"-p2p has {len(peers.gpus)} GPUs and -m has {len(matrix.gpus)}: paste both of one host"
        )
    sockets = _sockets(matrix)
    # PXB, several bridges in a row, counts as one switch
    below_one = _groups(matrix.devices, lambda a, b: matrix.entries[a, b] in BRIDGES)
    switches = [group for group in below_one if len(group) > 1]
    nvlink, switched = _nvlink_links(matrix, ports, accelerator)
    parts = {
        "chip": len(matrix.gpus),
        "nvswitch": int(switched),
        "pcie_switch": len(switches),
        "socket": len(sockets),
        "memory": len(sockets),
        "nic": len(matrix.nics),
    }
    pairs = len(matrix.gpus) * (len(matrix.gpus) - 1) // 2
    linked = switched or len(_link_counts(matrix)) == pairs
    return Cluster(
        name=f"{accelerator.name}-{len(matrix.gpus)}",
        title=f"{len(matrix.gpus)} {accelerator.title}, from nvidia-smi topo -m",
        accelerator=accelerator,
        nodes=1,
        devices_per_node=len(matrix.gpus),
        parts={kind: count for kind, count in parts.items() if count},
        links=(*nvlink, *_pcie_links(matrix, ports, sockets, switches), *_host_links(sockets)),
        layout=SourcedValue(len(matrix.gpus), NVIDIA_SMI.source, NVIDIA_SMI.date),
        peer_access=_peer_access(matrix, peers, linked, accelerator),
        has_nvls=switched and (accelerator.compute_capability or 0) >= SHARP_CAPABILITY,
    )


def _peer_access(
    matrix: Matrix, peers: Peers | None, linked: bool, accelerator: Accelerator
) -> bool:
    """Whether GPUs that PCIe joins reach each other; as -p2p says, if it is given."""
    if peers is None:  # the driver allows GeForce cards to reach each other over NVLink only
        return linked or "GeForce" not in accelerator.title
    return all(state == OK or matrix.nvlinks(*pair) for pair, state in peers.status.items())


def _ports(accelerator: Accelerator) -> Ports:
    capability = accelerator.compute_capability
    if accelerator.vendor != "NVIDIA" or capability not in PORTS:
        capabilities = ", ".join(map(str, PORTS))
        raise InputError(
            f"nvidia-smi shows NVIDIA GPUs of compute capability {capabilities}; "
            f"{accelerator.name} is of {accelerator.vendor}, {capability}"
        )
    return PORTS[capability]


Groups = list[tuple[str, ...]]  # devices that belong together, in the order of the text


def _sockets(matrix: Matrix) -> Groups:
    """Devices by NUMA node; the affinity decides where an NV# hides the way over PCIe."""

    def together(a: str, b: str) -> bool:
        if matrix.entries[a, b] in BRIDGES + SAME_NODE:
            return True
        near = matrix.affinity.get(a)
        return bool(matrix.nvlinks(a, b) and near and near == matrix.affinity.get(b))

    groups = _groups(matrix.devices, together)
    for group in groups:
        for a, b in product(group, group):
            if matrix.entries[a, b] == ACROSS:
                raise InputError(
                    f"{a} - {b} is SYS, but other entries put both on one socket: "
                    f"{', '.join(group)}"
                )
    lost = [gpu for gpu in matrix.gpus if not matrix.affinity[gpu] and (gpu,) in groups]
    if lost and any(matrix.nvlinks(lost[0], gpu) for gpu in matrix.gpus):
        raise InputError(
            f"nothing says which socket {lost[0]} is on: the text has no CPU or NUMA affinity for "
            "it and no NIC beside it; paste the whole output"
        )
    return groups


def _groups(devices: Iterable[str], together: Callable[[str, str], bool]) -> Groups:
    """The devices divided so that those which are `together`, by a third one too, are in one."""
    groups: list[list[str]] = []
    for device in devices:
        near = [g for g in groups if any(together(device, other) for other in g)]
        groups = [g for g in groups if g not in near]
        groups.append([d for g in near for d in g] + [device])
    order = {device: i for i, device in enumerate(devices)}
    return sorted(
        (tuple(sorted(g, key=order.__getitem__)) for g in groups), key=lambda g: order[g[0]]
    )


def _nvlink_links(
    matrix: Matrix, ports: Ports, accelerator: Accelerator
) -> tuple[list[LinkSpec], bool]:
    """The links of NVLink, and whether they go to an NVSwitch."""
    counts = _link_counts(matrix)
    needed = [sum(n for pair, n in counts.items() if i in pair) for i in range(len(matrix.gpus))]
    bandwidth = SourcedValue(ports.nvlink, ports.source, ports.date)
    if max(needed) <= ports.nvlinks:
        step = SourcedValue(0.6e-6, NCCL, "2026-06", "one step, which crosses one link")
        alike = {n: tuple(p for p in counts if counts[p] == n) for n in sorted(counts.values())}
        return [
            LinkSpec(("chip", "chip"), "nvlink", "pairs", bandwidth, step, count, pairs)
            for count, pairs in alike.items()
        ], False
    numbers = set(counts.values())
    everyone = len(matrix.gpus) * (len(matrix.gpus) - 1) // 2
    if len(numbers) > 1 or len(counts) < everyone or min(numbers) > ports.nvlinks:
        raise InputError(
            f"the NV# entries need {max(needed)} links of one GPU; {accelerator.name} has "
            f"{ports.nvlinks}, and through an NVSwitch every pair would show the same number"
        )
    half = SourcedValue(0.3e-6, NCCL, "2026-06", "half a step, which crosses two links")
    return [LinkSpec(("chip", "nvswitch"), "nvlink", "block", bandwidth, half, numbers.pop())], True


def _link_counts(matrix: Matrix) -> dict[tuple[int, int], int]:
    """(first GPU, second GPU) -> NVLinks between them, for pairs that have any."""
    gpus = list(enumerate(matrix.gpus))
    pairs = {(i, j): matrix.nvlinks(a, b) for i, a in gpus for j, b in gpus if i < j}
    return {pair: links for pair, links in pairs.items() if links}


def _pcie_links(matrix: Matrix, ports: Ports, sockets: Groups, switches: Groups) -> list[LinkSpec]:
    """From GPUs and NICs to their PCIe switch if they have one, else to their socket."""
    switch_of, socket_of = (
        {device: i for i, group in enumerate(groups) for device in group}
        for groups in (switches, sockets)
    )
    links: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kind, devices in (("chip", matrix.gpus), ("nic", matrix.nics)):
        for i, device in enumerate(devices):
            above = "pcie_switch" if device in switch_of else "socket"
            pair = i, switch_of.get(device, socket_of[device])
            links.setdefault((kind, above), []).append(pair)
    if switches:
        pairs = [(i, socket_of[group[0]]) for i, group in enumerate(switches)]
        links["pcie_switch", "socket"] = pairs
    note = f"16 lanes of PCIe {ports.pcie_generation}.0, what the GPU is specified for"
    bandwidth = SourcedValue(PCIE_X16[ports.pcie_generation], ASSUMED, "2026-11", note)
    quarter = SourcedValue(0.25e-6, NCCL, "2026-06", "a quarter of a step by way of the socket")
    half = SourcedValue(0.5e-6, NCCL, "2026-06", "half of a step by way of the socket")
    return [
        LinkSpec(ends, "pcie", "pairs", bandwidth, latency, pairs=tuple(pairs))
        for ends, pairs in links.items()
        for latency in [half if ends == ("chip", "socket") else quarter]
    ]


def _host_links(sockets: Groups) -> list[LinkSpec]:
    """Sockets to their memory and to each other; nothing of them is known."""
    none = SourcedValue(0.0, NCCL, "2026-06", "contained in the PCIe step")
    memory = SourcedValue(25.6e9, ASSUMED, "2026-11", "8 channels of DDR4-3200")
    upi = SourcedValue(22.4e9, ASSUMED, "2026-11", "3 UPI links of 11.2 GT/s x 2 bytes")
    links = [LinkSpec(("socket", "memory"), "memory", "block", memory, none, 8)]
    if len(sockets) > 1:
        links.append(LinkSpec(("socket", "socket"), "upi", "all", upi, none, 3))
    return links
