"""Links of a cluster by the parts that they join: which there are, and what they are rated at."""

from scaling.meshes.cluster import Cluster, Joint
from scaling.meshes.errors import InputError


def path_latency(cluster: Cluster, start: str, goal: str) -> float:
    """Seconds from one kind of part to another over the fewest links, NVLink left out."""
    reached = {start: 0.0}
    frontier = [start]
    while frontier and goal not in reached:
        steps = [(p, j) for p in frontier for j in cluster.joints if p in j.parts]
        frontier = []
        for part, joint in steps:
            other = joint.parts[1] if joint.parts[0] == part else joint.parts[0]
            if other not in reached and joint.kind != "nvlink":
                reached[other] = reached[part] + latency_of(cluster, joint)
                frontier.append(other)
    if goal not in reached:
        raise InputError(f"{cluster.name}: no link leads from a {start} to a {goal}")
    return reached[goal]


def joint_of(cluster: Cluster, part: str, kind: str, other: str | None = None) -> Joint:
    """The joint of that kind that starts from `part`."""
    for joint in cluster.joints:
        if joint.kind == kind and joint.parts[0] == part and other in (None, joint.parts[1]):
            return joint
    raise InputError(
        f"{cluster.name}: no {kind} link from a {part} that could join all chips of a node; "
        "`host` has none before `scaling calibrate`"
    )


def bandwidth_of(cluster: Cluster, joint: Joint) -> float:
    """bytes/s of a pair of parts, one direction; InputError where nobody measured it."""
    if joint.total_bandwidth is None:
        raise InputError(_unmeasured(cluster, joint))
    return joint.total_bandwidth


def latency_of(cluster: Cluster, joint: Joint) -> float:
    """Seconds over one of its links; InputError where nobody measured it."""
    if joint.latency is None:
        raise InputError(_unmeasured(cluster, joint))
    return joint.latency.value


def _unmeasured(cluster: Cluster, joint: Joint) -> str:
    ends = " - ".join(joint.parts)
    return f"{cluster.name}: the links {ends} have no figures yet; run `scaling calibrate`"
