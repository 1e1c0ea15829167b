"""Watts by what a chip does, with its host, network and building; and rates under a power limit.

board      Q (idle + busy (limit - idle) (1 - exp(-x)))      Q W at most, busy part of the time
           x = peak u + byte b / Q                           u of the peak, b bytes/s while busy
device     (board + host Q + network) pue                    network: of several nodes
rate(limit) / rate(now) = ((limit / now - IDLE) / (1 - IDLE)) ^ (1 / EXPONENT)

Constants of a board are fitted on engines that serve, each model left out in turn, and hold for
training as well (experiments/published/score_serving.py, score_energy.py): data/power.toml.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from scaling.meshes.errors import check_range
from scaling.meshes.reading import package_toml, read
from scaling.program.ir import Number

# Share of the draw that does not follow the clock, and the power of the clock that the rest does
# (its voltage falls with it): fitted on trainings of small models under power limits of V100, A40,
# P100 and Quadro RTX 6000. Each GPU left out is 7 to 13 % off in the median, a rate in proportion
# to the limit 14 to 16 % (experiments/published/fit_power.py).
IDLE, EXPONENT = 0.25, 2.05
LEAST = 1e-3  # of a rate: a chip under a limit near its idle draw does next to nothing


def rate_under(share: Number, idle: float = IDLE, exponent: float = EXPONENT) -> Number:
    """Rate under `share` of the power that is drawn now, over the rate now."""
    return np.maximum((share - idle) / (1 - idle), LEAST) ** (1 / exponent)


@dataclass(frozen=True)
class BoardPower:
    """Watts of one board in the mean of a step, by what draws them."""

    total: Number
    idle: Number  # that it draws while it waits
    arithmetic: Number  # of its products
    memory: Number  # of bytes that kernels move
    network: Number  # of bytes that collectives read and write


@dataclass(frozen=True)
class Board:
    """Watts of a board by what it does."""

    evidence: str
    idle: float  # of the most that it draws, between kernels
    limit: float  # of the most that it draws, at most
    byte: float  # J of a byte of memory: of x, where little is drawn
    peak: float  # of x, at the peak of its products
    range: tuple[float, float]  # measured over predicted J of a token that is served: 5 to 95 %
    watts_range: tuple[float, float]  # of W in steps of measured length: models left out

    def power(
        self,
        most: float,
        utilization: Number,
        memory: Number = 0.0,
        network: Number = 0.0,
        busy: Number = 1.0,
    ) -> BoardPower:
        """Watts of a board.

        Args:
            most: W that it draws at most.
            utilization: of the peak of its products, in the mean of a step.
            memory: bytes/s that kernels move, in that mean.
            network: bytes/s that collectives read and write, likewise.
            busy: share of the step in which kernels run; elsewhere the board is idle.
        """
        share = np.maximum(busy, 1e-9)
        each = self.peak * utilization, self.byte * memory / most, self.byte * network / most
        x = sum(each) / share
        drawn = most * (self.limit - self.idle) * share * -np.expm1(-x)
        idle = most * self.idle + 0.0 * x
        parts = (drawn * part / np.maximum(sum(each), 1e-300) for part in each)
        return BoardPower(idle + drawn, idle, *parts)


@dataclass(frozen=True)
class Ranged:
    """A figure between two ends."""

    value: float
    low: float
    high: float
    source: str = ""

    def times(self, factor: float) -> "Ranged":
        """It so many times."""
        return Ranged(self.value * factor, self.low * factor, self.high * factor, self.source)


@dataclass(frozen=True)
class PowerFile:
    """What is shipped."""

    board: Board
    host: Ranged  # W of a node beside its boards, over the most that these draw
    network: Ranged  # W for a device, of several nodes
    pue: Ranged  # power of a building over that of its machines
    dollars_per_kwh: Ranged
    carbon: Ranged  # kg of CO2 equivalent for a kWh


@cache
def power_file() -> PowerFile:
    """Return what is shipped."""
    return read(PowerFile, package_toml("profiles/data/power.toml"), "power.toml")


def device_watts(board: float, most: float, nodes: int, pue: float | None = None) -> Ranged:
    """Watts for one device, with its share of host, network and building, each off by itself.

    `board` and `most` are W of its board, as predicted and at most; `pue` None: as shipped.
    """
    file = power_file()
    if pue is not None:
        check_range("--pue", pue, 1, 10)
    building = file.pue if pue is None else Ranged(pue, pue, pue)
    low, high = file.board.watts_range
    drawn = max(low * board, file.board.idle * most), min(high * board, most)
    parts = Ranged(board, *drawn), file.host.times(most), file.network.times(nodes > 1)
    machines = sum(part.value for part in parts)
    ends = (
        machines - sum((part.value - part.low) ** 2 for part in parts) ** 0.5,
        machines + sum((part.high - part.value) ** 2 for part in parts) ** 0.5,
    )
    return combined(Ranged(machines, *ends), building)


def mean_watts(board: Number, most: float, nodes: int, pue: float | None = None) -> Number:
    """The value of `device_watts`, of arrays as well."""
    file = power_file()
    machines = board + file.host.value * most + file.network.value * (nodes > 1)
    return machines * (file.pue.value if pue is None else pue)


def combined(*factors: Ranged) -> Ranged:
    """The product of figures that are off independently: deviations of logarithms as squares."""
    value = math.prod(each.value for each in factors)
    low, high = (
        math.exp(sum(math.log(getattr(each, end) / each.value) ** 2 for each in factors) ** 0.5)
        for end in ("low", "high")
    )
    return Ranged(value, value / low, value * high)
