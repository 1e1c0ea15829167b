"""What a run asks of a cluster that can be had, but is probably not what was meant.

node_network_bandwidth=400     400 bytes/s: GB/s, or Gb/s, were meant
19 nodes of NVL72 racks        no two equal domains make 19: NVLink joins single nodes
"""

from collections.abc import Iterator
from dataclasses import dataclass

from scaling.meshes.catalog.plausible import doubtful_bandwidth
from scaling.meshes.cluster import Cluster, domain_split, network_link
from scaling.meshes.provenance import OVERRIDE
from scaling.meshes.units import format_rate, format_size


@dataclass(frozen=True)
class _Credible:
    """Between the smallest and the largest figure of any chip, with room on both sides."""

    low: float
    high: float
    source: str


CREDIBLE = {
    "memory": _Credible(1e9, 2e12, "a laptop's GPU; seven times the 288 GB of GB300, NVIDIA"),
    "memory_bandwidth": _Credible(1e10, 1e14, "one DDR3 channel; twelve times GB300's 8 TB/s"),
}


def doubts(cluster: Cluster, host: Cluster) -> list[str]:
    """Warnings, one sentence each.

    Args:
        cluster: as the run has it.
        host: one node of it, as the file has it.
    """
    return [*_network(cluster), *_memory(cluster), *_domains(cluster, host)]


def _network(cluster: Cluster) -> Iterator[str]:
    link = network_link(cluster)
    if link is None or link.bandwidth is None or link.bandwidth.source != OVERRIDE:
        return
    label = f"node_network_bandwidth over {cluster.nics * link.count} links"
    for words in doubtful_bandwidth(label, link.kind, link.bandwidth.value, link.count):
        yield words.removeprefix("warning: ")


def _memory(cluster: Cluster) -> Iterator[str]:
    for name, known in CREDIBLE.items():
        figure = cluster.accelerator.figures.get(name)
        if figure is None or figure.source != OVERRIDE:
            continue
        if not known.low <= figure.value <= known.high:
            write = format_size if name == "memory" else format_rate
            yield (
                f"{name}={figure.value:g} is no chip's: bytes{'/s' * (write is format_rate)} are "
                f"meant, {write(known.low)} to {write(known.high)} ({known.source})"
            )


def _domains(cluster: Cluster, host: Cluster) -> Iterator[str]:
    """Where the nodes are spread over more domains than would hold them."""
    whole, nodes, split = host.domain_nodes, cluster.nodes, cluster.domain_nodes
    if cluster.torus is not None or split != domain_split(nodes, whole):
        return  # slices have shapes; or --override says how many
    fewest = -(-nodes // whole)
    if nodes // split > fewest:
        yield (
            f"{nodes} nodes of {cluster.name} do not split into {fewest} equal NVLink domains of "
            f"at most {whole}: priced as {nodes // split} of {split}; {fewest * whole} nodes would"
        )
