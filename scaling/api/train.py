"""Train a run: checks, devices, compilation, the prediction that stands beside it, the loop."""

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from scaling.api.inputs import MeshLike
from scaling.api.public_api import entrance, in_callers_words
from scaling.api.runs import RunLike, Settings, load_trained
from scaling.compile.quiet import quiet
from scaling.meshes.errors import InputError
from scaling.meshes.result import Result
from scaling.meshes.shape import axes_text
from scaling.meshes.units import format_memory
from scaling.models.accounting.remat import AUTO
from scaling.planning.remat import with_remat
from scaling.report.training import (
    header_lines,
    own_header_lines,
    random_base_lines,
    sharding_lines,
)
from scaling.run import Run
from scaling.run.own import OwnRun
from scaling.run.parallelism.checks import check_trainable
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.training.launch.distributed import job_kind
from scaling.training.run_folder import default_folder

if TYPE_CHECKING:  # they import jax, which must wait until the devices are known
    from scaling.training.loop import RunResult
    from scaling.training.monitor.progress import Predicted
    from scaling.training.own import OwnPlan
    from scaling.training.prepare import PreparedRun
    from scaling.training.protocol import Plan, Training
    from scaling.training.run_folder.folder import Options


@dataclass(frozen=True, repr=False)
class TrainResult(Result):
    """The end of a run; prints as `scaling train` ends."""

    run: Run | OwnRun
    folder: Path
    step: int  # finished steps
    new_steps: int  # of them, in this process
    loss: float  # of the last one; NaN if there was none
    stopped_by: str = ""  # name of the signal that ended it early

    def to_dict(self) -> dict[str, Any]:
        """Return the figures; the loss is None if no step was made."""
        figures = {k: getattr(self, k) for k in ("step", "new_steps", "stopped_by")}
        loss = None if math.isnan(self.loss) else self.loss
        return {"name": self.run.name, "folder": str(self.folder), **figures, "loss": loss}

    def __str__(self) -> str:
        if self.stopped_by:
            saved = f"saved at step {self.step}" if self.new_steps else "before the first step"
            again = " with --resume" if self.step else ""  # else nothing was ever saved
            return f"stopped by {self.stopped_by}: {saved}\nnext: the same command{again}"
        if not self.new_steps:
            return (
                f"already trained to step {self.step}: {self.folder}\nnext: give a larger --steps"
            )
        lines = [f"{self.line()}: {self.folder}", f"next: {self._use_of_checkpoint()}"]
        if (self.folder / "predicted.json").is_file():
            lines.append(f"next: {shlex.join(['scaling', 'compare', str(self.folder)])}")
        return "\n".join(lines)

    def line(self) -> str:
        return f"trained to step {self.step}, loss {self.loss:.4f}"

    def _use_of_checkpoint(self) -> str:
        """Return the command that samples from a run on text, exports another, or prices yours."""
        from scaling.training.trained_model import tokenizer_of

        if isinstance(self.run, OwnRun):
            words = ["scaling", "price", self.run.function, "--cluster", "dgx-h100"]
            mesh = axes_text(self.run.mesh)
            return shlex.join([*words, *(["--mesh", mesh] if mesh else [])])
        folder = str(self.folder)
        try:
            tokenizer_of(self.run)
        except InputError:
            return shlex.join(["scaling", "export", folder, "--output", f"{folder}-weights"])
        prompt = "def " if self.run.train.data == "stdlib" else "The "
        return shlex.join(["scaling", "sample", folder, "--prompt", prompt])


@entrance
def train(
    run: RunLike | OwnRun | Callable[..., Any],
    mesh: MeshLike | None = None,
    *,
    device_order: str | Iterable[str] | None = None,
    set: Settings | None = None,
    steps: int | None = None,
    run_dir: Path | str | None = None,
    resume: bool = False,
    devices: int | None = None,
    record_profile: str | None = None,
    init: Path | str | None = None,
    tensorboard: bool = False,
    wandb: bool = False,
    allow_changed_data: bool = False,
) -> TrainResult:
    """Train a run on the devices present: ours, or the state, step and data of your own function.

    What is returned has its last step and loss. The run folder gets run.json, metrics.jsonl,
    predicted.json, measured.json and checkpoints/. A function of yours, my.py:run or the function
    itself, takes a jax mesh and returns a `Training`; `set` then has its other arguments by name.

    >>> import scaling as sc
    >>> outcome = sc.train("tiny", devices=2, run_dir="runs/tiny")   # doctest: +SKIP
    >>> outcome.step, outcome.loss < 7                               # doctest: +SKIP
    (20, True)

    Args:
        steps: train to this step instead of the run's.
        run_dir: folder where everything is written; None: runs/NAME.
        resume: continue from the newest checkpoint in the run folder.
        record_profile: FROM:TO, steps to record with jax.profiler.
        init: safetensors weights to begin with, in Hugging Face's names: a folder or one file. With
            `resume` the checkpoint is taken instead.
        tensorboard: also write TensorBoard events.
        wandb: also log to Weights & Biases.
        allow_changed_data: with `resume`, go on where files of the data are no longer those that
            the run began with.

    Raises:
        InputError: whatever does not fit, before anything is compiled.
        NotFinite: the loss or a gradient is not finite.
    """
    made = load_trained(run, mesh=mesh, device_order=device_order, set=set, steps=steps)
    folder = Path(run_dir) if run_dir is not None else default_folder(made)
    with _quiet_unless_in_job():
        from scaling.training.starting import options_of  # imports jax

        options = options_of(made, folder, resume, record_profile, init, (tensorboard, wandb))
    with ExitStack() as stack:
        outcome = _train(made, options, devices, allow_changed_data, stack)
    return TrainResult(made, folder, **vars(outcome))


