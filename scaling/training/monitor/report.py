"""What a run says of its steps: metrics, progress, held-out losses, wall time, slow hosts.

The wall time by what it is spent on:

    began | imports, data, compile, restore | steps | checkpoint | steps | evaluation | steps ...
            start                             useful  the loop stands still

    goodput = seconds of steps that the run keeps / seconds since it began

With `--restarts` a run began with its first attempt: what a crash costs, the steps after the last
checkpoint included, is in the wall time and not in the useful time.
"""

import math
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jax.sharding import Mesh

from scaling.meshes.errors import InputError
from scaling.models.config import Moe
from scaling.training.monitor.environment import peak_memory
from scaling.training.monitor.hosts import Hosts
from scaling.training.monitor.progress import NOT_KNOWN, Predicted, ProgressLine
from scaling.training.run_folder.folder import Options, own_folder
from scaling.training.run_folder.metrics import MetricsLog, readable_metrics, step_times

PAUSES = ("checkpoints", "evaluation")
FIGURES = (  # of every step, which the loop writes itself
    *("step", "tokens", "tokens_seen", "step_time", "tokens_per_second", "time", "data_time"),
    *("checkpoint_time", "peak_memory", "goodput", "mfu", "hfu"),
)
ROOM_DIGITS = 100  # a factor that has room is rounded up to 1 / of it
COMMON = ("loss", "learning_rate", "grad_norm")  # metrics of every step; others follow them


@dataclass
class Clock:
    """Sums of the wall time of one run."""

    began: float  # unix time
    useful: float = 0.0  # s, of steps that are kept
    saves: int = 0  # checkpoints
    data: float = 0.0  # s that the host waited for batches; hidden while a step is in flight
    first: float = field(default_factory=time.time)  # unix time at which the loop began
    pauses: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PAUSES, 0.0))
    reported: float = 0.0  # s, of the pauses for checkpoints that were told of
    mark: Callable[[str], object] = lambda place: None  # of the watchdog

    @contextmanager
    def pause(self, what: str) -> Iterator[None]:
        """Add the seconds within it to one of PAUSES."""
        self.mark(what)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.pauses[what] += time.perf_counter() - started

    def checkpoints_since_last(self) -> float:
        """Seconds in which checkpoints stopped the steps since the last call."""
        before, self.reported = self.reported, self.pauses["checkpoints"]
        return self.reported - before

    @property
    def goodput(self) -> float:
        """Useful time over wall time, so far."""
        return self._share(self.useful)

    @property
    def checkpoint_share(self) -> float:
        """Share of the wall time so far in which checkpoints stopped the steps."""
        return self._share(self.pauses["checkpoints"])

    def _share(self, seconds: float) -> float:
        return seconds / max(time.time() - self.began, seconds, 1e-9)

    def figures(self) -> dict[str, Any]:
        """Goodput, seconds by what they went into (`other`: lost steps and the rest), saves."""
        total = time.time() - self.began
        parts = {"start": self.first - self.began, "steps": self.useful, **self.pauses}
        other = max(0.0, total - sum(parts.values()))
        return {
            "goodput": self.goodput,
            "wall_time": {"total": total, **parts, "other": other, "data": self.data},
            "checkpoints": {"saves": self.saves, "share": parts["checkpoints"] / total},
        }


def started_clock(options: Options, done: int) -> Clock:
    """The clock of a run of which `done` steps are restored."""
    clock = Clock(options.began)
    if options.resume:
        with suppress(InputError):  # somebody has taken the file away
            records, _ = readable_metrics(own_folder(options.folder))
            clock.useful = sum(step_times(records, options.began, done).values())
    return clock


