"""The training loop. The host stays one step ahead of the devices and never blocks them:

    dispatch step n+1          returns at once
    read the metrics of n      waits until step n is done, while n+1 already runs

Only a checkpoint and a held-out loss read the newest step, because they need its state.
"""

import math
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from meshes.errors import InputError
from scaling.run import run_dict, save_run
from scaling.train.checkpoint import Checkpoints
from scaling.train.data import TrainingBatches, held_out_batches, training_batches
from scaling.train.launch import StopSignal
from scaling.train.measured import save_measured
from scaling.train.metrics import MetricsLog, open_sinks
from scaling.train.prepare import Plan, Programs, place_tokens
from scaling.train.profile import Profile
from scaling.train.progress import ProgressLine
from scaling.train.state import from_dict, to_dict
from scaling.train.step import TrainState


@dataclass(frozen=True)
class Options:
    """How a run is run, beside what it is."""

    folder: Path
    resume: bool = False
    profile: tuple[int, int] | None = None  # first and last step recorded
    sinks: tuple[str, ...] = ()  # "tensorboard", "wandb"


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int  # finished steps
    loss: float  # of the last one; NaN if there was none
    stopped_by: str | None = None  # name of the signal that ended it early


class NotFinite(RuntimeError):
    """The loss or the gradient norm became NaN or infinite."""


@dataclass
class InFlight:
    """A step that was dispatched and whose metrics have not been read."""

    step: int
    metrics: dict[str, jax.Array]
    batch: tuple[np.ndarray, np.ndarray]
    dispatched: float  # seconds on the monotonic clock


def check_folder(options: Options) -> None:
    """Refuse to write over an earlier run, or to resume where nothing was saved.

    Raises:
        InputError: which of the two, and what to do.
    """
    folder = options.folder
    _check_writable(folder)
    with Checkpoints(folder / "checkpoints", keep=1) as checkpoints:
        saved = checkpoints.latest()
    if options.resume and saved is None:
        raise InputError(
            f"--resume: no finished checkpoint in {folder / 'checkpoints'}; check --run-dir, or "
            "start without --resume in a new folder"
        )
    metrics = folder / "metrics.jsonl"
    if not options.resume and (saved is not None or (metrics.exists() and metrics.stat().st_size)):
        done = f"saved up to step {saved}" if saved is not None else "without a checkpoint"
        raise InputError(
            f"{folder} already holds a run ({done}); continue it with --resume, or choose another "
            "--run-dir"
        )


