"""Training steps across the hosts of a testbed: predicted by term, and measured.

Copied from experiments/results/2026-11-23-testbed-steps by hand; nothing was fitted on them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from scaling.meshes.units import parse_quantity

DATA = resources.files("scaling.lessons") / "data" / "testbed_steps.json"
TERMS = ("compute", "optimizer", "exposed_communication", "bubble", "host")


@dataclass(frozen=True)
class RecordedStep:
    """One mesh at one rate of the cable; seconds."""

    hosts: int
    bandwidth: str  # "500Mbit"
    mesh: str
    predicted: float
    low: float
    high: float
    time: dict[str, float]  # predicted, by term
    measured: list[float]  # of several steps

    @property
    def rate(self) -> float:
        """Bytes/s of a host's link."""
        return parse_quantity(self.bandwidth.replace("bit", "bit/s"), "B/s")

    @property
    def median(self) -> float:
        """Median of the measured steps."""
        return float(np.median(self.measured))


@cache
def recorded_steps() -> tuple[RecordedStep, ...]:
    """Return all recorded steps."""
    document = json.loads(DATA.read_text(encoding="utf-8"))
    return tuple(RecordedStep(**case) for case in document["cases"])


def line_over_rates(seconds: list[float], rates: list[float]) -> tuple[float, float]:
    """Return what does not depend on the link (s), and the bytes that cross it one after another.

    A straight line through seconds over 1 / rate, by least squares: T = a + b / W.
    """
    slope, intercept = np.polyfit(1 / np.array(rates), np.array(seconds), 1)
    return float(intercept), float(slope)
