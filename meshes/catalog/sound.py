"""Whether the links of a cluster join all its parts, so that bytes get from chip to chip."""

from collections.abc import Iterator

from scaling.meshes.cluster import Cluster
from scaling.meshes.graph import unreached

SHOWN = 5  # parts named when some cannot be reached


def graph_problems(cluster: Cluster) -> Iterator[str]:
    """What keeps the links of a cluster from joining all its parts, one sentence each."""
    lost = unreached(cluster)
    if lost:
        shown = ", ".join(lost[:SHOWN]) + (", ..." if len(lost) > SHOWN else "")
        yield f"{len(lost)} parts cannot be reached from node0/chip0: {shown}; join them"
    fabric = cluster.fabric
    if fabric is not None and not any(link.parts == ("nic", "leaf") for link in cluster.links):
        yield 'a fabric needs a link with parts = ["nic", "leaf"]: how NICs reach it'
    if fabric is not None and fabric.spine_nodes is not None and fabric.hop_latency is None:
        yield "a fabric with spines needs hop_latency: seconds from switch to switch"
