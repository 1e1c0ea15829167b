"""What all tokens of a training take on the devices of a plan, with failures and restarts.

time    = tokens / (tokens/s) / goodput
money   = devices x time x price
energy  = devices x time x W of a device        with host, network and building

Ranges are of factors that are off independently: the step, the price, the watts.
"""

import math
from dataclasses import dataclass
from typing import Any

from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import check_range
from scaling.planning.objectives import HOUR
from scaling.profiles.power import Ranged, combined, device_watts, mean_watts, power_file
from scaling.profiles.prices import Price
from scaling.program.ir import Number
from scaling.questions.budget.failures import Reliability, goodput
from scaling.simulate.prediction import Prediction

KWH = 3.6e6  # J


@dataclass(frozen=True)
class Operation:
    """How a training is run: its failures, and its building. None: as shipped."""

    reliability: Reliability
    state: float  # bytes that a save writes
    pue: float | None = None
    dollars_per_kwh: float | None = None

    def __post_init__(self) -> None:
        if self.pue is not None:
            check_range("--pue", self.pue, 1, 10)
        if self.dollars_per_kwh is not None:
            check_range("--dollars-per-kwh", self.dollars_per_kwh, 0, 1e3)

    def goodput(self, devices: int) -> float:
        """Share of the time of so many devices that trains."""
        return goodput(self.reliability, devices, self.state)[1]

    def draw(self, board: Number, most: float, nodes: int) -> Number:
        """W for a device by those of its board, with host, network and building."""
        return mean_watts(board, most, nodes, self.pue)


def whole_run(
    prediction: Prediction, cluster: Cluster, tokens: float, price: Price | None, how: Operation
) -> dict[str, Any]:
    """Return the fields of `Plan` that are of a whole training; none where nothing is trained."""
    devices, rate = prediction.devices, float(prediction.tokens_per_second or 0.0)
    interval, share = goodput(how.reliability, devices, how.state)
    if not share:
        return {"goodput": 0.0}
    step = float(prediction.step_time)
    ends = float(prediction.step_time_low) / step, float(prediction.step_time_high) / step
    seconds = Ranged(1.0, *ends).times(tokens / rate / share)
    hours = seconds.times(devices / HOUR)
    ranges = {"total_time": seconds}
    found: dict[str, Any] = {
        "device_hours": hours.value,
        "goodput": share,
        "checkpoint_interval": interval,
    }
    if price is not None:
        ranges["money"] = combined(hours, Ranged(price.default, price.low, price.high))
    power, most = prediction.power, cluster.accelerator.power
    if power is not None and most is not None:
        watts = device_watts(float(power.total), most, cluster.nodes, how.pue)
        ranges["energy"] = energy = combined(seconds.times(devices), watts)
        shipped, stated = power_file(), how.dollars_per_kwh
        dollars = shipped.dollars_per_kwh.value if stated is None else stated
        found["electricity"] = energy.value / KWH * dollars
        found["emissions"] = energy.value / KWH * shipped.carbon.value
    for name, each in ranges.items():
        found[name] = each.value
        if math.isfinite(each.high):
            found[f"{name}_range"] = each.low, each.high
    return found
