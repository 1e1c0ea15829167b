"""The training loop. The host stays one step ahead of the devices and never blocks them:

    dispatch step n+1          returns at once
    read the metrics of n      waits until step n is done, while n+1 already runs

Only a checkpoint and a held-out loss read the newest step, because they need its state; and a
recording before it is written, because that takes its time.
"""

import math
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scaling.run import run_dict, save_run
from scaling.train.checkpoint.checkpoints import Checkpoints
from scaling.train.checkpoint.resume import start
from scaling.train.data.batches import TrainingBatches, held_out_batches, training_batches
from scaling.train.launch.lost_peer import abort_on_lost_peer
from scaling.train.launch.stopping import StopSignal, Vote, stop_on_nan
from scaling.train.monitor.environment import save_environment
from scaling.train.monitor.goodput import Clock, started_clock
from scaling.train.monitor.measured import MEASURED, peak_memory, save_measured
from scaling.train.monitor.metrics import MetricsLog, open_sinks
from scaling.train.monitor.profile import Profile
from scaling.train.monitor.progress import ProgressLine
from scaling.train.monitor.stragglers import EVERY, Hosts, host_words
from scaling.train.prepare import Plan, Programs, place_tokens
from scaling.train.run_folder import Options, explain_full_disk, own_folder
from scaling.train.step import TrainState
from scaling.weights.naming import to_dict

COMMON = ("loss", "learning_rate", "grad_norm")  # metrics of every step; others follow them


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    step: int  # finished steps
    new_steps: int  # of them, in this process
    loss: float  # of the last one; NaN if there was none
    stopped_by: str = ""  # name of the signal that ended it early


@dataclass
class InFlight:
    """A step that was dispatched and whose metrics have not been read."""

    step: int
    metrics: dict[str, Any]  # float32 scalars, of experts also arrays, on the devices
    batch: tuple[np.ndarray, np.ndarray]
    waited: float  # s, for the batch
    dispatched: float  # seconds on the monotonic clock
    vote: jax.Array | None  # whether any process was told to stop

    def is_ready(self) -> bool:
        """Whether the step has finished, so that reading its metrics does not wait."""
        return all(value.is_ready() for value in self.metrics.values())


def train(plan: Plan, programs: Programs, options: Options) -> RunResult:
    """Train to `run.train.steps`, or until a signal; everything is written below the folder.

    Raises:
        NotFinite: the step's number and batch are saved as `nan_step_N.npz`.
        InputError: the checkpoint to resume from does not fit, or the disk is full.
    """
    run, folder = plan.run, options.folder
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(jax.set_mesh(plan.mesh))
        checkpoints = stack.enter_context(
            Checkpoints(folder / "checkpoints", run.train.keep_checkpoints)
        )
        stack.enter_context(abort_on_lost_peer(checkpoints))
        stack.enter_context(explain_full_disk(folder))
        batches = training_batches(
            plan.source, run.batch.global_batch, run.batch.seq_len, run.train.seed
        )
        stack.callback(batches.close)
        state, said = start(plan, options, programs, checkpoints, batches)
        first, goes_on = jax.process_index() == 0, int(state.step) < run.train.steps
        if first and goes_on:  # else everything stays as it is
            save_run(run, folder / "run.json")
            (folder / MEASURED).unlink(missing_ok=True)  # of earlier steps, maybe on another mesh
        sinks = open_sinks(options.sinks if first else (), folder, run.name, run_dict(run))
        clock = started_clock(options, int(state.step))
        log = stack.enter_context(MetricsLog(own_folder(folder), sinks))
        if goes_on:
            save_environment(own_folder(folder), plan.mesh)
        stream = sys.stderr if first else stack.enter_context(open(os.devnull, "w"))
        line = stack.enter_context(
            ProgressLine(run.train.steps, int(state.step), stream, options.predicted)
        )
        for text in said:
            line.note(text)
        profile = stack.enter_context(Profile(folder / "profile", options.profile))
        stop = stack.enter_context(StopSignal())
        loop = _Loop(plan, programs, checkpoints, batches, log, line, profile, folder, stop, clock)
        return loop.run(state)


