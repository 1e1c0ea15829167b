"""The line through a sweep of sizes: T = alpha + V / W."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaling.calibration.regression import lines


@dataclass(frozen=True)
class AlphaBetaLine:
    """Two numbers of a collective."""

    alpha: float  # s
    bandwidth: float  # bytes/s

    def seconds(self, size: float) -> float:
        """Return T of a size in bytes."""
        return self.alpha + size / self.bandwidth

    def worst(self, times: Mapping[int, float]) -> float:
        """Return the largest relative error at measured times, bytes -> seconds."""
        return max(abs(self.seconds(size) / seconds - 1) for size, seconds in times.items())

    @property
    def half(self) -> int:
        """Bytes of which alpha takes half of the time."""
        return round(self.alpha * self.bandwidth)


def through(times: Mapping[int, float]) -> AlphaBetaLine | None:
    """Return the line of least squares of relative errors, as `scaling calibrate` fits.

    None: the times do not grow with the bytes.
    """
    sizes, seconds = np.array(list(times), float), np.array(list(times.values()))
    alpha, per_byte, _ = map(float, lines(sizes, seconds))
    return AlphaBetaLine(alpha, 1 / per_byte) if per_byte > 0 else None
