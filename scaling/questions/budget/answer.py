"""The answer to `scaling budget`: time, devices or MFU, and what they come to."""

from dataclasses import dataclass, replace
from typing import Any

from scaling.questions.answer import Answer, Input, by_formula
from scaling.questions.budget.failures import Reliability, failure_answers
from scaling.questions.budget.training import (
    DAY,
    HOUR,
    MIXED_BYTES,
    SECTION,
    Training,
    check_training,
    counted,
    devices_needed,
    duration,
    utilization,
)
from scaling.questions.formula import evaluate
from scaling.questions.prices import price_of

TIME, HOURS = ("s", "of training"), ("hours", "of all devices")


@dataclass(frozen=True)
class Span:
    """A time in seconds, or hours of all devices: by the formula, and as predicted."""

    ideal: float
    fitted: float | None = None

    def times(self, factor: float) -> "Span":
        """Return it multiplied."""
        return Span(self.ideal * factor, None if self.fitted is None else self.fitted * factor)


def budget(training: Training, reliability: Reliability | None = None) -> Answer:
    """Return what was left out of what a training takes; parts are all that follows.

    Raises:
        InputError: figures that no training has, or more of them than are free.
    """
    check_training(training)
    solved = None
    if training.asked:
        training, solved = counted(training)
    main, count, time = _main(training)
    main = solved or main
    hours = Span(training.device_hours) if training.device_hours else None
    done = replace(training, devices=count)
    parts = [*_flops(training), *_memory(done)]
    if training.predicted is not None and main.fitted is not None:
        parts.append(Answer("MFU", training.predicted.mfu, fitted=training.predicted.mfu))
    if count and time is not None:
        hours = time.times(count / HOUR)
        parts += _steps(done, count, time)
        N = Input("N", count, "devices")
        parts.append(_over(time, "device hours", "hours", "N * t / 3600", "t", (N,), TIME))
    parts += _energy_and_money(training, hours) if hours else []
    if count and time is not None:
        state = training.parameters * training.state_bytes
        how = reliability or Reliability()
        parts += failure_answers(how, count, (time.ideal, time.fitted), state)
    size = f"{training.name} of {training.parameters:.3g} parameters"
    name = f"{size}, {training.tokens:.3g} tokens on {training.chip.title}"
    return replace(main, section=SECTION, parts=tuple(parts), notes=(*main.notes, name))


def _main(training: Training) -> tuple[Answer, int | None, Span | None]:
    """Return the answer, the devices, and the time; None of both where nobody says."""
    count, hours, days = training.devices, training.device_hours, training.days
    if hours is not None:
        return utilization(training), count, Span(hours * HOUR / count) if count else None
    if days is not None and count:
        return utilization(training), count, Span(days * DAY)
    if days is not None:
        needed = devices_needed(training)
        count = int(float(needed))
        return needed, count, Span(float(duration(replace(training, devices=count))))
    found = duration(training)
    fitted = None if found.fitted is None else float(found.fitted)
    return found, count, Span(float(found.ideal or 0.0), fitted)


def _over(
    span: Span,
    name: str,
    unit: str,
    formula: str,
    symbol: str,
    others: tuple[Input, ...],
    meaning: tuple[str, str],
    **more: Any,
) -> Answer:
    """Return an answer that follows from a time, by the formula's and by the predicted one."""
    inputs = (Input(symbol, span.ideal, *meaning), *others)
    values = {i.symbol: i.value for i in inputs}
    fitted = None
    if span.fitted is not None:
        fitted = evaluate(formula, {**values, symbol: span.fitted})
    return by_formula(name, unit, formula, inputs, fitted, **more)


def _flops(training: Training) -> list[Answer]:
    A, D, _ = training.symbols()
    parts = [by_formula("FLOPs", "FLOPs", "6 * A * D", (A, D))]
    if training.token_flops is not None:
        f = Input("f", training.token_flops, "FLOPs", "of a token, attention included")
        name = "model FLOPs, as MFU counts them"
        parts.append(by_formula(name, "FLOPs", "f * D", (f, D)))
    return parts


def _memory(training: Training) -> list[Answer]:
    """Weights and optimizer against the memory of a device."""
    P = Input("P", training.parameters, "parameters")
    meaning = f"of a parameter with its optimizer; {MIXED_BYTES:g} with fp32 weights"
    b = Input("b", training.state_bytes, "bytes", meaning)
    what = "weights and optimizer"
    parts = [by_formula(what, "bytes", "P * b", (P, b))]
    if training.chip.memory is not None:
        H = Input("H", training.chip.memory, "bytes", "of memory on a device")
        parts += [
            by_formula(f"devices that {what} fill", "devices", "P * b / H", (P, b, H)),
            by_formula(f"fewest devices for {what}", "devices", "ceil(P * b / H)", (P, b, H)),
            by_formula("largest model of one device", "parameters", "H / b", (H, b)),
        ]
    count = training.shards or training.devices
    if not count:
        return parts
    K = Input("K", training.parameters * training.state_bytes, "bytes", f"of {what}")
    meaning = "that share one copy" if training.shards else ""
    S = Input("S", count, "devices", meaning)
    short = training.chip.memory is not None and K.value / count > training.chip.memory
    binds = "memory: it does not fit" if short else ""
    return [*parts, by_formula(f"{what} on a device", "bytes", "K / S", (K, S), binds=binds)]


def _steps(training: Training, count: int, time: Span) -> list[Answer]:
    """Slices, and what a step of the batch is."""
    N = Input("N", count, "devices")
    Z = Input("Z", training.slice_devices or 0, "devices", "of the largest slice")
    parts = [by_formula("slices", "", "N / Z", (N, Z))] if Z.value else []
    if training.batch is None:
        return parts
    B = Input("B", training.batch, "tokens", "of a step")
    D = Input("D", training.tokens, "tokens")
    parts.append(by_formula("tokens of a device", "tokens", "B / N", (B, N)))
    if 0 < Z.value < count:
        parts.append(by_formula("tokens of a slice", "tokens", "B * Z / N", (B, Z, N)))
    parts.append(by_formula("steps", "steps", "D / B", (D, B)))
    return [*parts, _over(time, "step", "s", "t * B / D", "t", (B, D), TIME)]


def _energy_and_money(training: Training, hours: Span) -> list[Answer]:
    parts = []
    if training.chip.power is None:
        why = f"the catalogue has no power of {training.chip.name}"
        parts.append(Answer("energy", None, "kWh", binds=why))
    else:
        w = Input("w", training.chip.power, "W", "most that a board draws")
        notes = ("without hosts, network and cooling",)
        formula = "h * w / 1000"
        parts.append(_over(hours, "energy", "kWh", formula, "h", (w,), HOURS, notes=notes))
    price = price_of(training.chip, training.price)
    if price is not None:
        p, source = price
        parts.append(_over(hours, "money", "dollars", "h * p", "h", (p,), HOURS, notes=(source,)))
    return parts