def _check_writable(folder: Path) -> None:
    place = folder.absolute()
    existing = next(path for path in (place, *place.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise InputError(
            f"cannot write to {folder}: {existing} is no folder that may be written to; "
            "choose another --run-dir"
        )


def train(plan: Plan, programs: Programs, options: Options) -> Outcome:
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
        batches = training_batches(
            plan.source, run.batch.global_batch, run.batch.seq_len, run.train.seed
        )
        stack.callback(batches.close)
        state = _start(options, programs, checkpoints, batches)
        if jax.process_index() == 0:
            save_run(run, folder / "run.json")
        wanted = options.sinks if jax.process_index() == 0 else ()
        sinks = open_sinks(wanted, folder, run.name, run_dict(run))
        log = stack.enter_context(MetricsLog(_own_folder(folder), sinks))
        line = stack.enter_context(ProgressLine(run.train.steps, int(state.step)))
        profile = stack.enter_context(Profile(folder / "profile", options.profile))
        stop = stack.enter_context(StopSignal())
        loop = _Loop(plan, programs, checkpoints, batches, log, line, profile, folder)
        return loop.run(state, stop)


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
    ):
        self.plan, self.programs, self.checkpoints = plan, programs, checkpoints
        self.batches, self.log, self.line = batches, log, line
        self.profile, self.folder = profile, folder
        self.ready = 0.0  # when the last step that was read had finished
        self.step_times: list[float] = []
        self.loss = math.nan

    def run(self, state: TrainState, stop: StopSignal) -> Outcome:
        """Steps until the end or a signal, then the last checkpoint and `measured.json`."""
        train = self.plan.run.train
        done = first = int(state.step)
        ahead: InFlight | None = None
        while done < train.steps and not stop.received:
            done += 1
            state, this = self._dispatch(state, done)
            if ahead is not None:
                self._read(ahead)
            ahead = this
            last = done == train.steps
            if last or stop.received or _due(done, train.checkpoint_every, train.eval_every):
                self._read(this)
                ahead = None
            if _due(done, train.eval_every) or (last and train.eval_every):
                self._evaluate(state, done)
            if _due(done, train.checkpoint_every) and not last:
                self._save(state, done)
        if ahead is not None:
            self._read(ahead)
        if done > first:
            self._save(state, done)
        self.checkpoints.wait()
        save_measured(self.folder, self.plan, self.programs, self.step_times)
        return Outcome(done, self.loss, stop.received)

    def _dispatch(self, state: TrainState, step: int) -> tuple[TrainState, InFlight]:
        batch = next(self.batches)
        tokens = place_tokens(self.programs, batch)
        self.profile.before(step)
        started = time.perf_counter()
        state, metrics = self.programs.step(state, tokens)
        self.profile.after(step, metrics)
        return state, InFlight(step, metrics, batch, started)

    def _read(self, this: InFlight) -> None:
        """Wait for a step, write its line, stop on NaN."""
        values = {name: float(value) for name, value in this.metrics.items()}
        now = time.perf_counter()
        step_time = now - max(self.ready, this.dispatched)
        self.ready = now
        self.step_times.append(step_time)
        self.loss = values["loss"]
        tokens = self.plan.run.batch.tokens
        rate = tokens / step_time
        self.log.write(
            this.step,
            loss=values["loss"],
            tokens=tokens,
            tokens_seen=tokens * this.step,
            step_time=step_time,
            tokens_per_second=rate,
            learning_rate=values["learning_rate"],
            grad_norm=values["grad_norm"],
        )
        self.line.update(this.step, values["loss"], rate, step_time)
        if not all(map(math.isfinite, values.values())):
            self._stop_on_nan(this, values)

    def _stop_on_nan(self, this: InFlight, values: dict[str, float]) -> None:
        path = self.folder / f"nan_step_{this.step}.npz"
        inputs, targets = this.batch
        np.savez(path, step=this.step, inputs=inputs, targets=targets)
        self.checkpoints.wait()
        raise NotFinite(
            f"step {this.step}: loss {values['loss']}, gradient norm {values['grad_norm']}; its "
            f"batch is saved in {path}, the last checkpoint is step {self.checkpoints.latest()}. "
            "Lower train.learning_rate or raise train.warmup_steps, then --resume."
        )

    def _evaluate(self, state: TrainState, step: int) -> None:
        run = self.plan.run
        held_out = held_out_batches(
            self.plan.source, run.batch.global_batch, run.batch.seq_len, run.train.eval_batches
        )
        losses = [
            self.programs.evaluate(state.params, place_tokens(self.programs, batch))
            for batch in held_out
        ]
        loss = float(np.mean([float(value) for value in losses]))
        self.log.write(step, held_out_loss=loss)
        self.line.note(f"step {step}: held-out loss {loss:.4f}")

    def _save(self, state: TrainState, step: int) -> None:
        place, run = self.batches.get_state(), run_dict(self.plan.run)
        self.checkpoints.save(step, to_dict(state), place, run)


def _start(
    options: Options, programs: Programs, checkpoints: Checkpoints, batches: TrainingBatches
) -> TrainState:
    """A fresh state, or the newest whole checkpoint with the data iterator put in its place."""
    if not options.resume:
        return programs.init()
    arrays, place, _ = checkpoints.restore(to_dict(programs.state))
    batches.set_state(place)
    return from_dict(programs.state, arrays)


def _due(step: int, *intervals: int) -> bool:
    return any(every and step % every == 0 for every in intervals)


def _own_folder(folder: Path) -> Path:
    """Where this process keeps its metrics: the run folder for the first one."""
    index = jax.process_index()
    return folder / f"process_{index}" if index else folder
