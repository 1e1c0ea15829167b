"""Why the algorithms of a table were selected, in a line or two for sizes that agree.

selected: nvls Simple, fastest of 4 by fitted time (ring LL128 4.7 ms, ring Simple 4.9 ms)
NCCL 2.30.7 itself would take nvls Simple by its own table (est. 3.7 ms)
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from scaling.meshes.units import format_size, format_time
from scaling.simulate.collective import CollectivePrice

SHOWN = 3  # alternatives


def choice_lines(prices: Sequence[CollectivePrice]) -> list[str]:
    """For every run of sizes that agree, the algorithm taken and NCCL's own, at the largest."""
    return [*_runs(prices, _selected, _why), *_runs(prices, _nccl, _estimate)]


def _runs(
    prices: Sequence[CollectivePrice],
    name: Callable[[CollectivePrice], str],
    line: Callable[[CollectivePrice], str],
) -> Iterator[str]:
    """A line for every run of sizes with one name, with the sizes where there are several runs."""
    runs = [list(run) for _, run in groupby(prices, key=name)]
    for run in runs:
        sizes = dict.fromkeys(format_size(price.bytes) for price in (run[0], run[-1]))
        prefix = f"{' to '.join(sizes)}: " if len(runs) > 1 else ""
        if name(run[-1]):
            yield prefix + line(run[-1])


def _selected(price: CollectivePrice) -> str:
    """The algorithm and protocol that were selected; "" where there was no choice."""
    return f"{price.algorithm} {price.protocol}".strip() if price.choice.by == "fastest" else ""


def _why(price: CollectivePrice) -> str:
    others = [
        f"{f'{other.algorithm} {other.protocol}'.strip()} {format_time(other.time)}"
        for other in price.choice.alternatives
    ]
    more = ", .." if len(others) > SHOWN else ""
    rest = f" ({', '.join(others[:SHOWN])}{more})" if others else ""
    return f"selected: {_selected(price)}, {price.choice.why}{rest}"


def _nccl(price: CollectivePrice) -> str:
    """What NCCL would take; "" where it ranks nothing."""
    choice = price.choice.nccl
    return f"{choice.algorithm} {choice.protocol}" if choice is not None else ""


def _estimate(price: CollectivePrice) -> str:
    choice = price.choice.nccl
    assert choice is not None
    estimate = format_time(choice.estimate)
    return (
        f"NCCL {choice.version} itself would take {_nccl(price)} by its own table (est. {estimate})"
    )
