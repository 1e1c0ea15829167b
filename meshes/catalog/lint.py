"""Warnings about figures that are probably not meant: bits for bytes, GB for bytes ...

    low <= figure <= high     of every product of its kind, by public specifications

A figure outside is reported with the unit that it looks like. Also reported: a NIC that is faster
than its slot, a GPU's PCIe link that is faster than the GPU's, a host with very many chips, and
nodes that do not divide into equal NVLink domains. Files, overrides and what-if values are
checked alike.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from scaling.meshes.catalog.figures import LINKS, Figure, figure
from scaling.meshes.catalog.topology import PCIE_X16, PORTS
from scaling.meshes.cluster import (
    Cluster,
    Fabric,
    LinkSpec,
    domain_split,
    network_link,
    torus_link,
    unreached_parts,
)
from scaling.meshes.provenance import OVERRIDE, SourcedValue
from scaling.meshes.units import Unit, format_rate, format_size, format_time

MOST_CHIPS = 16  # of one host: NVIDIA DGX-2, sixteen V100; AWS trn1.32xlarge, sixteen Trainium
ROUNDING = 1.05  # specifications round 15.75 GB/s to 16 GB/s
SHOWN = 5  # parts named when some cannot be reached


# What a figure outside its range was probably written in, and its factor to SI.
MISTAKES: dict[Unit, tuple[tuple[str, float], ...]] = {
    "B/s": (
        ("GB/s", 1e9),
        ("Gb/s", 1e9 / 8),
        ("MB/s", 1e6),
        ("bits", 1 / 8),
        ("1000 times too much", 1e-3),
        ("bits taken for bytes once too often", 8),
    ),
    "B": (("GB", 1e9), ("MB", 1e6), ("bits", 1 / 8)),
    "FLOP/s": (("TFLOP/s", 1e12), ("GFLOP/s", 1e9)),
    "Hz": (("GHz", 1e9), ("MHz", 1e6)),
    "s": (("microseconds", 1e-6), ("nanoseconds", 1e-9)),
}
EXPONENTS = {1e12: "e12", 1e9: "e9", 1e6: "e6", 1e-6: "e-6", 1e-9: "e-9"}


def lint_cluster(cluster: Cluster) -> Iterator[str]:
    """Warnings about the figures of a cluster, one sentence each."""
    network, links = network_link(cluster), list(cluster.links)
    links += [torus_link(cluster.torus)] if cluster.torus is not None else []
    if network is not None and _is_overridden(network):
        links.remove(network)
        count = cluster.nics * network.count
        label = f"node_network_bandwidth over {count} links"
        total = LINKS["network"].times(count)
        yield from implausible(label, cluster.node_network_bandwidth, total)
    yield from lint_links(links, cluster.fabric, cluster.name)
    yield from lint_chip(cluster.accelerator.figures, cluster.accelerator.name)
    yield from _slots(cluster)
    if cluster.parts["chip"] > MOST_CHIPS and not cluster.virtual_devices:
        yield (
            f"{cluster.name}: {cluster.parts['chip']} chips in one node; [parts] describes one "
            f"host, of at most {MOST_CHIPS} chips so far; --nodes says how many hosts"
        )


def lint_links(links: Iterable[LinkSpec], fabric: Fabric | None, where: str) -> Iterator[str]:
    """Warnings about the bandwidths and latencies of links and of the fabric's hops."""
    for link in links:
        label = f"{where}: {link.kind} {' - '.join(link.parts)}"
        if link.bandwidth is not None:
            kind, value = LINKS[link.kind], link.bandwidth.value
            yield from implausible(f"{label}: bandwidth", value, kind, link.count)
        if link.latency is not None:
            yield from implausible(f"{label}: latency", link.latency.value, figure("latency"))
    hop = None if fabric is None else fabric.hop_latency
    if hop is not None:
        yield from implausible(f"{where}: fabric: hop_latency", hop.value, figure("hop_latency"))


def lint_chip(figures: Mapping[str, SourcedValue], where: str) -> Iterator[str]:
    """Warnings about memory, clock and peak rates of an accelerator."""
    for name, stated in figures.items():
        yield from implausible(f"{where}: {name}", stated.value, figure(name))


