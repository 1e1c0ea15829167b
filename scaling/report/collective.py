"""Collectives in a table like that of nccl-tests.

 size     time   algbw   busbw  algorithm    bound
1 MiB  44.9 us    23.3    40.9  ring LL128  7.3 us
"""

from collections.abc import Sequence

from scaling.meshes.cluster import Cluster
from scaling.meshes.units import format_size, format_time
from scaling.report.formatting import columns
from scaling.simulate.collective import CollectivePrice

GB = 1e9
HEAD = ("size", "time", "from", "to", "algbw GB/s", "busbw GB/s", "algorithm", "at least")


def heading(prices: Sequence[CollectivePrice], cluster: Cluster, dtype: str | None) -> str:
    """Kind, ranks, cluster and grade in one line."""
    first = prices[0]
    groups = f"{first.groups} groups of " if first.groups > 1 else ""
    nodes = f"{cluster.nodes} x " if cluster.nodes > 1 else ""
    kind = f"{first.kind} {dtype}" if dtype else first.kind
    if first.skew is not None:
        kind += f" with skew {first.skew:g}"
    return f"{kind}, {groups}{first.ranks} ranks on {nodes}{cluster.name}, {first.grade} figures"


def table(prices: Sequence[CollectivePrice]) -> list[str]:
    """A line per size, and the bottleneck of the largest."""
    rows = [HEAD, *map(_row, prices)]
    return [*columns(rows, left=(6,)), f"bottleneck: {prices[-1].bottleneck}"]


def _row(price: CollectivePrice) -> tuple[str, ...]:
    times = (price.time, price.time_low, price.time_high)
    rates = (price.algorithm_bandwidth / GB, price.bus_bandwidth / GB)
    return (
        format_size(price.bytes),
        *map(format_time, times),
        *(f"{rate:.4g}" for rate in rates),
        f"{price.algorithm} {price.protocol}".strip(),
        format_time(price.lower_bound),
    )
