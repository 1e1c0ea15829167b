"""`scaling train`: from words on the command line to a run folder."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from scaling.meshes.errors import InputError, check_range
from scaling.parallelism.pipeline import pipeline_line
from scaling.parallelism.rules import resolved_mesh, rules_for, with_mesh
from scaling.parallelism.sequence import sequence_cut
from scaling.recipes import resolve, with_steps
from scaling.report.formatting import memory_words, time_words
from scaling.run import Run, load_run

if TYPE_CHECKING:  # they import jax, which must wait until the devices are asked for
    from scaling.train.loop import RunResult
    from scaling.train.prepare import Plan, Programs
    from scaling.train.run_folder import Options


MOST_CODE = 125  # exit codes above are the shell's own (POSIX)
OTHER_CODES = {1: "failed", 2: "was given bad input"}  # of `scaling.cli.main`


@dataclass(frozen=True)
class TrainArguments:
    """What the user typed after `scaling train`."""

    run: str
    mesh: str | None = None
    steps: int | None = None
    run_dir: Path | None = None
    resume: bool = False
    devices: int | None = None
    record_profile: str | None = None
    restarts: int = 0
    sinks: tuple[str, ...] = ()
    stopped_code: int = 0
    init: Path | None = None


def train_command(given: TrainArguments) -> int:
    """Train the run that is named; returns the exit code."""
    from scaling.train.launch.broken_pipe import ignore_broken_pipe
    from scaling.train.launch.distributed import NotJoined, job_kind
    from scaling.train.launch.supervisor import (
        LOST,
        die_with_parent,
        is_worker,
        run_with_restarts,
    )

    run = with_mesh(with_steps(resolve(given.run), given.steps), given.mesh)
    folder = given.run_dir or Path("runs") / _as_folder(run.name)
    with ignore_broken_pipe():
        if given.restarts or (job_kind(os.environ) and not is_worker()):
            words, code = _words(given), given.stopped_code
            return run_with_restarts(words, given.restarts, folder, stopped_code=code)
        if is_worker():
            die_with_parent()
        try:
            return _train(run, given, folder)
        except NotJoined as error:
            print(f"error: {error}", file=sys.stderr)
            return LOST


def _as_folder(name: str) -> str:
    """The run's name, if it can be the name of a folder below runs/."""
    if not name or name == ".." or "\0" in name or Path(name).name != name:
        raise InputError(f"the run's name {name!r} cannot be a folder's name; give --run-dir")
    return name


def _train(run: Run, given: TrainArguments, folder: Path) -> int:
    import jax

    from scaling.compile.options import use_compilation_cache
    from scaling.meshes.devices import use_host_devices
    from scaling.train.launch.distributed import start_distributed
    from scaling.train.launch.gpu import reserve_gpu_memory
    from scaling.train.loop import RunResult
    from scaling.train.monitor.goodput import began
    from scaling.train.monitor.metrics import check_sinks
    from scaling.train.monitor.profile import parse_range
    from scaling.train.prepare import plan
    from scaling.train.run_folder import Options, check_folder, finished_step, lock_run_folder
    from scaling.weights.imported import open_weights

    _check_stopped_code(given.stopped_code)
    profile = parse_range(given.record_profile, run.train.steps) if given.record_profile else None
    options = Options(folder, given.resume, profile, given.sinks, began=began(), initial=given.init)
    check_sinks(given.sinks)
    check_folder(options)
    if given.init is not None and not given.resume:
        open_weights(given.init, run.model)
    _check_asked(run, given, folder)
    if given.devices is not None:
        use_host_devices(given.devices)
    reserve_gpu_memory()
    start_distributed()
    done = finished_step(options, run.train.steps)
    if done is not None:
        _say(_ending(RunResult(done, 0, math.nan), folder), sys.stdout)
        return 0
    use_compilation_cache()
    run, changed = _continued(run, given, folder, jax.device_count())
    _say(changed)
    planned = plan(run)
    _say(_header(planned))
    with lock_run_folder(folder):
        return _run(planned, options, given.stopped_code)


def _run(planned: "Plan", options: "Options", stopped_code: int) -> int:
    """Compile, predict, train, and say how it went."""
    from scaling.train.launch.stopping import NotFinite
    from scaling.train.loop import train
    from scaling.train.prepare import compile_programs

    folder = options.folder
    programs = compile_programs(planned)
    _say(_sharding(planned, programs))
    try:
        outcome = train(
            planned, programs, replace(options, predicted=_predict(planned, programs, folder))
        )
    except NotFinite as error:
        _say([f"stopped: {error}"])
        return 1
    _say(_ending(outcome, folder), sys.stdout)
    return stopped_code if outcome.stopped_by else 0


def _check_stopped_code(code: int) -> None:
    """Refuse a code that the shell has, or that says something else."""
    check_range("--stopped-code", code, 0, MOST_CODE)
    if code in OTHER_CODES:
        raise InputError(
            f"--stopped-code {code} also says that a run {OTHER_CODES[code]}; choose 0, or 3 to "
            f"{MOST_CODE}"
        )