class _Loop:
    """The loop's collaborators and what it has seen so far."""

    def __init__(
        self,
        plan: Plan,
        programs: Programs,
        checkpoints: Checkpoints,
        batches: TrainingBatches,
        log: MetricsLog,
        line: ProgressLine,
        profile: Profile,
        folder: Path,
        stop: StopSignal,
        clock: Clock,
    ):
        self.plan, self.programs, self.checkpoints = plan, programs, checkpoints
        self.batches, self.log, self.line = batches, log, line
        self.profile, self.folder, self.stop, self.clock = profile, folder, stop, clock
        several = jax.process_count() > 1
        self.vote = Vote(plan.mesh) if several else None
        self.hosts = Hosts() if several else None
        self.agreed = False  # that all processes stop; needed only where there are several
        self.saved = -1  # step of the last save; the folder may not show it to every process yet
        self.ready = 0.0  # when the last step that was read had finished
        self.step_times: dict[int, float] = {}  # by number
        self.loss = math.nan

    def run(self, state: TrainState) -> RunResult:
        """Steps until the end or a signal, then the last checkpoint and `measured.json`."""
        train = self.plan.run.train
        done = first = int(state.step)
        ahead: InFlight | None = None
        self.clock.start()
        while done < train.steps and not self._stopping():
            done += 1
            last = done == train.steps
            if ahead is not None and (
                ahead.is_ready()  # where dispatching itself waits, as on CPU
                or self.profile.begins(done)  # else its time would include the beginning
            ):
                self._read(ahead)
                ahead = None
            state, this = self._dispatch(state, done)
            if ahead is not None:
                self._read(ahead)
            ahead = this
            recorded, look = self.profile.ends(done), self.hosts and done % EVERY == 0
            if last or recorded or look or _due(done, train.checkpoint_every, train.eval_every):
                self._read(this)
                ahead = None
            self.profile.after(done, this.metrics)  # writes, while no step is in flight
            if self.hosts and (last or look):
                self._look(self.hosts, done)
            if _due(done, train.eval_every) or (last and train.eval_every):
                self._evaluate(state, done)
            if _due(done, train.checkpoint_every) and not last:
                self._save(state, done)
        if ahead is not None:
            self._read(ahead)
        with self.clock.pause("checkpoints"):
            self.checkpoints.wait()
        if done > first:
            if self.saved != done:
                self._save(state, done)
                with self.clock.pause("checkpoints"):
                    self.checkpoints.wait()
            steps, times = self.profile.recorded, self.step_times
            save_measured(self.folder, self.plan, self.programs, times, steps, self.clock)
        return RunResult(
            done, done - first, self.loss, self._stopping() if done < train.steps else ""
        )

    def _stopping(self) -> str:
        """The signal that ends the run; "" to go on."""
        if self.vote is None:
            return self.stop.received or ""
        return (self.stop.received or "a signal to another process") if self.agreed else ""

    def _dispatch(self, state: TrainState, step: int) -> tuple[TrainState, InFlight]:
        asked = time.perf_counter()
        batch = next(self.batches)
        waited = time.perf_counter() - asked
        tokens = place_tokens(self.programs, batch)
        self.profile.before(step, state.step)
        started = time.perf_counter()
        state, metrics = self.programs.step(state, tokens)
        vote = self.vote.cast(self.stop.received is not None) if self.vote else None
        return state, InFlight(step, metrics, batch, waited, started, vote)

    def _read(self, this: InFlight) -> None:
        """Wait for a step, write its line, stop on NaN."""
        values = {name: float(value) for name, value in this.metrics.items() if not np.ndim(value)}
        arrays = {n: np.asarray(v).tolist() for n, v in this.metrics.items() if np.ndim(v)}
        now = time.perf_counter()
        step_time = now - max(self.ready, this.dispatched)
        self.ready = now
        self.step_times[this.step] = step_time
        self.loss = values["loss"]
        tokens = self.plan.run.batch.tokens
        rate = tokens / step_time
        self.clock.step(step_time, this.waited)
        if self.hosts:
            self.hosts.step(step_time, this.waited)
        self.log.write(
            this.step,
            loss=values["loss"],
            tokens=tokens,
            tokens_seen=tokens * this.step,
            step_time=step_time,
            tokens_per_second=rate,
            learning_rate=values["learning_rate"],
            grad_norm=values["grad_norm"],
            time=time.time(),
            data_time=this.waited,
            checkpoint_time=self.clock.since_last("checkpoints"),
            peak_memory=peak_memory(self.plan.mesh),
            goodput=self.clock.goodput,
            **{name: value for name, value in values.items() if name not in COMMON},
            **arrays,
        )
        self.line.update(this.step, values["loss"], rate, step_time)
        self.agreed = this.vote is not None and bool(this.vote)
        if not all(map(math.isfinite, values.values())):
            stop_on_nan(this.step, values, this.batch, self.folder, self.checkpoints)

    def _evaluate(self, state: TrainState, step: int) -> None:
        with self.clock.pause("evaluation"):
            loss = self._held_out_loss(state)
        self.log.write(step, held_out_loss=loss)
        self.line.note(f"step {step}: held-out loss {loss:.4f}")

    def _look(self, hosts: Hosts, step: int) -> None:
        """Which host takes the longest for its own work."""
        look = hosts.look()
        self.log.write(
            step,
            hosts_compute_time=list(look.compute),
            hosts_data_time=list(look.data),
            slowest_host=hosts.names[look.slowest],
            slowest_process=look.slowest,
            slowdown=look.slowdown,
        )
        if said := host_words(look, hosts.names):
            self.line.note(f"step {step}: {said}")

    def _held_out_loss(self, state: TrainState) -> float:
        run, evaluate = self.plan.run, self.programs.evaluate
        held_out = held_out_batches(
            self.plan.source, run.batch.global_batch, run.batch.seq_len, run.train.eval_batches
        )
        losses = [evaluate(state.params, place_tokens(self.programs, batch)) for batch in held_out]
        return float(np.mean([float(value) for value in losses]))

    def _save(self, state: TrainState, step: int) -> None:
        self.saved = step
        place, run = self.batches.get_state(), run_dict(self.plan.run)
        with self.clock.pause("checkpoints"):
            self.checkpoints.save(step, to_dict(state), place, run)


def _due(step: int, *intervals: int) -> bool:
    return any(every and step % every == 0 for every in intervals)
