"""A prediction as a page of text: where the step goes, what is held, what binds, what to try.

llama3-70b on fsdp=64,tensor=8 of dgx-h100, 512 devices, compiled program, datasheet figures
step 17.5 s (13.5 s to 22.8 s), 240,000 tokens/s, MFU 45.2%, HFU 45.2%
"""

from scaling.report.advice import advice
from scaling.report.columns import columns
from scaling.report.formatting import memory_words, percent, size_words, three_digits, time_words
from scaling.run import Run
from scaling.simulate.prediction import CollectiveLine, MemoryParts, Prediction

TIME_WORDS = {
    "compute": "compute",
    "optimizer": "optimizer",
    "exposed_communication": "waiting for communication",
    "bubble": "pipeline bubble",
    "host": "waiting for the host",
}
OWNERS = (
    "parameters",
    "gradients",
    "optimizer_state",
    "activations",
    "temporary",
    "communication",
)
MOST_LINES = 12  # collectives that the table shows


def page(prediction: Prediction, where: str, run: Run | None = None) -> str:
    """The whole page, of a prediction of one configuration.

    Args:
        prediction: what to show.
        where: mesh and cluster, in words.
        run: whose step it is, for the advice at the end.
    """
    parts = [
        _headline(prediction, where),
        _time(prediction),
        _memory(prediction.memory),
        _collectives(prediction),
        f"bottleneck: {prediction.bottleneck}",
        *(f"warning: {text}" for text in prediction.warnings),
        *(f"next: {text}" for text in advice(prediction, run)),
    ]
    return "\n".join(part for part in parts if part)


def _headline(prediction: Prediction, where: str) -> str:
    low, high = time_words(prediction.step_time_low), time_words(prediction.step_time_high)
    figures = [f"step {time_words(prediction.step_time)} ({low} to {high})"]
    if prediction.tokens_per_second is not None:
        figures.append(f"{three_digits(prediction.tokens_per_second)} tokens/s")
    for name, share in (("MFU", prediction.mfu), ("HFU", prediction.hfu)):
        if share is not None:
            figures.append(f"{name} {percent(share)}")
    of = f"{prediction.source} program, {prediction.grade} figures"
    return f"{prediction.name} on {where}, {of}\n" + ", ".join(figures)


def _time(prediction: Prediction) -> str:
    total = prediction.step_time or 1.0  # of a step in which nothing happens no row is shown
    rows = [
        (f"  {words}", time_words(seconds), percent(seconds / total))
        for name, words in TIME_WORDS.items()
        if (seconds := getattr(prediction.time, name)) > 0
    ]
    hidden = prediction.time.hidden_communication
    lines = ["time", *columns(rows)]
    if hidden > 0:
        lines.append(f"  ({time_words(hidden)} of communication is hidden beside compute)")
    return "\n".join(lines)


def _memory(memory: MemoryParts) -> str:
    held = [(name.replace("_", " "), getattr(memory, name)) for name in OWNERS]
    rows = [(f"  {name}", memory_words(size)) for name, size in held if size > 0]
    if memory.capacity is None:
        verdict = "on each device, capacity not known"
    else:
        state = "fits" if memory.fits else "DOES NOT FIT"
        verdict = f"of {memory_words(memory.capacity)} usable: {state}"
    return "\n".join([f"memory {memory_words(memory.peak)} {verdict}", *columns(rows)])


def _collectives(prediction: Prediction) -> str:
    if not prediction.collectives:
        return ""
    head = ("  collective", "a call", "calls", "time", "exposed", "level")
    shown, rest = prediction.collectives[:MOST_LINES], prediction.collectives[MOST_LINES:]
    lines = ["collectives", *columns([head, *map(_collective, shown)], left=(0, 5))]
    if rest:
        seconds = time_words(sum(line.time for line in rest))
        waits = time_words(sum(line.exposed for line in rest))
        lines.append(f"  and {len(rest)} more, {seconds} together, {waits} of it exposed")
    return "\n".join(lines)


def _collective(line: CollectiveLine) -> tuple[str, ...]:
    return (
        f"  {line.kind}[{line.axis}] {line.dtype}",
        size_words(line.bytes),
        f"{line.count:,.0f}",
        time_words(line.time),
        time_words(line.exposed) if line.exposed > 0 else "-",
        line.level,
    )
