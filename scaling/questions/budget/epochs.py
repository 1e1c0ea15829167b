"""A training by its data: epochs of so many samples, in batches, at a step time that was measured.

time = e ceil(S / s) t      e epochs of S samples, s of them in a step, t seconds of a step

Twice the batch is half the steps: a step may take twice as long, and the epoch as long as before.
"""

from dataclasses import dataclass, replace

from scaling.meshes.errors import InputError
from scaling.questions.answer import Answer, Input, by_formula, letters
from scaling.questions.budget.answer import SpentTime, energy_and_money, states, with_failures
from scaling.questions.budget.failures import Reliability, failure_answers
from scaling.questions.budget.training import HOUR, SECTION, Training, check_training


@dataclass(frozen=True)
class Epochs:
    """What is seen how often, and what a step takes."""

    samples: float  # of an epoch; or tokens, where `what` says so
    batch: float  # of a step, in the same
    step_time: float  # s, as measured
    epochs: float = 1.0
    what: str = "samples"  # or "tokens"

    def __post_init__(self) -> None:
        if self.batch > self.samples:
            raise InputError(
                f"--batch {self.batch:g} is more than an epoch has: {self.samples:g} {self.what}"
            )


def by_epochs(
    epochs: Epochs,
    training: Training,
    devices: int,
    reliability: Reliability | None,
    has_model: bool,
) -> Answer:
    """Return the time of the training; parts are an epoch, steps, rate, MFU, energy and money.

    Args:
        training: its chip, prices and machines; its tokens count with `has_model`, its parameters
            also where failures are asked and no time of a save is stated.
        reliability: how often devices fail; None: no failures are asked, where no state is known.
    """
    check_training(training)
    given = letters(
        Input("e", epochs.epochs, "epochs"),
        Input("S", epochs.samples, epochs.what, "of an epoch"),
        Input("s", epochs.batch, epochs.what, "of a step"),
        Input("t", epochs.step_time, "s", "of a step, as measured"),
        Input("N", devices, "devices"),
        training.letters["f"],
        training.letters["C"],
        Input("D", training.tokens / (epochs.epochs * epochs.samples), "tokens", "of a sample"),
    )
    main = by_formula("training", "s", "e * ceil(S / s) * t", given, section=SECTION)
    parts = [
        by_formula("an epoch", "s", "ceil(S / s) * t", given),
        by_formula("steps of an epoch", "steps", "ceil(S / s)", given),
        by_formula("steps", "steps", "e * ceil(S / s)", given),
        by_formula(f"{epochs.what} a second", f"{epochs.what}/s", "s / t", given),
    ]
    if has_model:
        mfu = by_formula("MFU", "", "f * D * s / (N * C * t)", given)
        above = "above 1: no chip does that; the step, the batch or the devices are not these"
        parts.append(replace(mfu, binds=above if float(mfu) > 1 else ""))
        training = replace(training, mfu=min(1.0, float(mfu)))
        parts += states(training)
    spent = SpentTime(float(main) * devices / HOUR)
    hours = Input("T", float(main), "s", "of training")
    parts.append(by_formula("device hours", "hours", "N * T / 3600", {**given, "T": hours}))
    parts += energy_and_money(training, spent)
    if reliability is not None:
        state = training.parameters * training.state_bytes
        failures = failure_answers(reliability, devices, (float(main), None), state)
        parts += [*failures, *with_failures(parts, failures)]
    return replace(main, parts=tuple(parts))