def implausible(label: str, value: float, plausible: Figure, count: int = 1) -> Iterator[str]:
    """A warning if `value`, one of `count` links side by side, is not plausible."""
    if plausible.low <= value <= plausible.high:
        return
    meant = [(f"all {count} links together", 1 / count)] if count > 1 else []
    for name, factor in (*meant, *MISTAKES[plausible.unit]):
        if plausible.low <= value * factor <= plausible.high:
            digits, exponent = f"{value:g}", EXPONENTS.get(factor)
            is_short = exponent and "e" not in digits
            better = f"{digits}{exponent}" if is_short else f"{value * factor:g}"
            looks = f"looks like {name}; write {better}"
            break
    else:
        looks = "is no such figure"
    per_link = " per link" if plausible in LINKS.values() else ""
    low, high = _text(plausible.low, plausible.unit), _text(plausible.high, plausible.unit)
    yield (
        f"{label}: {_text(value, plausible.unit)}{per_link} {looks}; "
        f"plausible is {low} to {high} ({plausible.source})"
    )


def graph_problems(cluster: Cluster) -> Iterator[str]:
    """Errors that only the whole cluster shows, such as parts that no links reach."""
    lost = unreached_parts(cluster)
    if lost:
        shown = ", ".join(lost[:SHOWN]) + (", ..." if len(lost) > SHOWN else "")
        kind = lost[0].split("/")[-1].rstrip("0123456789")
        yield (
            f"{len(lost)} parts cannot be reached from node0/chip0: {shown}; add [[links]] with "
            f'parts = ["{kind}", ...], or leave {kind} out of [parts]'
        )
    fabric = cluster.fabric
    if fabric is not None and network_link(cluster) is None:
        yield 'a fabric needs [[links]] with parts = ["nic", "leaf"]: how NICs reach it'
    if fabric is not None and fabric.spine_nodes is not None and fabric.hop_latency is None:
        yield "a fabric with spines needs hop_latency: seconds from switch to switch"


def lint_domains(cluster: Cluster, host: Cluster) -> Iterator[str]:
    """A warning where nodes of the run are spread over more NVLink domains than would hold them.

    `host` is one node of the cluster, as the file has it.
    """
    largest, nodes, split = host.domain_nodes, cluster.nodes, cluster.domain_nodes
    if cluster.torus is not None or split != domain_split(nodes, largest):
        return  # slices have shapes; or --override says how many
    fewest = -(-nodes // largest)
    if nodes // split > fewest:
        yield (
            f"{nodes} nodes of {cluster.name} do not split into {fewest} equal NVLink domains of "
            f"at most {largest}: priced as {nodes // split} of {split}; "
            f"{fewest * largest} nodes would"
        )


def _slots(cluster: Cluster) -> Iterator[str]:
    """NICs that are faster than their slot, and PCIe links that are faster than their GPU's."""
    network, chip = network_link(cluster), cluster.accelerator
    port = 0.0 if network is None or _is_overridden(network) else network.total_bandwidth or 0.0
    ports = PORTS.get(chip.compute_capability or 0.0) if chip.vendor == "NVIDIA" else None
    # one direction of the PCIe that the GPU is specified for
    specified = math.inf if ports is None else PCIE_X16[ports.pcie_generation]
    for link in cluster.links:
        if link.kind != "pcie" or link.bandwidth is None or link.total_bandwidth is None:
            continue
        slot, label = link.total_bandwidth, f"{cluster.name}: pcie {' - '.join(link.parts)}"
        if "nic" in link.parts and port > ROUNDING * slot and not link.bandwidth.note:
            yield (
                f"{cluster.name}: a NIC sends {format_rate(port)} but its slot, {label}, takes "
                f"{format_rate(slot)}; {port:g} bits/s are {format_rate(port / 8)}"
            )
        if "chip" in link.parts and slot > ROUNDING * specified:
            yield (
                f"{label}: {format_rate(slot)}, but {chip.name} has 16 lanes of "
                f"{format_rate(specified)} in one direction; does the figure add both directions?"
            )


def _is_overridden(link: LinkSpec) -> bool:
    return link.bandwidth is not None and link.bandwidth.source == OVERRIDE


def _text(value: float, unit: Unit) -> str:
    if unit == "s":
        return f"{value:g} s" if value >= 1 or not value else format_time(value)
    if unit == "B":
        return format_size(value) if value >= 1e6 else f"{value:g} bytes"
    plain = {"B/s": "bytes/s"}.get(unit, unit)
    return format_rate(value, unit) if value >= 1e6 else f"{value:g} {plain}"
