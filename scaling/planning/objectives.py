"""What a plan makes least, and what the whole training may take.

    time      seconds of a step
    cost      devices x time
    money     dollars of the devices, by the hour
    energy    joules of the devices with host, network and building, boards as they are used

All are compared for one token, so that clusters and numbers of nodes can be. A deadline and a
budget rule out what takes longer, or is dearer, for all tokens of the training, with what failures,
saves and restarts take.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.shape import AxisSize
from scaling.meshes.units import format_days, format_dollars
from scaling.models.accounting.parameters import count_parameters
from scaling.models.config import ModelConfig, with_positions
from scaling.profiles.prices import Price
from scaling.program.ir import Number

OBJECTIVES = ("time", "cost", "money", "energy")
HOUR = 3600.0  # s
# Loss of N parameters without embeddings, (8.8e13 / N)^0.076 nats, and the tokens of its critical
# batch, 2e8 / loss^(1 / 0.21) (Kaplan et al. 2020, arXiv 2001.08361, section 1.2).
LOSS_SIZE, LOSS_POWER, BATCH_SIZE, BATCH_POWER = 8.8e13, 0.076, 2e8, 0.21


def critical_batch_of(model: ModelConfig) -> float:
    """Tokens of the batch with which a loss takes twice the fewest tokens, and twice the fewest
    steps, at the end of a training by the rule of Kaplan et al."""
    counted = count_parameters(with_positions(model, 1))
    tables = ("token_embedding", "position_table", "output_head")
    parameters = counted.active - sum(counted.components.get(name, 0) for name in tables)
    loss = (LOSS_SIZE / parameters) ** LOSS_POWER
    return float(BATCH_SIZE / loss ** (1 / BATCH_POWER))


@dataclass(frozen=True)
class Goal:
    """What is least, and what is allowed."""

    objective: str = "time"
    tokens: float | None = None  # of the whole training
    deadline: float | None = None  # s
    budget: float | None = None  # dollars
    critical: float | None = None  # critical batch, tokens; None: batches are all as good
    least_batch: float = 0.0  # tokens of the smallest batch, which `tokens` are of

    def growth(self, batch: float) -> float:
        """Tokens to the same loss with a batch of so many tokens, over those with the smallest.

        1 + B / B_crit times the fewest that do, as steps S and tokens E obey
        (S / S_min - 1) (E / E_min - 1) = 1 with B_crit = E_min / S_min (McCandlish et al. 2018,
        arXiv 1812.06162; Kaplan et al. 2020, arXiv 2001.08361, section 5.1, C_min).
        """
        if self.critical is None:
            return 1.0
        return (1 + batch / self.critical) / (1 + self.least_batch / self.critical)

    def __post_init__(self) -> None:
        check_keys([self.objective], OBJECTIVES, "--objective", "objective")
        for option, limit in (("--deadline", self.deadline), ("--budget", self.budget)):
            if limit is not None and self.tokens is None:
                raise InputError(f"{option} is of a whole training: say its --tokens, such as 15T")

    @property
    def limits(self) -> str:
        """` within 30 days and $2,000,000`; "" without limits."""
        texts = [
            text
            for limit, text in (
                (self.deadline, format_days(self.deadline or 0.0)),
                (self.budget, format_dollars(self.budget or 0.0)),
            )
            if limit is not None
        ]
        return f" within {' and '.join(texts)}" if texts else ""


@dataclass(frozen=True)
class Tariff:
    """What a device takes while it is used; None: not known."""

    name: str  # of the chip
    price: Price | None  # of an hour
    # W of a device by (W of its board, most W of that, nodes), with host, network and building.
    draw: Callable[[Number, float, int], Number] | None = None
    goodput: Callable[[int], float] = lambda devices: 1.0  # of so many, with failures and saves

    @property
    def dollars(self) -> float | None:
        """For an hour."""
        return None if self.price is None else self.price.default

    def check(self, goal: Goal) -> None:
        """Raise InputError where a figure is missing that the goal needs."""
        needs_price = goal.objective == "money" or goal.budget is not None
        option = "--budget" if goal.objective != "money" else "--objective money"
        if needs_price and self.price is None:
            raise InputError(f"{option}: nobody states a price of {self.name}; give --price")
        if goal.objective == "energy" and self.draw is None:
            raise InputError(
                f"--objective energy: {self.name} has no figure 'power' (W); state it in an "
                "accelerator file of your own, or use --objective cost"
            )

    @property
    def dollars_per_second(self) -> float:
        """Of one device; 0 where nobody states a price."""
        return (self.dollars or 0.0) / HOUR


def value_of(
    goal: Goal,
    tariff: Tariff,
    tokens: float,
    seconds: np.ndarray,
    devices: AxisSize,
    watts: Number = 1.0,
) -> np.ndarray:
    """The objective for one token of the smallest batch; infinite past a deadline or a budget.

    Args:
        goal, tariff: what is least, and what a device takes.
        tokens: of a step.
        seconds: of a step.
        devices: that are used.
        watts: of one device, where energy is least.
    """
    tokens = tokens / goal.growth(tokens)
    of_device = {"money": tariff.dollars_per_second, "energy": watts}.get(goal.objective, 1.0)
    shares = 1.0 if goal.objective == "time" else devices * of_device
    total = np.zeros_like(seconds)
    if goal.tokens:
        total = seconds / tokens * goal.tokens / max(tariff.goodput(int(np.max(devices))), 1e-12)
    most = np.inf if goal.deadline is None else goal.deadline
    dollars = total * devices * tariff.dollars_per_second
    allowed = (total <= most) & (dollars <= (np.inf if goal.budget is None else goal.budget))
    return np.where(allowed, seconds / tokens * shares, np.inf)
