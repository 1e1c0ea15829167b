"""The answer to `scaling budget`: time, devices or MFU, and what they come to."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from scaling.meshes.formula import symbols
from scaling.meshes.units import format_count
from scaling.profiles.power import Ranged, combined, device_watts, power_file
from scaling.questions.answer import Answer, Input, by_formula, number
from scaling.questions.budget.failures import Reliability, failure_answers
from scaling.questions.budget.training import (
    DAY,
    HOUR,
    SECTION,
    Training,
    check_training,
    counted,
    devices_needed,
    duration,
    utilization,
)

STATES, FEWEST = "weights and optimizer", "fewest devices for weights and optimizer"


@dataclass(frozen=True)
class SpentTime:
    """A time in seconds, or hours of all devices: by the formula, and as predicted."""

    ideal: float
    fitted: float | None = None

    def times(self, factor: float) -> "SpentTime":
        """Return it multiplied."""
        return SpentTime(self.ideal * factor, None if self.fitted is None else self.fitted * factor)

    def answer(
        self, training: Training, name: str, unit: str, formula: str, *others: Input, **more: Any
    ) -> Answer:
        """Return what follows from it as the letter t, or h for hours, of a formula."""
        letter = Input("t", self.ideal, "s", "of training")
        if "h" in symbols(formula):
            letter = Input("h", self.ideal, "hours", "of all devices")
        fitted = None if self.fitted is None else {letter.symbol: self.fitted}
        return training.answer(name, unit, formula, letter, *others, fitted=fitted, **more)


def budget(training: Training, reliability: Reliability | None = None) -> Answer:
    """Return what was left out of what a training takes; parts are all that follows.

    Raises:
        InputError: figures that no training has, or more of them than are free.
    """
    if training.asked == "tokens" and training.is_timeless:
        return _only_states(training)
    check_training(training)
    solved = None
    if training.asked:
        training, solved = counted(training)
    main, count, time = _main(training)
    main = solved or main
    done = replace(training, devices=count)
    parts = [training.answer("FLOPs", "FLOPs", "6 * A * D")]
    if training.token_flops is not None:
        parts.append(training.answer("model FLOPs, as MFU counts them", "FLOPs", "f * D"))
    parts += states(done)
    if training.predicted is not None and main.fitted is not None:
        parts.append(Answer("MFU", training.predicted.mfu, fitted=training.predicted.mfu))
    hours = SpentTime(training.device_hours) if training.device_hours else None
    failures: list[Answer] = []
    if count and time is not None:
        hours = time.times(count / HOUR)
        parts += _steps(done, count, time)
        parts.append(time.answer(done, "device hours", "hours", "N * t / 3600"))
        state = training.parameters * training.state_bytes
        how = reliability or Reliability()
        failures = failure_answers(how, count, (time.ideal, time.fitted), state)
    parts += [*(energy_and_money(training, hours) if hours else []), *failures]
    parts += with_failures(parts, failures)
    size = f"{training.name} of {format_count(training.parameters)} parameters"
    name = f"{size}, {format_count(training.tokens)} tokens on {training.chip.title}"
    return replace(main, section=SECTION, parts=tuple(parts), notes=(*main.notes, name))


def _main(training: Training) -> tuple[Answer, int | None, SpentTime | None]:
    """Return the answer, the devices, and the time; None of both where nobody says."""
    count, hours, days = training.devices, training.device_hours, training.days
    if hours is not None:
        return utilization(training), count, SpentTime(hours * HOUR / count) if count else None
    if days is not None and count:
        return utilization(training), count, SpentTime(days * DAY)
    if days is not None:
        needed = devices_needed(training)
        count = int(float(needed))
        time = duration(replace(training, devices=count))
        return needed, count, SpentTime(float(time))
    time = duration(training)
    fitted = None if time.fitted is None else float(time.fitted)
    return time, count, SpentTime(number(time, True), fitted)


def _only_states(training: Training) -> Answer:
    """Return what weights and optimizer need, where nobody says how long the training is."""
    parts = {part.name: part for part in states(training)}
    first = parts.pop(FEWEST, None) or parts.pop(STATES)
    notes = ("state --tokens, such as 15T, or --samples, to ask for the time",)
    return replace(first, section=SECTION, parts=tuple(parts.values()), notes=notes)


def states(training: Training) -> list[Answer]:
    """Return what weights and optimizer take, and how many devices hold them."""
    parts = [training.answer(what := STATES, "bytes", "P * b")]
    if training.chip.memory is not None:
        parts += [
            training.answer(f"devices that {what} fill", "devices", "P * b / H"),
            training.answer(FEWEST, "devices", "ceil(P * b / H)"),
            training.answer("largest model of one device", "parameters", "H / b"),
        ]
    count = training.shards or training.devices
    if not count:
        return parts
    K = Input("K", training.parameters * training.state_bytes, "bytes", f"of {what}")
    S = Input("S", count, "devices", "that share one copy" if training.shards else "")
    short = training.chip.memory is not None and K.value / count > training.chip.memory
    binds = "memory: it does not fit" if short else ""
    return [*parts, training.answer(f"{what} on a device", "bytes", "K / S", K, S, binds=binds)]


def _steps(training: Training, count: int, time: SpentTime) -> list[Answer]:
    """Slices, and what a step of the batch is."""
    slice_devices = training.slice_devices or 0
    parts = [training.answer("slices", "", "N / Z")] if slice_devices else []
    if training.batch is None:
        return parts
    parts.append(training.answer("tokens of a device", "tokens", "B / N"))
    if 0 < slice_devices < count:
        parts.append(training.answer("tokens of a slice", "tokens", "B * Z / N"))
    parts.append(training.answer("steps", "steps", "D / B"))
    return [*parts, time.answer(training, "step", "s", "t * B / D")]


def energy_and_money(training: Training, hours: SpentTime) -> list[Answer]:
    """Return kWh of devices, hosts and building while they train, and dollars of both."""
    chip, step, price = training.chip, training.predicted, training.price
    used = hours.ideal if hours.fitted is None else hours.fitted
    spent = Ranged(1.0, *(step.span if step else (1.0, 1.0))).times(used)
    known = lambda end, value: end if isfinite(end) and end != value else None
    ranged = lambda part, all_of: replace(
        part, low=known(all_of.low, all_of.value), high=known(all_of.high, all_of.value)
    )
    if chip.power is None:
        parts = [Answer("energy", None, "kWh", binds=f"the catalogue has no power of {chip.name}")]
    else:
        file, most = power_file(), chip.power
        mfu = training.mfu if training.mfu is not None else step.mfu if step else 1.0
        board = (step and step.watts) or float(file.board.power(most, mfu).total)
        watts = device_watts(board, most, training.nodes, training.pue)
        beside = device_watts(0.0, most, training.nodes, 1.0).value
        q = Input("q", watts.value / (board + beside), "", "building over machines (PUE)")
        o = Input("o", beside, "W", "of host and network for a device")
        notes = (f"boards: {file.board.evidence}", f"hosts: {file.host.source}", file.pue.source)
        figures = {"w": board, **({} if hours.fitted is None else {"h": hours.fitted})}
        h = Input("h", hours.ideal, "hours", "of all devices")
        formula = "h * (w + o) * q / 1000"
        energy = training.answer("energy", "kWh", formula, h, o, q, fitted=figures, notes=notes)
        dollars, stated = file.dollars_per_kwh, training.dollars_per_kwh
        k = Input("k", dollars.value if stated is None else stated, "dollars", "for a kWh")
        e = Input("e", float(energy), "kWh")
        c = Input("c", file.carbon.value, "kg", "of CO2 equivalent for a kWh")
        source = ("the price is given" if stated is not None else dollars.source,)
        parts = [
            Answer("power of a board", board, "W", ideal=most, fitted=board),
            ranged(energy, combined(spent, watts.times(1e-3))),
            by_formula("electricity", "dollars", "e * k", (e, k), notes=source),
            by_formula("emissions", "kg", "e * c", (e, c), notes=(file.carbon.source,)),
        ]
    if price is None:
        why = f"nobody states a price of {chip.name}: give --price"
        return [*parts, Answer("money", None, "dollars", binds=why)]
    p, said = price.input(chip), (price.words, price.source)
    money = hours.answer(training, "money", "dollars", "h * p", p, notes=said)
    hourly = Ranged(price.default, price.low, price.high)
    return [*parts, ranged(money, combined(spent, hourly))]


def with_failures(parts: Iterable[Answer], failures: Sequence[Answer]) -> list[Answer]:
    """Return device hours, energy and money of a training that fails and starts again."""
    found = {part.name: part for part in failures}
    if not found or not float(found["goodput"]):
        return []
    g = Input("g", float(found["goodput"]), "", "goodput")
    again = []
    for part in parts:
        if part.name in ("device hours", "energy", "money") and part.answer is not None:
            v = Input("v", float(part), part.unit, "without failures")
            name = f"{part.name} with failures"
            low, high = (end and float(end) / g.value for end in (part.low, part.high))
            again.append(by_formula(name, part.unit, "v / g", (v, g), low=low, high=high))
    return again
