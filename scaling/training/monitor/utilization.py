"""MFU and HFU of measured steps, by the FLOPs and the peak that the prediction has.

measured = predicted utilisation x predicted seconds / measured seconds
"""

from collections.abc import Mapping
from dataclasses import dataclass

NOT_KNOWN = {"mfu": None, "hfu": None}


@dataclass(frozen=True)
class Predicted:
    """What the prediction before the first step says of one step."""

    step_time: float  # s
    mfu: float | None  # None: the device's peak is not known
    hfu: float | None

    def at(self, step_time: float) -> Mapping[str, float | None]:
        """`mfu` and `hfu` of a step of `step_time` seconds; None as above."""
        faster = self.step_time / step_time
        both = {"mfu": self.mfu, "hfu": self.hfu}
        return {name: None if value is None else value * faster for name, value in both.items()}
