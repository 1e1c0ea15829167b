"""A prediction beside a profile that jax.profiler recorded of the real run."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scaling.api.pricing import Pricing, price_program
from scaling.comparing.compare import check_machine, compare_recording
from scaling.comparing.comparison import Comparison
from scaling.comparing.recorded import RecordedEvent, recorded_events
from scaling.compile.quiet import quiet
from scaling.meshes.errors import InputError
from scaling.meshes.reading import writing
from scaling.meshes.result import Result
from scaling.meshes.units import format_time
from scaling.simulate.prediction import Prediction

RECORD = "record some steps of the run with jax.profiler.trace(FOLDER)"
MOST_STEPS = 10**6  # chosen by this project: a profiler keeps fewer kernels than that


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProfileComparison(Result, Comparison):
    """A prediction beside a profile; prints as the table of `scaling price --compare`."""

    to_dict = Comparison.to_dict

    def trace(self, path: str | Path) -> None:
        """Write the predicted and the measured timeline as two processes of one file.

        Args:
            path: a file for https://ui.perfetto.dev, or a folder NAME.xprof for XProf.
        """
        from scaling.report.trace import measured_events, trace_events, write_trace

        if self.priced is None:
            raise InputError(f"{self.name} has no program for a trace: train the run again")
        measured = measured_events(self.events, self.priced.program)
        with writing(Path(path)):
            write_trace(trace_events(self.priced) + measured, Path(path))

    def __str__(self) -> str:
        from scaling.report.comparison import table

        return table(self)

    def line(self) -> str:
        step = self.step_time.seconds
        seconds = {"predicted": step.predicted, "measured": step.measured}
        words = [f"{name} {format_time(t)}" for name, t in seconds.items() if t is not None]
        return f"comparison of {self.name}: step {', '.join(words)}"


def recorded_profile(profile: str | Path, cluster: str, steps: int | None) -> list[RecordedEvent]:
    """The events of a profile, checked as far as that goes before anything is compiled.

    Args:
        profile: HOST.xplane.pb, a trace in JSON, or a folder above them.

    Raises:
        InputError: no profile, none of that kind of device, or a number of steps that is none.
    """
    is_count = isinstance(steps, int) and not isinstance(steps, bool) and 0 < steps <= MOST_STEPS
    if steps is not None and not is_count:
        raise InputError(f"steps={steps!r} must be a whole number from 1 to {MOST_STEPS:,}")
    with quiet():  # jax reads it
        events = recorded_events(Path(profile), RECORD)
    check_machine(events, cluster)
    return events


def compared(
    prediction: Prediction, pricing: Pricing, events: Sequence[RecordedEvent], steps: int | None
) -> ProfileComparison:
    """The prediction beside events that are read already."""
    priced = price_program(pricing, record=True)
    return ProfileComparison(**vars(compare_recording(prediction, priced, events, steps)))
