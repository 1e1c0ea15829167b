"""A recording joined with its program: the measured step in the terms of a prediction.

compute + optimizer + exposed_communication + bubble + host = first start to last end, per step
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scaling.compare.recorded import RecordedEvent
from scaling.compare.steps import (
    Measured,
    complete_steps,
    events_of_program,
    per_step,
    totals,
    union,
)
from scaling.program.ir import Collective, Kernel, Number, Program, operations
from scaling.simulate.pipeline_bubble import bubble_shares

TERMS = (
    *("compute", "optimizer", "exposed_communication", "bubble", "host"),
    "hidden_communication",
)


@dataclass(frozen=True)
class Recording:
    """Figures of one step in a recorded profile, the mean over devices and steps."""

    instructions: Mapping[str, Measured]
    terms: Mapping[str, float]  # seconds, as in TERMS
    devices: int = 1  # that were recorded


def read_recording(events: Sequence[RecordedEvent], program: Program, count: int) -> Recording:
    """Figures of one step in a recording of `count` steps of a program.

    Raises:
        InputError: it is a recording of another program, or of fewer steps.
    """
    known = {
        s.name: s for s, _ in operations(program.schedule) if isinstance(s, Kernel | Collective)
    }
    events = complete_steps(events_of_program(events, known), count)
    communicating = {name for name, step in known.items() if isinstance(step, Collective)}
    updating = {name for name, step in known.items() if step.origin.phase == "optimizer"}
    updating -= communicating
    sums = totals(events, count, communicating)
    bubble = _bubble(events, bubble_shares(program), communicating) / count
    optimizer = _busy([e for e in events if e.name in updating], len({e.device for e in events}))
    terms = {
        "compute": sums.compute - optimizer / count - bubble,
        "optimizer": optimizer / count,
        "exposed_communication": sums.exposed_communication,
        "bubble": bubble,
        "host": sums.span - sums.busy,
        "hidden_communication": sums.communication - sums.exposed_communication,
    }
    return Recording(per_step(events, count), terms, len({event.device for event in events}))


def _bubble(
    events: Sequence[RecordedEvent], shares: Mapping[str, Number], communicating: Collection[str]
) -> float:
    """Seconds of kernels in the bubble trips of their loops, the mean over devices."""
    devices = len({e.device for e in events})
    kernels = {name: share for name, share in shares.items() if name not in communicating}
    return sum(
        float(share) * _busy([e for e in events if kernels.get(e.name) == share], devices)
        for share in sorted({float(share) for share in kernels.values()})
    )


def _busy(events: Sequence[RecordedEvent], devices: int) -> float:
    """Seconds in which any of the events runs, the mean over devices."""
    each = {e.device for e in events}
    return sum(union([e for e in events if e.device == device]) for device in each) / devices
