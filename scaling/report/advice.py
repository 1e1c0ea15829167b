"""What to try next, from a prediction: the most promising first."""

import math

from scaling.meshes.rules import divisors
from scaling.run import Run
from scaling.simulate.prediction import CollectiveLine, MemoryParts, Prediction

MUCH = 1 / 3  # share of the step, or of the memory, that is worth acting on
CHEAPER = {"full": "selective", "selective": "none"}  # remat policies that recompute less
LEANER = {"none": "selective", "selective": "full"}


def advice(prediction: Prediction, run: Run | None) -> list[str]:
    """Sentences for the end of a page; none for a step that is not ours (run=None)."""
    if run is None:
        return []
    if prediction.memory.fits is False:
        return _less_memory(prediction.memory, run)
    waiting = float(prediction.time.exposed_communication) / float(prediction.step_time or 1.0)
    if waiting > MUCH:
        return [_less_waiting(max(prediction.collectives, key=lambda line: line.exposed), run)]
    room = _room(prediction.memory)
    if run.remat in CHEAPER and room > MUCH:
        return [f"remat {CHEAPER[run.remat]!r} recomputes less; {room:.0%} of the memory is free"]
    if prediction.bottleneck.startswith("overhead"):
        return ["give each device more to do: a larger batch.global_batch, or fewer devices"]
    return ["--trace OUT.json shows every kernel and collective on a timeline (ui.perfetto.dev)"]


def _less_memory(memory: MemoryParts, run: Run) -> list[str]:
    """How to need less, by what needs most: what lasts, or what a microbatch needs."""
    lasting = float(memory.parameters + memory.gradients + memory.optimizer_state)
    room = float(memory.capacity or 0.0) - lasting - float(memory.communication)
    if room <= 0:
        return ["shard parameters and optimizer state further: a larger fsdp or tensor axis"]
    passing = float(memory.activations + memory.temporary)
    pieces = _microbatches(run, passing / room)
    found = []
    if run.remat in LEANER:
        found.append(f"remat {LEANER[run.remat]!r} keeps fewer activations")
    if pieces:
        found.append(
            f"about {pieces} batch.microbatches (now {run.batch.microbatches}): activations and "
            "temporaries are those of one"
        )
    else:
        found.append("a smaller batch.global_batch or batch.seq_len, or a larger tensor axis")
    return found


def _microbatches(run: Run, times: float) -> int | None:
    """The next possible number that is `times` as large; None if there are too few sequences."""
    shards = run.mesh.batch_shards if run.mesh else 1
    least = math.ceil(run.batch.microbatches * times)
    local = run.batch.global_batch // shards
    return next((n for n in divisors(local) if n >= least), None)


def _less_waiting(line: CollectiveLine, run: Run) -> str:
    axes = line.axis.split("+")
    if "tensor" in axes and line.level not in ("chip", "node"):
        return "keep tensor inside a node: a smaller tensor axis, or the last one in --device-order"
    if "fsdp" in axes and run.batch.microbatches > 1:
        return (
            f"fewer batch.microbatches than {run.batch.microbatches}: every one gathers all weights"
        )
    if "fsdp" in axes or "data" in axes:
        return (
            "more tokens on each device: a larger batch.global_batch, or a larger tensor axis "
            "inside the node"
        )
    return "a smaller tensor axis, with more fsdp"


def _room(memory: MemoryParts) -> float:
    """Share of the memory that is free."""
    return 1 - float(memory.peak) / memory.capacity if memory.capacity else 0.0