def report(outcome: TrainResult) -> None:
    """Print how the run ended and what to do next, by the first process of the job only."""
    _print([str(outcome)], sys.stdout)


def _train(
    run: Run | OwnRun,
    options: "Options",
    devices: int | None,
    allow_changed_data: bool,
    stack: ExitStack,
) -> "RunResult":
    with _quiet_unless_in_job():
        from scaling.training.starting import check_state_fits, start_jax

        start_jax(run, options, devices)
        import jax

        from scaling.compile.options import use_compilation_cache
        from scaling.training.checkpoint.resume import mend_finished
        from scaling.training.launch.watchdog import watchdog
        from scaling.training.loop import RunResult
        from scaling.training.loop import train as train_loop
        from scaling.training.run_folder.folder import (
            explain_unwritable,
            finished_step,
            lock_run_folder,
        )

        done = finished_step(options, run.train.steps)
        if done is not None:
            _print(mend_finished(options.folder, done))
            return RunResult(done, 0, math.nan)
        use_compilation_cache()
        watch = stack.enter_context(watchdog(options.folder, run.train))
        planned, compiled = (
            _own(run, options, jax.device_count())
            if isinstance(run, OwnRun)
            else _ours(run, options, jax.device_count(), allow_changed_data)
        )
    with lock_run_folder(options) as check:
        with _quiet_unless_in_job("compiling ..."):
            training, lines = compiled()
        check_state_fits(training.compiled)
        _print(lines)
        check()
        with explain_unwritable(options.folder):
            predicted = predict_first(planned, training, options.folder)
        return train_loop(planned, training, replace(options, predicted=predicted), check, watch)


Compiled = Callable[[], tuple["Training", list[str]]]  # with lines for the user


def _ours(
    run: Run, options: "Options", devices: int, allow_changed_data: bool
) -> tuple["PreparedRun", Compiled]:
    """Check one of our own runs; what compiles it."""
    from scaling.training.prepare import check_same_data, compile_programs, plan
    from scaling.training.starting import on_devices
    from scaling.training.transformer import training_of

    run, notice = on_devices(run, options, devices)
    run, reason = _with_remat(run, devices)
    _print([*notice, *([f"note: {reason}"] if reason else [])])
    planned = plan(run)
    if options.resume:
        _print(check_same_data(planned, options.folder, allow_changed_data))
    _print(header_lines(planned))

    def compiled() -> tuple["Training", list[str]]:
        programs = compile_programs(planned)
        lines = sharding_lines(planned, programs) + random_base_lines(run, options)
        return training_of(planned, programs, options.initial), lines

    return planned, compiled


def _with_remat(run: Run, devices: int) -> tuple[Run, str]:
    """The run with the policy that remat "auto" stands for on the devices present, and why."""
    from scaling.meshes.devices import present_mesh
    from scaling.training.running import cluster_of

    if run.remat != AUTO:
        return run, ""
    mesh = resolved_mesh(run, devices)
    check_trainable(run, mesh)
    rules_for(run, mesh)
    try:
        cluster, _ = cluster_of(present_mesh(mesh), run)
    except InputError:  # a GPU that the catalogue does not have
        cluster = None
    return with_remat(run, mesh, cluster)


def _own(run: OwnRun, options: "Options", devices: int) -> tuple["OwnPlan", Compiled]:
    """Call the function of a run and check what it returns; what compiles it."""
    from scaling.training.own import compile_own, plan_own
    from scaling.training.starting import own_continued

    planned = plan_own(own_continued(run, options, devices), options.resume)
    _print(own_header_lines(planned))
    return planned, lambda: compile_own(planned)


def predict_first(plan: "Plan", training: "Training", folder: Path) -> "Predicted | None":
    """Write the prediction before the first step; return what it says of one step, if known."""
    import jax

    from scaling.comparing.folder import remove_prediction, write_prediction
    from scaling.hlo.parse import UnknownHlo
    from scaling.report.prediction import open_lines, step_words
    from scaling.training.monitor.progress import Predicted
    from scaling.training.running import predict_compiled

    if jax.process_index() != 0:
        return None
    try:
        counted = training.tokens, training.model_flops
        priced, prediction = predict_compiled(training.compiled, plan.mesh, plan.run, None, counted)
    except (InputError, UnknownHlo) as error:  # it never stops a run
        remove_prediction(folder)
        _print([f"no prediction: {error}"])
        return None
    write_prediction(folder, plan.run, priced, prediction)
    _print(
        [
            f"predicted: {step_words(prediction, ' a step')}, "
            f"{format_memory(prediction.memory.peak)} on each device; {prediction.bottleneck}",
            *map(in_callers_words, open_lines(prediction)),
            *(f"warning: {text}" for text in prediction.warnings),
        ]
    )
    plain = lambda ratio: None if ratio is None else float(ratio)
    return Predicted(float(prediction.step_time), plain(prediction.mfu), plain(prediction.hfu))


def _quiet_unless_in_job(message: str = "") -> AbstractContextManager[None]:
    """Keep the compiler's messages in a log; not in a job, where jax says who was lost."""
    return nullcontext() if job_kind(os.environ) else quiet(message)


def _print(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Print (to stderr) by the first process of the job only."""
    import jax

    with _quiet_unless_in_job():
        is_first = jax.process_index() == 0
    if lines and is_first:
        print("\n".join(lines), file=stream or sys.stderr)
