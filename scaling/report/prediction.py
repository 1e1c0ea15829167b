"""A prediction as a page of text: where the step goes, memory, collectives, bottleneck, warnings.

llama3-70b on fsdp=64,tensor=8 of dgx-h100, 512 devices, compiled program, datasheet figures
step 17.5 s (13.5 s to 22.8 s), 240,000 tokens/s, MFU 45.2% (full attention; --causal-flops ...
"""

import shlex
from collections.abc import Sequence

from scaling.meshes.catalog.figures import PEAKS
from scaling.meshes.units import (
    format_calls,
    format_memory,
    format_range,
    format_size,
    format_time,
    percent,
    three_digits,
)
from scaling.report.formatting import columns
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import (
    Conditional,
    MemoryParts,
    Prediction,
    UnknownPart,
)

TIME_TERMS = {
    "compute": "compute",
    "optimizer": "optimizer",
    "exposed_communication": "waiting for communication",
    "bubble": "pipeline bubble",
    "host": "waiting for the host",
}
MOST_LINES = 12  # collectives that the table shows
NAMED = 0.01  # of the step: conditionals whose branches differ by less are in the document alone
FULL = "full attention; --causal-flops halves its part"
ABOVE_GIVEN = "MFU is above HFU: the program has fewer FLOPs of products than the model FLOPs given"
CAUSAL = "causal attention"
GIVEN = "of the model FLOPs given"
ABOVE_PEAK = (
    "MFU is above 100%: the step is priced faster than the chip's stated peak; its calibration may "
    "have been made while it was busy: run `scaling calibrate` again"
)
ABOVE_HFU = (
    "MFU is above HFU: model FLOPs count every attention score, the program skips masked ones"
)


def page(prediction: Prediction, where: str, work: str = "", notes: Sequence[str] = ()) -> str:
    """The page of a prediction of one configuration.

    `where` names its mesh and cluster, `work` what a step does and what it is compared with,
    `notes` how its program was made.
    """
    parts = [
        _headline(prediction, where, work),
        _time(prediction),
        _memory(prediction),
        _collectives(prediction),
        *(f"note: {text}" for text in notes),
        f"bottleneck: {prediction.bottleneck}",
        *(f"warning: {text}" for text in prediction.warnings),
    ]
    return "\n".join(part for part in parts if part)


def _headline(prediction: Prediction, where: str, work: str) -> str:
    tokens, mfu, hfu = rate_words(prediction)
    memory, causal = prediction.memory, prediction.causal_flops
    convention = {None: GIVEN, True: CAUSAL, False: FULL}[causal]
    figures = [f"step {step_words(prediction)}"]
    figures += [f"{tokens} tokens/s"] * bool(tokens)
    figures += [f"MFU {mfu} ({convention})"] * bool(mfu)
    figures += [f"HFU {hfu}"] * bool(hfu)
    source = f", {prediction.source} program, {prediction.grade} figures"
    if memory.fits is False:
        sizes = f"{format_memory(memory.peak)} of {format_memory(memory.capacity or 0.0)}"
        source = f": DOES NOT FIT, {sizes}; {source[2:]}"
    lines = [f"{prediction.name} on {where}{source}", work, ", ".join(figures)]
    if hfu and (prediction.mfu or 0.0) > (prediction.hfu or 0.0):
        lines.append(ABOVE_GIVEN if causal is None else ABOVE_HFU)
    lines += [ABOVE_PEAK] * ((prediction.mfu or 0.0) > 1)
    lines += [prediction.evidence, *open_lines(prediction)]
    return "\n".join(filter(None, lines))


def step_words(prediction: Prediction, each: str = "") -> str:
    """`17.5 s (13.5 s to 22.8 s)`; `at least 13.5 s` of a step with a part that nobody can price.

    `each` stands after the figure.
    """
    low, high = prediction.step_time_low, prediction.step_time_high
    if prediction.unknown:
        return f"at least {format_time(low)}{each}"
    return f"{format_time(prediction.step_time)}{each} ({format_range(low, high)})"


def rate_words(prediction: Prediction) -> tuple[str, str, str]:
    """Tokens/s, MFU and HFU, each "" where it is not known.

    For a step with a part that nobody can price they are at most what its low end gives; the FLOPs
    of such a part are not counted.
    """
    low, is_open = prediction.step_time_low, bool(prediction.unknown)
    faster = float(prediction.step_time / low) if is_open and low else 1.0
    words = [
        "" if rate is None else f"{'at most ' * is_open}{show(faster * rate)}"
        for rate, show in ((prediction.tokens_per_second, three_digits), (prediction.mfu, percent))
    ]
    hfu = "" if prediction.hfu is None or is_open else percent(prediction.hfu)
    return words[0], words[1], hfu


def open_lines(prediction: Prediction) -> list[str]:
    """What of the step nobody can price or knows, and what the caller may say about it."""
    least = NAMED * prediction.step_time
    return [_unknown(part) for part in prediction.unknown] + [
        _conditional(part)
        for part in prediction.conditionals
        if part.longest - part.shortest >= least > 0
    ]


