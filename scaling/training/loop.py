"""The training loop. The host stays one step ahead of the devices and never blocks them:

    dispatch step n+1          returns at once
    read the metrics of n      waits until step n is done, while n+1 already runs

Only a checkpoint and a held-out loss read the newest step, because they need its state, and then
the one before it first; and a recording before it is written, because that takes its time.
"""

import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scaling.meshes.durable import make_folders, write_json
from scaling.run import Run
from scaling.run.own import OwnRun, document_of
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.checkpoint.resume import METRICS, save_start, start
from scaling.training.checkpoint.schedule import CheckpointSchedule
from scaling.training.launch.consensus import on_host
from scaling.training.launch.lost_peer import abort_on_lost_peer
from scaling.training.launch.stopping import StopSignal, stop_on_nan
from scaling.training.launch.watchdog import Watchdog
from scaling.training.monitor.environment import measured
from scaling.training.monitor.hosts import Hosts
from scaling.training.monitor.profile import PROFILE, ProfileRecorder, how_to_open
from scaling.training.monitor.progress import ProgressLine
from scaling.training.monitor.report import StepReport, started_clock
from scaling.training.protocol import Plan, Training
from scaling.training.run_folder.folder import Options, explain_unwritable, own_folder
from scaling.training.run_folder.measured import MEASURED
from scaling.training.run_folder.metrics import MetricsLog, open_sinks
from scaling.training.weights.naming import to_dict

WATCHED = ("loss", "grad_norm")  # metrics that must be finite


@dataclass(frozen=True)
class RunResult:
    """The end of a run."""

    step: int  # finished steps
    new_steps: int  # of them, in this process
    loss: float  # of the last one; NaN if there was none
    stopped_by: str = ""  # name of the signal that ended it early


@dataclass
class InFlight:
    """A step that was dispatched and whose metrics have not been read."""

    step: int
    metrics: dict[str, Any]  # float32 scalars, of experts also arrays, on the devices
    batch: Any  # as the data gave it
    waited: float  # s, for the batch
    dispatched: float  # seconds on the monotonic clock
    finished: Future[float]  # on the same clock

    def is_ready(self) -> bool:
        """True if the step has finished, so that reading its metrics does not wait."""
        return all(value.is_ready() for value in self.metrics.values())


def train(
    plan: Plan,
    training: Training,
    options: Options,
    check: Callable[[], None] = lambda: None,
    watch: Watchdog | None = None,
) -> RunResult:
    """Train to `run.train.steps`, the end of the data, or a signal.

    Everything is written below the folder.

    Args:
        training: whose step is compiled, with the shapes of its state.
        check: called before every write; raises InputError if the folder is not ours any more.
        watch: notices when nothing goes on.

    Raises:
        NotFinite: the step's number and batch are saved as `nan_step_N.npz`.
        InputError: the checkpoint to resume from does not fit, or a file cannot be written.
    """
    run, folder = plan.run, options.folder
    watch = watch or Watchdog(folder)
    check()
    make_folders(folder)
    with ExitStack() as stack:
        stack.enter_context(jax.set_mesh(plan.mesh))
        checkpoints = stack.enter_context(
            Checkpoints(folder / "checkpoints", run.train.keep_checkpoints)
        )
        watch.finish = checkpoints.finish
        names = stack.enter_context(abort_on_lost_peer(checkpoints))
        stack.enter_context(explain_unwritable(folder))
        stack.callback(training.data.close)
        state, step, notes = start(plan, training, options, checkpoints)
        first = jax.process_index() == 0
        sinks = open_sinks(options.sinks if first else (), folder, run.name, document_of(run))
        clock = started_clock(options, step)
        clock.mark = watch.mark
        log = stack.enter_context(MetricsLog(own_folder(folder), sinks))
        if step < run.train.steps:  # else everything stays as it is
            save_start(plan, folder)
        stream = sys.stderr if first else stack.enter_context(open(os.devnull, "w"))
        line = stack.enter_context(ProgressLine(run.train.steps, step, stream, options.predicted))
        for text in notes:
            line.note(text)
        profile = stack.enter_context(ProfileRecorder(folder / PROFILE, options.profile))
        stop = stack.enter_context(StopSignal())
        every = run.train.checkpoint_every, run.train.checkpoint_minutes
        schedule = CheckpointSchedule(*every, step)
        report = StepReport(
            plan.mesh,
            training.tokens,
            log,
            line,
            clock,
            Hosts(step, names),
            options.predicted,
            moe=run.model.moe if isinstance(run, Run) else None,
        )
        acts = report, profile, stop, check, watch
        loop = _Loop(plan, training, folder, checkpoints, schedule, *acts)
        stack.callback(loop.watcher.shutdown, wait=False)  # a step may hang when a peer is lost
        return loop.run(state, step)


