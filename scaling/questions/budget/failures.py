"""What failures cost: how many, how often to save, and the share of the time that trains.

    Young (1974)   tau = sqrt(2 s M)
    Daly (2006)    tau = sqrt(2 s M) (1 + sqrt(s / 2M) / 3 + (s / 2M) / 9) - s        for s < 2 M
    goodput        tau / (M e^(r / M) (e^((tau + s) / M) - 1))

with M between failures, s to save, r to start again.
J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9); J. T.
Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3).
Failures come at random, one of any device ends the step of all.
"""

from dataclasses import dataclass
from functools import lru_cache

from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Input, by_formula

# 419 unexpected interruptions in 54 days on 16,384 H100: arXiv 2407.21783, section 3.3.4.
LLAMA3_FAILURES, LLAMA3_DAYS, LLAMA3_DEVICES = 419, 54, 16_384
MTBF_HOURS = LLAMA3_DEVICES * LLAMA3_DAYS * 24 / LLAMA3_FAILURES  # of one device: 50,677
# bytes/s that the file system of the same training sustains: section 3.3.1.
STORAGE = 2e12

MOST_LOST = 50  # restarts of so many times the time between failures leave e^-50 of the time


@dataclass(frozen=True)
class Reliability:
    """How often a device fails, and what a save and a start take."""

    mtbf_hours: float | None = None  # of one device; None: as in Llama 3's training
    save_seconds: float | None = None  # None: all of the state at STORAGE
    restart_seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value, least in (
            ("--mtbf-hours", self.mtbf_hours, 1e-6),
            ("--save-seconds", self.save_seconds, 1e-6),
            ("--restart-seconds", self.restart_seconds, 0.0),
        ):
            if value is not None and not least <= value <= 1e12:
                raise InputError(f"{name} {value:g} must be from {least:g} to 1e12")


@lru_cache(maxsize=1024)
def goodput(reliability: Reliability, devices: int, state: float) -> tuple[float | None, float]:
    """Return seconds between saves, and the share of the time that trains; None: nothing trains."""
    parts = failure_answers(reliability, devices, (1.0, None), state)
    found = {part.name: float(part) for part in parts}
    return found.get("checkpoint interval, Daly"), found["goodput"]


def failure_answers(
    reliability: Reliability, devices: int, seconds: tuple[float, float | None], state: float
) -> list[Answer]:
    """Return the time between failures, their number, the interval of saves, and the goodput.

    Args:
        seconds: of the training without failures, by the formula and as predicted.
        state: bytes that a save writes.
    """
    hours = reliability.mtbf_hours or MTBF_HOURS
    F = Input("F", hours, "hours", "between two failures of one device")
    N = Input("N", devices, "devices")
    source = "as in Llama 3's training: 419 interruptions in 54 days on 16,384 H100"
    notes = () if reliability.mtbf_hours else (source,)
    between = by_formula("time between failures", "s", "3600 * F / N", (F, N), notes=notes)
    M = Input("M", float(between), "s", "between two failures")
    time, predicted = seconds
    t = Input("t", time, "s", "of training")
    over = lambda number: None if predicted is None else predicted / number
    parts = [between, by_formula("failures", "", "t / M", (t, M), over(M.value))]
    save = Answer("save", reliability.save_seconds, "s", ideal=reliability.save_seconds)
    if reliability.save_seconds is None:
        K = Input("K", state, "bytes", "of parameters and optimizer")
        S = Input("S", STORAGE, "bytes/s", "of the file system of Llama 3's training")
        save = by_formula("save", "s", "K / S", (K, S))
    s = Input("s", float(save), "s", "of a save")
    parts += [save, by_formula("checkpoint interval, Young", "s", "sqrt(2 * s * M)", (s, M))]
    if s.value >= 2 * M.value or reliability.restart_seconds > MOST_LOST * M.value:
        why = "saves or starts take longer than the time between failures: nothing is trained"
        return [*parts, Answer("goodput", 0.0, ideal=0.0, binds=why)]
    formula = "sqrt(2 * s * M) * (1 + sqrt(s / (2 * M)) / 3 + s / (2 * M) / 9) - s"
    parts.append(by_formula("checkpoint interval, Daly", "s", formula, (s, M)))
    tau = Input("tau", float(parts[-1]), "s", "between saves, by Daly")
    r = Input("r", reliability.restart_seconds, "s", "to train again after a failure")
    formula = "tau / (M * exp(r / M) * (exp((tau + s) / M) - 1))"
    goodput = by_formula("goodput", "", formula, (tau, M, r, s))
    g = Input("g", float(goodput), "", "goodput")
    name = "training with failures"
    return [*parts, goodput, by_formula(name, "s", "t / g", (t, g), over(g.value))]
