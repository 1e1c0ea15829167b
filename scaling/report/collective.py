"""Collectives in a table like that of nccl-tests.

 size     time   algbw   busbw  algorithm    bound
1 MiB  44.9 us    23.3    40.9  ring LL128  7.3 us
"""

from collections.abc import Sequence

from scaling.meshes.cluster import Cluster
from scaling.meshes.units import format_size, format_time
from scaling.report.columns import columns
from scaling.simulate.collective import Answer

GB = 1e9
HEAD = ("size", "time", "from", "to", "algbw GB/s", "busbw GB/s", "algorithm", "at least")


def heading(answers: Sequence[Answer], cluster: Cluster, dtype: str | None) -> str:
    """What was asked, in one line."""
    first = answers[0]
    groups = f"{first.groups} groups of " if first.groups > 1 else ""
    nodes = f"{cluster.nodes} x " if cluster.nodes > 1 else ""
    kind = f"{first.kind} {dtype}" if dtype else first.kind
    if first.skew is not None:
        kind += f" with skew {first.skew:g}"
    return f"{kind}, {groups}{first.ranks} ranks on {nodes}{cluster.name}, {first.grade} figures"


def table(answers: Sequence[Answer]) -> list[str]:
    """A line per size, and what binds at the largest."""
    rows = [HEAD, *map(_row, answers)]
    return [*columns(rows, left=(6,)), f"bottleneck: {answers[-1].bottleneck}"]


def _row(a: Answer) -> tuple[str, ...]:
    times = (a.time, a.time_low, a.time_high)
    rates = (a.algorithm_bandwidth / GB, a.bus_bandwidth / GB)
    return (
        format_size(a.bytes),
        *map(format_time, times),
        *(f"{rate:.4g}" for rate in rates),
        f"{a.algorithm} {a.protocol}".strip(),
        format_time(a.lower_bound),
    )