@dataclass
class _Loop:
    plan: Plan
    training: Training
    folder: Path
    checkpoints: Checkpoints
    schedule: CheckpointSchedule
    report: StepReport
    profile: ProfileRecorder
    stop: StopSignal
    check: Callable[[], None]  # before every write: the folder is still ours
    watch: Watchdog
    saved: int = -1  # step of the last save; the folder may not show it to every process yet
    ready: float = 0.0  # when the last step that was read had finished
    # Waits for steps: a later dispatch, in which CPUs work themselves, hides their end.
    watcher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def run(self, state: Any, first: int) -> RunResult:
        """Steps after `first`, to the end or a signal; then a checkpoint and `measured.json`."""
        train, done = self.plan.run.train, first
        ahead: InFlight | None = None
        self.report.clock.first = time.time()
        stopped_by = self.stop.before_step(done + 1)
        while done < train.steps and not stopped_by:
            self.watch.mark("data", done + 1)
            started = time.perf_counter()
            if (batch := next(self.training.data, None)) is None:
                self.report.line.note(f"the data ended after step {done:,}")
                break
            waited = time.perf_counter() - started
            done += 1
            intervals = train.checkpoint_every, train.eval_every
            is_read_at_once = done == train.steps or any(n and done % n == 0 for n in intervals)
            if ahead is not None and (
                ahead.is_ready()  # where dispatching itself waits, as on CPU
                or self.profile.begins(done)  # else its time would include the beginning
                or is_read_at_once  # else a thread that wakes late mixes their times
            ):
                self._read(ahead)
                ahead = None
            state, this = self._dispatch(state, done, batch, waited)
            if ahead is not None:
                self._read(ahead)
            ahead = self._after(state, this, last=done == train.steps)
            stopped_by = self.stop.before_step(done + 1)
        if ahead is not None:
            self._read(ahead)
        self._finish(state, first, done)
        stopped_by = stopped_by if done < train.steps else ""
        return RunResult(done, done - first, self.report.loss, stopped_by)

    def _after(self, state: Any, this: InFlight, last: bool) -> InFlight | None:
        """Report, end a recording, evaluate, save, where due; the step if it is still in flight."""
        step, eval_every = this.step, self.plan.run.train.eval_every
        self.watch.mark("agreement")  # in which all wait for each: whether to save, whether to end
        evaluate = bool(eval_every) and (last or step % eval_every == 0)
        save = self.schedule.is_due(step) and not last
        look = self.report.hosts.is_due(step, last)
        read = last or evaluate or save or look or self.profile.ends(step)
        if read:
            self._read(this)
        if self.profile.after(step, this.metrics):  # writes, while no step is in flight
            self.report.line.note(how_to_open(self.folder / PROFILE, self.profile.recorded))
        if look:
            self.report.compare_hosts(step)
        if evaluate:
            with self.report.clock.pause("evaluation"):
                figures = self.training.evaluate(state) if self.training.evaluate else {}
            self.report.evaluated(step, figures)
        if save:
            self._save(state, step)
        return None if read else this

    def _finish(self, state: Any, first: int, done: int) -> None:
        """Save the last step unless it is saved; write `measured.json`.

        Raises:
            InputError: the folder is not ours any more.
            OSError: it, or a line of `metrics.jsonl` before, cannot be written; all else is saved.
        """
        report = self.report
        self.check()
        with report.clock.pause("checkpoints"):
            self.checkpoints.wait()
        if done == first:
            return
        report.tell_overflow(f"in {done - first:,} steps")
        if self.saved != done:
            self._save(state, done)
            with report.clock.pause("checkpoints"):
                self.checkpoints.wait()
        if report.log.failure:
            raise report.log.failure
        if jax.process_index() == 0:
            figures = report.times(first + 1), self.profile.recorded, report.clock.figures()
            of = self.plan.run.name, self.plan.mesh, self.training.compiled
            document = measured(*of, *figures)
            write_json(self.folder / MEASURED, document)

    def _dispatch(self, state: Any, step: int, batch: Any, waited: float) -> tuple[Any, InFlight]:
        placed = self.training.place(batch) if self.training.place else batch
        self.profile.before(step, state)
        self.watch.mark("step")
        dispatched = time.perf_counter()
        state, metrics = self.training.step(state, placed)
        finished = self.watcher.submit(_finished, metrics)
        return state, InFlight(step, metrics, batch, waited, dispatched, finished)

    def _read(self, this: InFlight) -> None:
        """Wait for a step, write its line, stop on NaN."""
        values = {name: float(value) for name, value in this.metrics.items() if not np.ndim(value)}
        arrays = {n: on_host(v).tolist() for n, v in this.metrics.items() if np.ndim(v)}
        finished = this.finished.result()
        step_time = finished - max(self.ready, this.dispatched)
        self.ready = finished
        self.check()
        self.report.step(this.step, values, arrays, step_time, this.waited)
        if self.report.log.failure:
            self.stop.stop()
        if not all(math.isfinite(values.get(name, 0.0)) for name in WATCHED):
            batch, run = self.training.data.named(this.batch), self.plan.run
            remedy = "Lower train.learning_rate or raise train.warmup_steps"
            if isinstance(run, OwnRun):
                remedy = f"Lower the learning rate of {run.function} or clip its gradients"
            stop_on_nan(this.step, values, batch, self.folder, self.checkpoints, remedy)

    def _save(self, state: Any, step: int) -> None:
        self.check()
        self.saved = step
        place = {**self.training.data.get_state(), METRICS: self.report.log.kept()}
        run, clock = document_of(self.plan.run), self.report.clock
        before = clock.pauses["checkpoints"]
        with clock.pause("checkpoints"):
            self.report.log.sync()
            self.checkpoints.save(step, to_dict(state), place, run)
        clock.saves += 1
        if said := self.schedule.saved(clock.pauses["checkpoints"] - before):
            self.report.line.note(said)


def _finished(metrics: dict[str, Any]) -> float:
    """Wait for a step; the time at its end, in seconds on the monotonic clock."""
    jax.block_until_ready(metrics)
    return time.perf_counter()
