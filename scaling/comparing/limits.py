"""Limits of what a step may grow by: `time>5%,peak>2%,flops>1%`.

time     the step           peak    memory at its fullest moment
flops    of products        bytes   of the device's memory, and sent
communication               bytes of all collectives
compute, exposed_communication, ...   a term of the time (scaling.simulate.prediction)
parameters, temporary, ...            a part of the peak
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scaling.comparing.difference import Change, Difference
from scaling.meshes.errors import InputError, check_keys
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import TERMS

FIGURES: Mapping[str, Callable[[Difference], Change]] = {
    "time": lambda d: d.step_time,
    "peak": lambda d: d.memory["peak"],
    "flops": lambda d: d.work["flops"],
    "bytes": lambda d: d.work["bytes"],
    "communication": lambda d: Change(
        *(sum(getattr(c.moved, side) or 0.0 for c in d.collectives) for side in ("first", "second"))
    ),
    **{name: lambda d, name=name: d.time[name] for name in TERMS},  # type: ignore[misc]
    # The collectives' own buffers have the name of what they move.
    **{n: lambda d, n=n: d.memory[n] for n in ON_DEVICE if n != "communication"},  # type: ignore[misc]
}
LIMIT = re.compile(r"\s*(\w+)\s*>\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True)
class Limit:
    """The share by which a figure may grow."""

    figure: str  # of FIGURES
    percent: float

    def __str__(self) -> str:
        return f"{self.figure}>{self.percent:g}%"

    def change(self, found: Difference) -> Change:
        """The change that is limited."""
        return FIGURES[self.figure](found)

    def check(self, found: Difference, base: Path | str) -> None:
        """Raise InputError if the base has no such figure."""
        if self.change(found).first is None:
            raise InputError(f"{base} has no {self.figure}: write it again with --save {base}")

    def is_exceeded(self, found: Difference) -> bool:
        """True if the figure grew by more; one that was nothing by anything at all."""
        change = self.change(found)
        return change.difference > self.percent / 100 * (change.first or 0.0)


def read_limits(text: str) -> tuple[Limit, ...]:
    """The limits in a text.

    Raises:
        InputError: one that cannot be read, an unknown figure, one that is limited twice.
    """
    limits: dict[str, Limit] = {}
    for part in text.split(","):
        found = LIMIT.fullmatch(part)
        if found is None:
            raise InputError(
                f"--fail-if {part.strip()!r}: write FIGURE>N%, such as time>5%,peak>2%"
            )
        check_keys([found[1]], FIGURES, "--fail-if", "figure")
        if found[1] in limits:
            raise InputError(f"--fail-if limits {found[1]} twice; give it once")
        limits[found[1]] = Limit(found[1], float(found[2]))
    return tuple(limits.values())