def _check_asked(run: Run, given: TrainArguments, folder: Path) -> None:
    """Refuse, before fake devices are made, a number of them that the run cannot use."""
    from scaling.parallelism.checks import check_trainable
    from scaling.train.launch.distributed import job_kind

    if given.devices is None or given.devices < 1 or job_kind(os.environ):  # of several processes
        return
    run, _ = _continued(run, given, folder, given.devices)
    try:
        mesh = resolved_mesh(run, given.devices)
        check_trainable(run, mesh)
        rules_for(run, mesh)
    except InputError as error:
        raise InputError(f"--devices {given.devices}: {error}") from None


def _continued(
    run: Run, given: TrainArguments, folder: Path, devices: int
) -> tuple[Run, list[str]]:
    """A resumed run that names no mesh keeps that of its folder, or says what it is now."""
    if not given.resume or run.mesh is not None:
        return run, []
    try:
        before = load_run(folder / "run.json").mesh
    except InputError:  # missing, or cut short
        before = None
    if before is not None and before.devices == devices:
        return replace(run, mesh=before, device_order=before.device_order), []
    now = resolved_mesh(run, devices)
    was = f"{before} before" if before else "its mesh before is not known"
    return run, [f"resumed on mesh {now}, all {devices} devices ({was}); --mesh names another"]


def _predict(plan: "Plan", programs: "Programs", folder: Path) -> float | None:
    """Write what is predicted before the first step; the seconds of one step, if they are known."""
    import jax

    from scaling.compare.folder import remove_prediction, write_prediction
    from scaling.train.monitor.predicted import try_to_predict

    if jax.process_index() != 0:
        return None
    made = try_to_predict(plan, programs)
    if isinstance(made, str):
        remove_prediction(folder)
        _say([made])
        return None
    priced, prediction = made
    write_prediction(folder, plan.run, priced, prediction)
    low, high = time_words(prediction.step_time_low), time_words(prediction.step_time_high)
    _say(
        [
            f"predicted: {time_words(prediction.step_time)} a step ({low} to {high}), "
            f"{memory_words(prediction.memory.peak)} on each device; {prediction.bottleneck}",
            *(f"warning: {text}" for text in prediction.warnings),
        ]
    )
    return float(prediction.step_time)


def _ending(outcome: "RunResult", folder: Path) -> list[str]:
    """How it went, and what to do next."""
    if outcome.stopped_by:
        saved = f"saved at step {outcome.step}" if outcome.new_steps else "before the first step"
        return [f"stopped by {outcome.stopped_by}: {saved}", "next: the same command with --resume"]
    if not outcome.new_steps:
        return [f"already trained to step {outcome.step}: {folder}", "next: give a larger --steps"]
    done = f"trained to step {outcome.step}, loss {outcome.loss:.4f}: {folder}"
    next_steps = [f'next: scaling sample {folder} --prompt "def "']
    if (folder / "predicted.json").is_file():
        next_steps.append(f"next: scaling compare {folder}")
    return [done, *next_steps]


def _header(plan: "Plan") -> list[str]:
    """What is about to run, in a few lines."""
    from scaling.models.accounting import count_parameters

    run = plan.run
    cut = sequence_cut(run, plan.run.mesh) if plan.run.mesh else None
    device = plan.mesh.devices.flat[0]
    count = count_parameters(run.model).total
    batch = run.batch
    return [
        f"{run.name}: {count / 1e6:,.1f} M parameters on {run.mesh} ({plan.mesh.size} x "
        f"{device.device_kind}), {run.precision.compute}, remat {run.remat}, attention "
        f"{plan.execution.attention_kernel}",
        *([str(cut)] if cut else []),
        *filter(None, [pipeline_line(run, run.mesh) if run.mesh else None]),
        f"step: {batch.global_batch} sequences x {batch.seq_len} tokens = {batch.tokens:,} tokens"
        f" in {batch.microbatches} microbatch(es); data: {plan.source.description}",
    ]


def _sharding(plan: "Plan", programs: "Programs") -> list[str]:
    """The sharding table and its warnings."""
    from scaling.parallelism.rules import notes
    from scaling.report.shardings import rows, table, warnings

    all_rows = rows(programs.state.params, plan.rules)
    notices = notes(plan.run, plan.rules) + warnings(all_rows)
    return [table(all_rows), *(f"warning: {line}" for line in notices)]


def _say(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Print (to stderr) by the first process of the job only."""
    import jax

    if lines and jax.process_index() == 0:
        print("\n".join(lines), file=stream or sys.stderr)


def _words(given: TrainArguments) -> list[str]:
    """The arguments as a command line again, without --restarts."""
    flags = {
        "--mesh": given.mesh,
        "--steps": given.steps,
        "--run-dir": given.run_dir,
        "--devices": given.devices,
        "--record-profile": given.record_profile,
        "--stopped-code": given.stopped_code or None,
        "--init": given.init,
    }
    words = ["train", given.run]
    for flag, value in flags.items():
        words += [] if value is None else [flag, str(value)]
    switches = ["--resume"] if given.resume else []
    return words + switches + [f"--{sink}" for sink in given.sinks]
