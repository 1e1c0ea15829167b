"""What is kept of a program that was priced, and how it is judged by the count by hand.

not run    its packages are not here
refused    no price
open       the price says what it does not know, and its range has no upper end
too fast   below the time that the chip needs at its peaks for the work counted by hand
FLOPs      products differ from the count by more than 10 %, without a reason in the file
slow       more than 10 times that time, without a reason in the file
memory     2 % beside the compiler's plan, and no warning says so
plausible  none of these
"""

from dataclasses import dataclass

FLOPS_GOAL = 0.1  # of a count by hand; above it a reason is due (this project's own rule)
MEMORY_GOAL = 0.02  # of what the compiler planned (docs/costs/memory.md)
SLOW = 10.0  # times the least time; launches, vector work and memory hide behind this
ABSENT = "no environment"  # begins the error of a program that could not be tried
SAME = 1e-6  # rounding


@dataclass(frozen=True)
class Priced:
    """One program and its price; seconds, bytes and FLOPs of one device and call."""

    name: str
    title: str
    glue: int  # lines of `price`
    seconds: float  # from the call to the prediction
    memory: float = 0.0  # most that the process held, bytes
    error: str = ""
    devices: int = 0
    time: float = 0.0
    low: float = 0.0
    high: float | None = None  # None: open
    grade: str = ""
    unknown: tuple[str, ...] = ()
    flops: float = 0.0  # of products
    flops_by_hand: float = 0.0
    least_time: float = 0.0
    peak: float = 0.0
    compiler_peak: float | None = None
    state_by_hand: float = 0.0  # bytes of weights and moments; 0: not counted
    stored: float = 0.0  # bytes of the program's arguments, results and constants
    warnings: tuple[str, ...] = ()
    packages: str = ""  # of an environment of its own, with their versions
    note: str = ""  # why a figure is far from the count

    @property
    def flops_ratio(self) -> float | None:
        """Products of the program over those counted by hand."""
        return self.flops / self.flops_by_hand if self.flops_by_hand else None

    @property
    def peak_ratio(self) -> float | None:
        """Peak memory over the compiler's."""
        return self.peak / self.compiler_peak if self.compiler_peak else None

    @property
    def times_least(self) -> float | None:
        """The price over the least time that the chip can take."""
        return self.time / self.least_time if self.least_time else None

    @property
    def is_absent(self) -> bool:
        """True if the environment that the program needs is not installed."""
        return self.error.startswith(ABSENT)

    @property
    def judgement(self) -> str:
        """One word; see the top of this file."""
        if self.error:
            return "not run" if self.is_absent else "refused"
        if self.high is None:
            return "open"
        if (times := self.times_least) and times < 1 - SAME:
            return "too fast"
        if (ratio := self.flops_ratio) and abs(ratio - 1) > FLOPS_GOAL and not self.note:
            return "FLOPs"
        if times and times > SLOW and not self.note:
            return "slow"
        ratio = self.peak_ratio
        if ratio and abs(ratio - 1) > MEMORY_GOAL and not any("peak" in w for w in self.warnings):
            return "memory"
        return "plausible"