@dataclass
class StepReport:
    """Writes what is known of each step to all that show it."""

    mesh: Mesh
    tokens: int | None  # of one step; None: not counted
    log: MetricsLog
    line: ProgressLine
    clock: Clock
    hosts: Hosts
    predicted: Predicted | None = None  # of one step, by the first process
    seconds: array = field(default_factory=lambda: array("d"))  # of the new steps
    moe: Moe | None = None
    loss: float = math.nan  # of the last one
    overflow: tuple[float, float] = 0.0, 0.0  # most assignments without room, most skewed load

    def step(
        self,
        step: int,
        values: Mapping[str, float],
        arrays: Mapping[str, Any],
        step_time: float,
        waited: float,
    ) -> None:
        """Report a step that has ended.

        Args:
            values, arrays: its metrics; those of experts and layers are lists.
            step_time: seconds.
            waited: seconds that the host waited for its batch.
        """
        self.seconds.append(step_time)
        if self.moe and "expert_load" in arrays:
            load_LE = np.array(arrays["expert_load"])  # a device along expert has several
            load_LPE = load_LE.reshape(len(load_LE), self.mesh.shape["expert"], -1)
            values = {**values, "device_skew": float(load_LPE.mean(axis=-1).max())}
        self.loss = values["loss"]
        tokens, rate = self.tokens, self.tokens and self.tokens / step_time
        self.clock.useful += step_time
        self.clock.data += waited
        self.hosts.step(step_time, waited)
        self.log.write(
            step,
            loss=values["loss"],
            tokens=tokens,
            tokens_seen=tokens and tokens * step,
            step_time=step_time,
            tokens_per_second=rate,
            learning_rate=values.get("learning_rate"),
            grad_norm=values.get("grad_norm"),
            time=time.time(),
            data_time=waited,
            checkpoint_time=self.clock.checkpoints_since_last(),
            peak_memory=peak_memory(self.mesh),
            goodput=self.clock.goodput,
            **(self.predicted.at(step_time) if self.predicted else NOT_KNOWN),
            **{name: value for name, value in values.items() if name not in COMMON},
            **arrays,
        )
        figures = values["loss"], rate, step_time
        self.line.update(step, *figures, self.clock.checkpoint_share)
        if self.moe and values.get("dropped"):
            is_first = self.overflow == (0.0, 0.0)
            skew = values["device_skew" if self.moe.capacity_factor is None else "skew"]
            self.overflow = max(self.overflow[0], values["dropped"]), max(self.overflow[1], skew)
            if is_first:
                self.tell_overflow(f"step {step}")

    def tell_overflow(self, when: str) -> None:
        """Say what share of the worst step's assignments to experts had no room, if any, and the
        least capacity factor that could have had room for all."""
        (dropped, skew), moe = self.overflow, self.moe
        if moe and dropped:
            of_device = moe.capacity_factor is None
            name = "device_capacity_factor" if of_device else "capacity_factor"
            room = math.ceil(max(skew, getattr(moe, name)) * ROOM_DIGITS) / ROOM_DIGITS
            self.line.note(
                f"{when}: up to {dropped:.2%} of a step's assignments to experts had no room with "
                f"model.moe.{name}={getattr(moe, name):g}; the busiest "
                f"{'device along expert' if of_device else 'expert'} had {skew:.3g} times the mean "
                f"load, which takes a factor of at least {room:g}"
            )

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Report held-out losses, or whatever was measured of a state."""
        self.log.write(step, **figures)
        for name, value in list(figures.items())[:1]:
            words = name.replace("held_out", "held-out").replace("_", " ")
            self.line.note(f"step {step}: {words} {value:.4f}")

    def compare_hosts(self, step: int) -> None:
        """Log what each host takes for its data and for the same work; name the slow ones."""
        self.clock.mark("comparison")
        seconds, messages = self.hosts.look(step)
        self.log.write(step, **seconds)
        for message in messages:
            self.line.note(f"step {step}: {message}")

    def times(self, first: int) -> dict[int, float]:
        """Seconds of the new steps by number, from `first` on."""
        return dict(enumerate(self.seconds, first))
