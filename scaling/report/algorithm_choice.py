"""Why the algorithms of a table were chosen, in a line or two for sizes that agree.

chosen: nvls Simple, fastest of 4 by fitted time (ring LL128 4.7 ms, ring Simple 4.9 ms)
NCCL 2.30.7 itself would take nvls Simple by its own table (est. 3.7 ms)
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from scaling.meshes.units import format_size, format_time
from scaling.simulate.collective import Answer

SHOWN = 3  # alternatives


def lines(answers: Sequence[Answer]) -> list[str]:
    """Of every run of sizes that agree, what was chosen and what NCCL would, at its largest."""
    return [*_told(answers, _taken, _why), *_told(answers, _nccl, _estimate)]


def _told(
    answers: Sequence[Answer], name: Callable[[Answer], str], words: Callable[[Answer], str]
) -> Iterator[str]:
    """A line for every run of sizes with one name, with the sizes where there are several runs."""
    runs = [list(run) for _, run in groupby(answers, key=name)]
    for run in runs:
        sizes = dict.fromkeys(format_size(answer.bytes) for answer in (run[0], run[-1]))
        prefix = f"{' to '.join(sizes)}: " if len(runs) > 1 else ""
        if name(run[-1]):
            yield prefix + words(run[-1])


def _taken(answer: Answer) -> str:
    """The way that was chosen; "" where there was no choice."""
    choosing = answer.choice.by == "fastest"
    return f"{answer.algorithm} {answer.protocol}".strip() if choosing else ""


def _why(answer: Answer) -> str:
    others = [
        f"{f'{other.algorithm} {other.protocol}'.strip()} {format_time(other.time)}"
        for other in answer.choice.alternatives
    ]
    more = ", .." if len(others) > SHOWN else ""
    rest = f" ({', '.join(others[:SHOWN])}{more})" if others else ""
    return f"chosen: {_taken(answer)}, {answer.choice.why}{rest}"


def _nccl(answer: Answer) -> str:
    """What NCCL would take; "" where it has no say."""
    pick = answer.choice.nccl
    return f"{pick.algorithm} {pick.protocol}" if pick is not None else ""


def _estimate(answer: Answer) -> str:
    pick = answer.choice.nccl
    assert pick is not None
    estimate = format_time(pick.estimate)
    return (
        f"NCCL {pick.version} itself would take {_nccl(answer)} by its own table (est. {estimate})"
    )
