"""Looks up the links of a cluster by the parts they join, and their bandwidth and latency."""

from scaling.meshes.cluster import Cluster, LinkSpec
from scaling.meshes.errors import InputError


def path_latency(cluster: Cluster, start: str, goal: str) -> float:
    """Latency in s from one kind of part to another over the fewest links, without NVLink.

    Raises:
        InputError: no path, or a link on it without a latency.
    """
    reached = {start: 0.0}
    frontier = [start]
    while frontier and goal not in reached:
        steps = [(p, j) for p in frontier for j in cluster.links if p in j.parts]
        frontier = []
        for part, link in steps:
            other = link.parts[1] if link.parts[0] == part else link.parts[0]
            if other not in reached and link.kind != "nvlink":
                reached[other] = reached[part] + latency_of(cluster, link)
                frontier.append(other)
    if goal not in reached:
        raise InputError(f"{cluster.name}: no link leads from a {start} to a {goal}")
    return reached[goal]


def link_of(cluster: Cluster, part: str, kind: str, other: str | None = None) -> LinkSpec:
    """The first links of `kind` from `part` (to `other`); InputError if there are none."""
    for link in cluster.links:
        if link.kind == kind and link.parts[0] == part and other in (None, link.parts[1]):
            return link
    raise InputError(
        f"{cluster.name}: no {kind} link from a {part} that could join all chips of a node; "
        "`host` has none before `scaling calibrate`"
    )


def bandwidth_of(cluster: Cluster, link: LinkSpec) -> float:
    """bytes/s between two parts, one direction; InputError if the cluster states none."""
    if link.total_bandwidth is None:
        raise InputError(_unmeasured(cluster, link))
    return link.total_bandwidth


def latency_of(cluster: Cluster, link: LinkSpec) -> float:
    """Latency of one link in s; InputError if the cluster states none."""
    if link.latency is None:
        raise InputError(_unmeasured(cluster, link))
    return link.latency.value


def _unmeasured(cluster: Cluster, link: LinkSpec) -> str:
    ends = " - ".join(link.parts)
    return f"{cluster.name}: the links {ends} have no figures yet; run `scaling calibrate`"
