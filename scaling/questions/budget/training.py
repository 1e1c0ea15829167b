"""A training as it is budgeted: of parameters, tokens, devices, MFU and time, one is asked for.

time = 6 A D / (N C u)      A parameters that a token uses, D tokens, N devices of C FLOP/s, MFU u
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from typing import Literal

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError, check_range
from scaling.meshes.units import format_count
from scaling.profiles.prices import Price
from scaling.questions.answer import Answer, Input, Lettered, letters

SECTION = "applied-training: how long does training take"
DAY, HOUR = 86_400.0, 3600.0  # s
# Bytes of a parameter with its optimizer: 2 + 4 + 4 of bf16 weights and fp32 moments ("How to Scale
# Your Model", chapter on training), 16 with fp32 weights beside bf16 ones and gradients in bf16
# (ZeRO, arXiv 1910.02054, section 3.1).
GUIDE_BYTES, MIXED_BYTES = 10.0, 16.0
MISSING = {
    "tokens": "--tokens says how long the training is, such as 15T",
    "parameters": "name a MODEL, such as llama3-70b, or describe one by --parameters 70e9",
}
LARGEST = 1e30  # of any count, so that products stay finite
MOST_DEVICES = 1e9


@dataclass(frozen=True)
class PredictedStep:
    """What the engine predicts for one step on these devices."""

    mfu: float
    tokens_per_second: float
    words: str  # the mesh, and where it comes from
    span: tuple[float, float] = (1.0, 1.0)  # ends of the step over the step
    watts: float | None = None  # of a board


@dataclass(frozen=True)
class Training(Lettered):
    """What is asked. None: not given."""

    name: str
    parameters: float  # all that are stored
    active: float  # that a token uses
    tokens: float
    chip: Accelerator
    dtype: str = "bf16"  # of the products
    devices: int | None = None
    mfu: float | None = None
    days: float | None = None
    device_hours: float | None = None
    token_flops: float | None = None  # exact model FLOPs of a token
    batch: float | None = None  # tokens of a step
    state_bytes: float = GUIDE_BYTES  # of a parameter with gradients and optimizer
    shards: int | None = None  # devices over which one copy of that is spread; None: all
    slice_devices: int | None = None  # of the largest TPU slice
    predicted: PredictedStep | None = None
    note: str = "at the peak: state --mfu for a time that is reached"  # where nothing is predicted
    price: Price | None = None  # of a device; None: not known
    nodes: int = 1
    pue: float | None = None  # of the building; None: as shipped
    dollars_per_kwh: float | None = None  # None: as shipped
    asked: Literal["tokens", "parameters", ""] = ""  # a count that follows from all the others

    @property
    def is_timeless(self) -> bool:
        """Whether nobody says how long it takes, or how fast it is."""
        return (self.days, self.device_hours, self.mfu) == (None, None, None)

    @cached_property
    def letters(self) -> dict[str, Input]:
        """Symbols of formulas about a training; 0 stands for a figure that is not given."""
        of_state = f"of a parameter with its optimizer; {MIXED_BYTES:g} with fp32 weights"
        return letters(
            Input("A", self.active, "parameters", "that a token uses"),
            Input("P", self.parameters, "parameters"),
            Input("D", self.tokens, "tokens"),
            Input("C", self.chip.peak(self.dtype), "FLOP/s", f"{self.dtype} peak of a device"),
            Input("N", self.devices or 0, "devices"),
            Input("u", self.mfu or 1.0, "", "MFU, as given"),
            Input("d", self.days or 0.0, "days"),
            Input("h", self.device_hours or 0.0, "hours", "of all devices"),
            Input("f", self.token_flops or 0.0, "FLOPs", "of a token, attention included"),
            Input("B", self.batch or 0.0, "tokens", "of a step"),
            Input("Z", self.slice_devices or 0, "devices", "of the largest slice"),
            Input("b", self.state_bytes, "bytes", of_state),
            Input("H", self.chip.memory or 0.0, "bytes", "of memory on a device"),
            Input("w", self.chip.power or 0.0, "W", "most that a board draws"),
        )


def check_training(training: Training) -> None:
    """Raise InputError for figures that no training has, or that do not belong together."""
    given = {
        "--tokens": training.tokens,
        "--parameters": training.parameters,
        "--active": training.active,
        "--devices": training.devices,
        "--days": training.days,
        "--device-hours": training.device_hours,
        "--batch": training.batch,
        "--bytes-per-parameter": training.state_bytes,
    }
    for name, value in given.items():
        if value is not None and not 0 < value <= LARGEST:
            raise InputError(f"{name} {value:g} must be positive, at most {LARGEST:g}")
    if training.active > training.parameters:
        raise InputError(
            f"--active {format_count(training.active)} exceeds the "
            f"{format_count(training.parameters)} parameters"
        )
    if training.mfu is not None:
        check_range("--mfu", training.mfu, 1e-4, 1)
    if training.days is not None and training.device_hours is not None:
        raise InputError("--days and --device-hours: give one of them")
    spent = training.device_hours is not None or bool(training.days and training.devices)
    if training.asked and not (spent and training.mfu is not None):
        raise InputError(
            f"{MISSING[training.asked]}; or ask for the most {training.asked}, by --mfu with "
            "--days and --devices, or with --device-hours"
        )
    if not training.asked and spent and training.mfu is not None:
        raise InputError(
            "MFU, devices and time follow from each other: leave out --mfu, the time, or --tokens"
        )
    if training.days and training.devices is None and training.mfu is None:
        raise InputError("--days without --devices asks for devices: state --mfu, such as 0.4")


def counted(training: Training) -> tuple[Training, Answer]:
    """Return the training with the tokens or parameters that are asked for, and the answer."""
    asks_tokens = training.asked == "tokens"
    spent = "86400 * d * N" if training.device_hours is None else "3600 * h"
    name = "tokens that are trained" if asks_tokens else "parameters that a token may use"
    formula = f"{spent} * C * u / (6 * {'A' if asks_tokens else 'D'})"
    most = training.answer(name, training.asked, formula)
    if asks_tokens:
        return replace(training, tokens=float(most)), most
    return replace(training, parameters=float(most), active=float(most)), most


def duration(training: Training) -> Answer:
    """Return the time of the training, from the devices and the MFU."""
    if training.mfu is not None:
        return training.answer("training", "s", "6 * A * D / (N * C * u)")
    step, formula = training.predicted, "6 * A * D / (N * C)"
    if step is None:
        return training.answer("training", "s", formula, notes=(training.note,))
    fitted = training.tokens / step.tokens_per_second
    low, high = (fitted * end if isfinite(end) else None for end in step.span)
    ends = {"low": low, "high": high} if None not in (low, high) else {}
    return training.answer("training", "s", formula, fitted=fitted, notes=(step.words,), **ends)


def devices_needed(training: Training) -> Answer:
    """Return the devices that end within the days, at the MFU."""
    formula = "ceil(6 * A * D / (86400 * d * C * u))"
    needed = training.answer("devices that end in time", "devices", formula)
    if float(needed) > MOST_DEVICES:
        raise InputError(
            f"--days {training.days:g} at MFU {training.mfu or 1.0:g} asks for "
            f"{float(needed):.3g} devices, more than {MOST_DEVICES:,.0f}: allow more days"
        )
    return needed


def utilization(training: Training) -> Answer:
    """Return the MFU that devices and time, or their product, come to."""
    spent = "3600 * h" if training.device_hours is not None else "86400 * d * N"
    mfu = training.answer("MFU", "", f"6 * A * D / ({spent} * C)")
    above = "above 1: no chip does that; more time, devices or a faster format are needed"
    return replace(mfu, binds=above if float(mfu) > 1 else "")
