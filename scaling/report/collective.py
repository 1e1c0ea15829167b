"""Collectives in a table like that of nccl-tests, and why their algorithms were selected.

 size     time   algbw   busbw  algorithm    bound
1 MiB  44.9 us    23.3    40.9  ring LL128  7.3 us
selected: nvls Simple, fastest of 4 by fitted time (ring LL128 4.7 ms, ring Simple 4.9 ms)
NCCL 2.30.7 itself would take nvls Simple by its own table (est. 3.7 ms)
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from scaling.collectives.nccl import NcclChoice
from scaling.meshes.cluster import Cluster
from scaling.meshes.units import format_size, format_time
from scaling.report.formatting import columns, table_lines
from scaling.simulate.collective import CollectivePrice

GB = 1e9
SHOWN = 3  # alternatives
ADDING = ("nvls", "sharp")  # parts of names of algorithms whose switches add
BEYOND = "busbw counts the bytes of a ring: where switches add, it may exceed what a link carries"
HEAD = ("size", "time", "from", "to", "algbw GB/s", "busbw GB/s", "algorithm", "at least")


def page(
    prices: Sequence[CollectivePrice],
    cluster: Cluster,
    dtype: str | None = None,
    more: Sequence[str] = (),
) -> str:
    """The page of `scaling collective`: a line for each size, and why each algorithm was selected.

    `prices` are of one collective, in rising order of size; `dtype` stands in the heading.
    """
    lines = [heading(prices, cluster, dtype), *table(prices), *choice_lines(prices), *more]
    return "\n".join(lines)


def heading(prices: Sequence[CollectivePrice], cluster: Cluster, dtype: str | None) -> str:
    """Kind, ranks, cluster and grade in one line."""
    first = prices[0]
    groups = f"{first.groups} groups of " if first.groups > 1 else ""
    nodes = f"{cluster.nodes} x " if cluster.nodes > 1 else ""
    kind = f"{first.kind} {dtype}" if dtype else first.kind
    if first.skew is not None:
        kind += f" with skew {first.skew:g}"
    if first.sent is not None:
        kind += f", {first.sent / first.bytes:.3g} of the buffer sent"
    ranks = f"{first.ranks} rank{'s' * (first.ranks != 1)}"
    return f"{kind}, {groups}{ranks} on {nodes}{cluster.name}, {first.grade} figures"


def table(prices: Sequence[CollectivePrice]) -> list[str]:
    """A line per size, and the bottleneck of the largest."""
    has_range = any(price.time_low != price.time_high for price in prices)  # a rule has none
    rows: list[tuple[str, ...]] = [HEAD if has_range else (*HEAD[:2], *HEAD[4:])]
    for price in prices:
        times = (price.time, price.time_low, price.time_high) if has_range else (price.time,)
        rates = price.algorithm_bandwidth / GB, price.bus_bandwidth / GB
        cells = *map(format_time, times), *(f"{rate:.4g}" for rate in rates), price.algorithm
        rows.append((format_size(price.bytes), *cells, format_time(price.lower_bound)))
    lines = [*columns(rows, left=(len(rows[0]) - 2,)), f"bottleneck: {prices[-1].bottleneck}"]
    added = [price for price in prices if any(way in price.algorithm for way in ADDING)]
    if any(price.bus_bandwidth > price.levels[0].bandwidth for price in added if price.levels):
        lines.append(BEYOND)
    return lines


def choice_lines(prices: Sequence[CollectivePrice]) -> list[str]:
    """For every run of sizes that agree, the algorithm taken and NCCL's own, at the largest."""
    return [*_runs(prices, _selected), *_runs(prices, _nccl)]


def level_lines(price: CollectivePrice) -> list[str]:
    """A table of the busiest links of each level: bytes, bandwidth, and the rate if they bound."""
    rows = (
        (
            load.level,
            format_size(load.bytes),
            f"{load.bandwidth / GB:.4g}",
            format_time(load.time),
            f"{price.priced_bytes / load.time / GB:.4g}",
        )
        for load in price.levels
    )
    return table_lines(("links", "bytes", "GB/s", "time", "algbw GB/s"), rows)


def switch_lines(price: CollectivePrice) -> list[str]:
    """A table of the busiest switch of each level: bytes in, bytes out."""
    rows = (
        (load.level, f"{load.count:,}", format_size(load.bytes_in), format_size(load.bytes_out))
        for load in price.switches
    )
    head = "switches of a", "how many", "bytes in", "bytes out"
    return table_lines(head, rows) or ["no switch carries anything"]


def _runs(
    prices: Sequence[CollectivePrice], told: Callable[[CollectivePrice], tuple[str, str]]
) -> Iterator[str]:
    """A line for every run of sizes with one name, with the sizes where there are several runs.

    `told` gives the name, "" where there is nothing to tell, and the line.
    """
    runs = [list(run) for _, run in groupby(prices, key=lambda price: told(price)[0])]
    for run in runs:
        sizes = dict.fromkeys(format_size(price.bytes) for price in (run[0], run[-1]))
        prefix = f"{' to '.join(sizes)}: " if len(runs) > 1 else ""
        name, line = told(run[-1])
        if name:
            yield prefix + line


def _selected(price: CollectivePrice) -> tuple[str, str]:
    choice, name = price.choice, price.algorithm
    others = [f"{other.algorithm} {format_time(other.time)}" for other in choice.alternatives]
    more = ", .." if len(others) > SHOWN else ""
    rest = f" ({', '.join(others[:SHOWN])}{more})" if others else ""
    return name if choice.by == "fastest" else "", f"selected: {name}, {choice.why}{rest}"


def _nccl(price: CollectivePrice) -> tuple[str, str]:
    """NCCL's own choice; "" where it ranks nothing."""
    choice = price.choice.nccl
    if choice is None:
        return "", ""
    estimate = f"est. {format_time(choice.estimate)}"
    if choice.estimate < price.lower_bound:  # its table leaves out links that these groups share
        estimate += ", impossible here"
    by = f"by its own table ({estimate})"
    return _way(choice), f"NCCL {choice.version} itself would take {_way(choice)} {by}"


def _way(chosen: NcclChoice) -> str:
    return f"{chosen.algorithm} {chosen.protocol}".strip()
