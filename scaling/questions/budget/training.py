"""A training as it is budgeted: of parameters, tokens, devices, MFU and time, one is asked for.

time = 6 A D / (N C u)      A parameters that a token uses, D tokens, N devices of C FLOP/s, MFU u
"""

from dataclasses import dataclass, replace
from typing import Literal

from scaling.meshes.accelerator import Accelerator
from scaling.meshes.errors import InputError, check_range
from scaling.questions.answer import Answer, Input, by_formula

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
class Prediction:
    """What the engine predicts for one step on these devices."""

    mfu: float
    tokens_per_second: float
    words: str  # the mesh, and where it comes from


@dataclass(frozen=True)
class Training:
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
    predicted: Prediction | None = None
    note: str = "at the peak: state --mfu for a time that is reached"  # where nothing is predicted
    price: float | None = None  # dollars for a device and hour
    asked: Literal["tokens", "parameters", ""] = ""  # a count that follows from all the others

    def symbols(self) -> tuple[Input, Input, Input]:
        """Return A, D and C."""
        return (
            Input("A", self.active, "parameters", "that a token uses"),
            Input("D", self.tokens, "tokens"),
            Input("C", self.chip.peak(self.dtype), "FLOP/s", f"{self.dtype} peak of a device"),
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
            f"--active {training.active:g} exceeds the {training.parameters:g} parameters"
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
    A, D, C = training.symbols()
    u = Input("u", training.mfu or 1.0, "", "MFU, as given")
    known = A if training.asked == "tokens" else D
    N = Input("N", training.devices or 0, "devices")
    d = Input("d", training.days or 0.0, "days")
    flops, spent = "86400 * d * N * C * u", [d, N]
    if training.device_hours is not None:
        flops = "3600 * h * C * u"
        spent = [Input("h", training.device_hours, "hours", "of all devices")]
    name = "tokens that are trained" if known is A else "parameters that a token may use"
    formula = f"{flops} / (6 * {known.symbol})"
    found = by_formula(name, training.asked, formula, (*spent, C, u, known))
    if known is A:
        return replace(training, tokens=float(found)), found
    return replace(training, parameters=float(found), active=float(found)), found


def duration(training: Training) -> Answer:
    """Return the time of the training, from the devices and the MFU."""
    A, D, C = training.symbols()
    N = Input("N", training.devices or 0, "devices")
    if training.mfu is not None:
        u = Input("u", training.mfu, "", "MFU, as given")
        return by_formula("training", "s", "6 * A * D / (N * C * u)", (A, D, N, C, u))
    found, note = training.predicted, training.note
    fitted = None
    if found is not None:
        fitted, note = training.tokens / found.tokens_per_second, found.words
    return by_formula("training", "s", "6 * A * D / (N * C)", (A, D, N, C), fitted, notes=(note,))


def devices_needed(training: Training) -> Answer:
    """Return the devices that end within the days, at the MFU."""
    A, D, C = training.symbols()
    u = Input("u", training.mfu or 1.0, "", "MFU, as given")
    t = Input("d", training.days or 0.0, "days")
    formula = "ceil(6 * A * D / (86400 * d * C * u))"
    needed = by_formula("devices that end in time", "devices", formula, (A, D, t, C, u))
    if float(needed) > MOST_DEVICES:
        raise InputError(
            f"--days {t.value:g} at MFU {u.value:g} asks for {float(needed):.3g} devices, more "
            f"than {MOST_DEVICES:,.0f}: allow more days"
        )
    return needed


def utilization(training: Training) -> Answer:
    """Return the MFU that devices and time, or their product, come to."""
    A, D, C = training.symbols()
    if training.device_hours is not None:
        h = Input("h", training.device_hours, "hours", "of all devices")
        found = by_formula("MFU", "", "6 * A * D / (3600 * h * C)", (A, D, h, C))
    else:
        N = Input("N", training.devices or 0, "devices")
        d = Input("d", training.days or 0.0, "days")
        found = by_formula("MFU", "", "6 * A * D / (86400 * d * N * C)", (A, D, d, N, C))
    above = "above 1: no chip does that; more time, devices or a faster format are needed"
    return replace(found, binds=above if float(found) > 1 else "")
