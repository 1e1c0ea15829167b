"""A prediction as data: what `scaling predict --json` prints, key by key.

step_time = compute + optimizer + exposed_communication + bubble + host
peak      = parameters + gradients + optimizer_state + activations + temporary + communication
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from scaling.profiles.grades import Grade
from scaling.profiles.power import BoardPower
from scaling.program.ir import Collective, Number
from scaling.program.serialization import plain


@dataclass(frozen=True)
class TimeParts:
    """Seconds. The first five sum to the step time; hidden communication runs beside them."""

    compute: Number
    optimizer: Number
    exposed_communication: Number
    bubble: Number
    host: Number
    hidden_communication: Number


# Share of the memory from which XLA of jax 0.10.2 may hide next to nothing: no collective of the
# layers of a step of 76.2 of 78.1 GB, 2 of 30 of one of 81.7; most of those below 71 (compiled for
# H100, 2026-11-23).
CROWDED = 0.9

TERMS = tuple(term.name for term in fields(TimeParts))


@dataclass(frozen=True)
class MemoryParts:
    """Bytes of one device at its fullest moment; parameters to communication sum to peak."""

    peak: Number
    parameters: Number
    gradients: Number
    optimizer_state: Number
    activations: Number
    temporary: Number
    communication: Number
    pinned_host: Number
    capacity: float | None  # what a program can allocate; None: not known
    fits: bool | None  # more likely than not
    in_use: Number | None = None  # as nvidia-smi shows it; None: no such driver
    needed: Number | None = None  # of a device by PyTorch, median; None: as XLA plans, the peak
    fit_probability: Number | None = None  # None: capacity is not known
    host_needed: Number = 0.0  # of one host, by all its devices that run the step
    host_capacity: float | None = None  # of one host; None: not known


@dataclass(frozen=True)
class CollectiveLine:
    """All identical calls of one collective, per step and device."""

    kind: str
    axis: str  # see `axis_name`
    bytes: Number  # of one call, as nccl-tests counts
    dtype: str
    count: Number
    time: Number  # s, all calls
    exposed: Number  # s, all calls
    algorithm: str
    level: str
    bottleneck: str


@dataclass(frozen=True)
class HiddenCalls:
    """Collectives of a compiled program, of 64 KiB and more, wherever they stand in its loops."""

    hidden: int  # for half of their time or more
    every: int


@dataclass(frozen=True)
class UnknownPart:
    """All calls of one unknown function, all products in one format, or one loop."""

    kind: Literal["kernel", "loop", "format"]
    name: str  # of the function, of the number format; of a loop the line of code where it stands
    calls: Number  # per step; of a loop 1 each time that it begins
    time: Number  # s per step, at least


@dataclass(frozen=True)
class Conditional:
    """All runs of one conditional, of which the longest branch is assumed without shares."""

    place: str  # the line of code where it stands
    calls: Number  # per step
    shortest: Number  # s per step of its operations one after the other, if that branch is taken
    longest: Number  # likewise
    branches: tuple[Number, ...] = ()  # likewise of each, as the code has them: false, then true
    shares: tuple[float, ...] = ()  # of its runs, as the caller says; (): not known


@dataclass(frozen=True)
class Prediction:
    """A predicted step: the document that `scaling predict --json` prints."""

    name: str
    source: str
    devices: int
    step_time: Number
    step_time_low: Number
    step_time_high: Number  # infinite where a part of the step is not known
    tokens_per_second: Number | None  # None: a step without a run
    tokens_per_second_per_device: Number | None
    model_flops: Number | None
    mfu: Number | None
    hfu: Number | None
    time: TimeParts
    memory: MemoryParts
    collectives: tuple[CollectiveLine, ...]
    bottleneck: str
    grade: Grade
    warnings: tuple[str, ...]
    capacity_source: str = ""  # how `memory.capacity` is made up
    evidence: str = ""  # how far such figures were off, where nobody timed the chip's products
    causal_flops: bool | None = False  # whether model FLOPs leave out masked attention scores;
    # None: they were given as a number
    unknown: tuple[UnknownPart, ...] = ()  # what bounds the step from below only
    conditionals: tuple[Conditional, ...] = ()  # the largest difference first
    power: BoardPower | None = None  # of a board; None: what it draws at most is not known
    hidden_calls: HiddenCalls | None = None  # None: of a closed form, which says what to expect

    @property
    def is_near_limit(self) -> bool:
        """True for a step that takes so much that XLA may schedule for memory, not for time."""
        memory = self.memory
        return memory.capacity is not None and bool(memory.peak > CROWDED * memory.capacity)

    @property
    def is_crowded(self) -> bool:
        """True for a step that XLA had so little memory for that it hides less than half."""
        calls = self.hidden_calls
        return calls is not None and 2 * calls.hidden < calls.every and self.is_near_limit


def prediction_dict(prediction: Prediction) -> dict[str, Any]:
    """The prediction as JSON has it; what is not finite, which JSON cannot say, is null."""
    figures = {f.name: getattr(prediction, f.name) for f in fields(Prediction)}  # no subclass's
    return plain(figures)


def axis_name(collective: Collective) -> str:
    """One axis, or several joined by + in mesh order; `unnamed` for groups along none of them."""
    return "+".join(collective.axes) or "unnamed"
