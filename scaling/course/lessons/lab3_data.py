"""Training steps across the hosts of a testbed: predicted by term, and measured.

Copied by hand from experiments/results/2026-11-23-testbed-steps and, meshes with stages, from
2026-11-23-testbed-steps-stage, when other processes used half of the processor. Nothing was fitted
on them.
"""

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from scaling.meshes.units import parse_quantity

DATA = resources.files("scaling.course.lessons") / "data"
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

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, high = np.percentile(self.measured, (25, 75))
        return float((high - low) / self.median)


@cache
def recorded_steps() -> tuple[RecordedStep, ...]:
    """Return the recorded steps of meshes without stages."""
    return _read("testbed_steps.json")


@cache
def recorded_pipelines() -> tuple[RecordedStep, ...]:
    """Return the recorded steps of meshes with stages, of 4 microbatches each."""
    return _read("testbed_pipelines.json")


def _read(name: str) -> tuple[RecordedStep, ...]:
    document = json.loads((DATA / name).read_text(encoding="utf-8"))
    return tuple(RecordedStep(**case) for case in document["cases"])


def line_over_rates(seconds: list[float], rates: list[float]) -> tuple[float, float]:
    """Return what does not depend on the link (s), and the bytes that cross it one after another.

    A straight line through seconds over 1 / rate, by least squares: T = a + b / W.
    """
    slope, intercept = np.polyfit(1 / np.array(rates), np.array(seconds), 1)
    return float(intercept), float(slope)