def _conditional(part: Conditional) -> str:
    each = ", ".join(format_time(float(seconds)) for seconds in part.branches)
    if part.shares:
        shares = ", ".join(map(percent, part.shares))
        return (
            f"given: the conditional at {part.place} takes its branches in {shares} of its runs; "
            f"always taken, they would be {each} a step"
        )
    said, which = "0.1", "the share of its runs with a true condition"
    if len(part.branches) != 2:
        said, which = "SHARE,SHARE", "the share of each branch"
    return (
        f"assumed: the conditional at {part.place} takes its longest branch, "
        f"{format_time(float(part.longest))} a step; the low end is of its shortest, "
        f"{format_time(float(part.shortest))}: give "
        f"{_option('branches', part.place, said)}, {which} (branches: {each or 'not alike'})"
    )


def _unknown(part: UnknownPart) -> str:
    least = format_time(float(part.time))
    if part.kind == "loop":
        return (
            f"counted once: the loop at {part.name}, {least}; nobody knows how often it runs: "
            f"give {_option('trips', part.name, 'N')}"
        )
    if part.kind == "format":
        key, count = (
            f"peak_{part.name}",
            f"{format_calls(part.calls)} product{'s' * (part.calls != 1)}",
        )
        advice = f": give --override {key}=X" if key in PEAKS else ""
        return f"not priced: {count} in {part.name}, at least {least}; no rate is known{advice}"
    calls = f"{format_calls(part.calls)} call{'s' * (part.calls != 1)}"
    first = part.name.split(", ")[0]
    return (
        f"not priced: {calls} of {part.name}, at least {least}: "
        f"give {_option('local', first, 'FLOPS,FORMAT')}"
    )


def _option(name: str, key: str, value: str) -> str:
    """`--trips decode.py:40=N`, as a shell takes it."""
    return f"--{name} {shlex.quote(f'{key}={value}')}"


def _time(prediction: Prediction) -> str:
    total = prediction.step_time or 1.0  # of a step in which nothing happens no row is shown
    rows = [
        (f"  {words}", format_time(seconds), percent(seconds / total))
        for name, words in TIME_TERMS.items()
        if (seconds := getattr(prediction.time, name)) > 0
    ]
    hidden = prediction.time.hidden_communication
    lines = ["time of what is priced" if prediction.unknown else "time", *columns(rows)]
    if hidden > 0:
        lines.append(f"  ({format_time(hidden)} of communication is hidden beside compute)")
    return "\n".join(lines)


def _memory(prediction: Prediction) -> str:
    memory, capacity_source = prediction.memory, prediction.capacity_source
    parts = [(name.replace("_", " "), getattr(memory, name)) for name in ON_DEVICE]
    rows = [(f"  {name}", format_memory(size)) for name, size in parts if size > 0]
    lines = [f"memory {verdict(memory)}", *columns(rows)]
    if capacity_source:
        lines.append(f"  (capacity: {capacity_source})")
    if (on_host := float(memory.host_needed)) > 0:
        room = "how much it has is not known: --override host_memory=2TB says it"
        if memory.host_capacity is not None:
            room = f"of {format_memory(memory.host_capacity)}"
        each = format_memory(float(memory.pinned_host))
        lines.append(f"  (on the host: {each} of each device, {format_memory(on_host)}, {room})")
    if memory.in_use is not None:
        lines.append(f"  (the driver shows {format_memory(memory.in_use)} in use)")
    if (calls := prediction.hidden_calls) and prediction.is_crowded:
        lines.append(
            f"  (XLA hides {calls.hidden} of {calls.every} collectives: so near the capacity it "
            "schedules for memory)"
        )
    return "\n".join(lines)


def verdict(memory: MemoryParts) -> str:
    """`12 GB of 78.1 GB: fits`; of PyTorch, with what probability and margin."""
    if memory.capacity is None:
        return f"{format_memory(memory.peak)} on each device, capacity not known"
    state = "fits" if memory.fits else "DOES NOT FIT"
    if memory.needed is not None and memory.fit_probability is not None:
        spare = memory.capacity - float(memory.needed)
        left = f"{format_memory(abs(spare))} {'to spare' if spare >= 0 else 'missing'}"
        state += f" with {memory.fit_probability:.0%}, {left}"
    return f"{format_memory(memory.peak)} of {format_memory(memory.capacity)}: {state}"


def _collectives(prediction: Prediction) -> str:
    if not prediction.collectives:
        return ""
    head = ("  collective", "a call", "calls", "time", "exposed", "level")
    shown, rest = prediction.collectives[:MOST_LINES], prediction.collectives[MOST_LINES:]
    rows = [
        (
            f"  {line.kind}[{line.axis}] {line.dtype}",
            format_size(line.bytes),
            format_calls(line.count),
            format_time(line.time),
            format_time(line.exposed) if line.exposed > 0 else "-",
            line.level,
        )
        for line in shown
    ]
    lines = ["collectives", *columns([head, *rows], left=(0, 5))]
    if rest:
        seconds = format_time(sum(line.time for line in rest))
        waits = format_time(sum(line.exposed for line in rest))
        lines.append(f"  and {len(rest)} more, {seconds} together, {waits} of it exposed")
    return "\n".join(lines)
