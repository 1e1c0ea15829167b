"""Train a run: checks, devices, compilation, the prediction that stands beside it, the loop."""

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from scaling.api.inputs import MeshLike, RunLike, load_run
from scaling.api.public_api import entrance
from scaling.api.settings import Settings
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_memory
from scaling.models.accounting import count_parameters
from scaling.models.config import with_positions
from scaling.run import Run
from scaling.run import load_run as load_run_file
from scaling.run.parallelism.pipeline import pipeline_line
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.run.parallelism.sequence import sequence_cut
from scaling.run.recipes import with_dividing_microbatches, with_steps

if TYPE_CHECKING:  # they import jax, which must wait until the devices are known
    import jax

    from scaling.training.loop import RunResult
    from scaling.training.monitor.utilization import Predicted
    from scaling.training.prepare import Plan, Programs
    from scaling.training.run_folder.folder import Options


@entrance
def train(
    run: RunLike,
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
) -> "RunResult":
    """Train a run on the devices present and return its last step and loss.

    The run folder gets run.json, metrics.jsonl, predicted.json, measured.json and checkpoints/.

    >>> import scaling as sc
    >>> outcome = sc.train("tiny", devices=8, run_dir="runs/tiny")   # doctest: +SKIP
    >>> outcome.step, outcome.loss < 7                               # doctest: +SKIP
    (20, True)

    Args:
        run: recipe name, `file.py:function`, run.json or its folder, mapping, or Run.
        mesh: replaces the run's mesh; without either, all devices are `fsdp`.
        device_order: axes, outermost first; see `load_run`.
        set: values of the run by dotted key; see `load_run`.
        steps: train to this step instead of the run's.
        run_dir: folder of the run; None: runs/NAME.
        resume: continue from the newest checkpoint in the folder.
        devices: number of fake host devices, where no accelerator is present.
        record_profile: "FROM:TO", steps to record with jax.profiler.
        init: safetensors weights to begin with, in Hugging Face's names.
        tensorboard: also write TensorBoard events.
        wandb: also log to Weights & Biases.
        allow_changed_data: resume also where files of the data have changed.

    Raises:
        InputError: whatever does not fit, before anything is compiled.
        NotFinite: the loss or a gradient is not finite.
    """
    run = with_steps(load_run(run, mesh=mesh, device_order=device_order, set=set), steps)
    folder = Path(run_dir) if run_dir is not None else default_folder(run)
    with _quiet():  # imports jax
        options = _options(run, folder, resume, record_profile, init, (tensorboard, wandb))
    return _train(run, options, devices, allow_changed_data)


def default_folder(run: Run) -> Path:
    """Return runs/NAME.

    Raises:
        InputError: the run's name cannot be the name of a folder.
    """
    name = run.name
    if not name or name == ".." or "\0" in name or Path(name).name != name:
        raise InputError(f"the run's name {name!r} cannot be a folder's name; give --run-dir")
    return Path("runs") / name


def report(outcome: "RunResult", run: Run, folder: Path) -> None:
    """Print how the run ended and what to do next, by the first process of the job only."""
    _print(_ending(outcome, run, folder), sys.stdout)


def _options(
    run: Run,
    folder: Path,
    resume: bool,
    record_profile: str | None,
    init: Path | str | None,
    sinks: tuple[bool, bool],
) -> "Options":
    """Check the folder, the profile's steps, the sinks and the initial weights."""
    from scaling.training.monitor.goodput import began
    from scaling.training.monitor.profile import parse_range
    from scaling.training.monitor.sinks import check_sinks
    from scaling.training.run_folder.folder import Options, check_folder
    from scaling.training.weights.imported import open_weights

    profile = parse_range(record_profile, run.train.steps) if record_profile else None
    if profile and run.train.pgle_runs:
        raise InputError(
            f"--record-profile {record_profile} with train.pgle_runs={run.train.pgle_runs}: one "
            "profiler runs at a time; record in another run, or use train.pgle_runs=0"
        )
    names = tuple(n for n, on in zip(("tensorboard", "wandb"), sinks, strict=True) if on)
    initial = None if init is None else Path(init)
    options = Options(folder, resume, profile, names, began=began(), initial=initial)
    check_sinks(names)
    check_folder(options)
    if resume:
        _check_same_model(run, folder)
    if initial is not None and not resume:
        open_weights(initial, run.model)
    return options


def _check_same_model(run: Run, folder: Path) -> None:
    """Refuse to resume a run with other parameters, or other ones trained, before any writing."""
    try:
        before = load_run_file(folder / "run.json")
    except InputError:  # missing, or only written in part; the checkpoint says what it holds
        return
    counts = [
        count_parameters(with_positions(r.model, r.batch.seq_len)).total for r in (before, run)
    ]
    if counts[0] != counts[1]:
        raise InputError(
            f"{folder} belongs to another run: its model has {counts[0]:,} parameters, this one "
            f"{counts[1]:,}; choose another --run-dir, or the model of {folder / 'run.json'}"
        )
    for key in ("train.lora", "train.freeze", "train.trainable", "train.ema", "precision.frozen"):
        there, here = (attrgetter(key)(each) for each in (before, run))
        if there != here:
            raise InputError(
                f"--resume: {folder} was trained with {key}={_as_json(there)}, not "
                f"{_as_json(here)}: leave it as it was, or start in another --run-dir from its "
                "weights (scaling export, then --init)"
            )


def _as_json(value: Any) -> str:
    """A setting as `--set` takes it."""
    return json.dumps(value, default=vars)


def _train(
    run: Run, options: "Options", devices: int | None, allow_changed_data: bool
) -> "RunResult":
    with _quiet():
        _start_jax(run, options, devices)
        import jax

        from scaling.compile.options import use_compilation_cache
        from scaling.training.checkpoint.resume import mend_finished
        from scaling.training.loop import RunResult
        from scaling.training.loop import train as train_loop
        from scaling.training.prepare import check_same_data, compile_programs, plan
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
        run, notice = _on_devices(run, options, jax.device_count())
        _print(notice)
        planned = plan(run)
        if options.resume:
            _print(check_same_data(options.folder, planned.sums, allow_changed_data))
        _print(_header(planned))
    with lock_run_folder(options) as check:
        with _quiet("compiling ..."):
            programs = compile_programs(planned)
        _check_state_fits(programs.step)
        _print(_sharding(planned, programs) + _random_base(run, options))
        check()
        with explain_unwritable(options.folder):
            predicted = predict_first(planned, programs, options.folder)
        return train_loop(planned, programs, replace(options, predicted=predicted), check)


def _start_jax(run: Run, options: "Options", devices: int | None) -> None:
    """Make the fake devices that are wanted, or join the other processes of a job."""
    from scaling.meshes.devices import use_host_devices
    from scaling.training.launch.distributed import start_distributed
    from scaling.training.launch.gpu import reserve_gpu_memory

    check_device_count(run, options, devices)
    if devices is not None:
        use_host_devices(devices)
    reserve_gpu_memory()
    start_distributed()


def _quiet(message: str = "") -> AbstractContextManager[None]:
    """Keep the compiler's messages in a log; not in a job, where jax says who was lost."""
    from scaling.compile.quiet import quiet
    from scaling.training.launch.distributed import job_kind

    return nullcontext() if job_kind(os.environ) else quiet(message)


def check_device_count(run: Run, options: "Options", devices: int | None) -> None:
    """Refuse, before fake devices are made, a number of them that the run cannot use."""
    from scaling.run.parallelism.checks import check_trainable
    from scaling.training.launch.distributed import job_kind

    if devices is None or devices < 1 or job_kind(os.environ):  # one of several processes
        return
    run, _ = _on_devices(run, options, devices)
    try:
        mesh = resolved_mesh(run, devices)
        check_trainable(run, mesh)
        rules_for(run, mesh)
    except InputError as error:
        raise InputError(f"--devices {devices}: {error}") from None


def _on_devices(run: Run, options: "Options", devices: int) -> tuple[Run, list[str]]:
    """Return the run with microbatches for its mesh (of its folder if resumed), and notes."""
    run, notice = continued(run, options, devices)
    run, lowered = with_dividing_microbatches(run, run.mesh or resolved_mesh(run, devices))
    return run, notice + [f"note: {line}" for line in lowered]


def continued(run: Run, options: "Options", devices: int) -> tuple[Run, list[str]]:
    """Return a resumed run with the mesh of its folder if it names none, and what to print."""
    if not options.resume or run.mesh is not None:
        return run, []
    try:
        before = load_run_file(options.folder / "run.json").mesh
    except InputError:  # missing, or only written in part
        before = None
    if before is not None and before.devices == devices:
        return replace(run, mesh=before, device_order=before.device_order), []
    now = resolved_mesh(run, devices)
    was = f"{before} before" if before else "its mesh before is not known"
    return run, [f"resumed on mesh {now}, all {devices} devices ({was}); --mesh names another"]


def _check_state_fits(step: "jax.stages.Compiled") -> None:
    """Refuse a step whose arguments alone, mostly parameters and their moments, exceed a device."""
    import jax

    plan, devices = step.memory_analysis(), jax.local_devices()
    if plan is None:
        return
    size = plan.argument_size_in_bytes
    of_host = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // len(devices)
    limit = (devices[0].memory_stats() or {}).get("bytes_limit", of_host)
    if size > limit:
        raise InputError(
            f"parameters and optimizer state take {format_memory(size)} of each device, which has "
            f"{format_memory(limit)}: use more devices, more fsdp in the mesh, or a smaller model"
        )


def predict_first(plan: "Plan", programs: "Programs", folder: Path) -> "Predicted | None":
    """Write the prediction before the first step; return what it says of one step, if known."""
    import jax

    from scaling.comparing.folder import remove_prediction, write_prediction
    from scaling.report.prediction import open_lines, step_words
    from scaling.training.monitor.utilization import Predicted
    from scaling.training.running import try_to_predict

    if jax.process_index() != 0:
        return None
    made = try_to_predict(programs.step, plan.mesh, plan.run)
    if isinstance(made, str):
        remove_prediction(folder)
        _print([made])
        return None
    priced, prediction = made
    write_prediction(folder, plan.run, priced, prediction)
    _print(
        [
            f"predicted: {step_words(prediction, ' a step')}, "
            f"{format_memory(prediction.memory.peak)} on each device; {prediction.bottleneck}",
            *open_lines(prediction),
            *(f"warning: {text}" for text in prediction.warnings),
        ]
    )
    known = lambda ratio: None if ratio is None else float(ratio)
    return Predicted(float(prediction.step_time), known(prediction.mfu), known(prediction.hfu))


def _ending(outcome: "RunResult", run: Run, folder: Path) -> list[str]:
    """Return how the run ended, and what to do next."""
    if outcome.stopped_by:
        saved = f"saved at step {outcome.step}" if outcome.new_steps else "before the first step"
        again = " with --resume" if outcome.step else ""  # else nothing was ever saved
        return [f"stopped by {outcome.stopped_by}: {saved}", f"next: the same command{again}"]
    if not outcome.new_steps:
        return [f"already trained to step {outcome.step}: {folder}", "next: give a larger --steps"]
    done = f"trained to step {outcome.step}, loss {outcome.loss:.4f}: {folder}"
    next_steps = [f"next: {_use_of_checkpoint(run, folder)}"]
    if (folder / "predicted.json").is_file():
        next_steps.append(f"next: {shlex.join(['scaling', 'compare', str(folder)])}")
    return [done, *next_steps]


def _use_of_checkpoint(run: Run, folder: Path) -> str:
    """Return the command that samples from a run on text, or exports another."""
    from scaling.training.trained_model import tokenizer_of

    try:
        tokenizer_of(run)
    except InputError:
        return shlex.join(["scaling", "export", str(folder), "--output", f"{folder}-weights"])
    prompt = "def " if run.train.data == "stdlib" else "The "
    return shlex.join(["scaling", "sample", str(folder), "--prompt", prompt])


def _header(plan: "Plan") -> list[str]:
    """Return what is about to run, in a few lines."""
    from scaling.models.accounting import count_parameters

    run, batch, device = plan.run, plan.run.batch, plan.mesh.devices.flat[0]
    count = count_parameters(run.model).total
    split = [sequence_cut(run, run.mesh), pipeline_line(run, run.mesh)] if run.mesh else []
    return [
        f"{run.name}: {count / 1e6:,.1f} M parameters on {run.mesh} ({plan.mesh.size} x "
        f"{device.device_kind}), {run.precision.compute}, remat {run.remat}, attention "
        f"{plan.execution.attention_kernel}",
        *(str(line) for line in split if line),
        f"step: {batch.global_batch} sequences x {batch.seq_len} tokens = {batch.tokens:,} tokens"
        f" in {batch.microbatches} microbatch(es); data: {plan.source.description}",
    ]


def _sharding(plan: "Plan", programs: "Programs") -> list[str]:
    """Return the sharding table and its warnings."""
    from scaling.report.shardings import rows, table, warnings
    from scaling.run.parallelism.rules import notes
    from scaling.training.optim.trained import trained_line

    rules = plan.execution.rules
    all_rows = rows(programs.state.params, rules)
    notices = notes(plan.run, rules) + warnings(all_rows)
    lines = [table(all_rows), *(f"warning: {line}" for line in notices)]
    return lines + trained_line(programs.state.params, plan.run.train)


def _random_base(run: Run, options: "Options") -> list[str]:
    """Return a warning where what is frozen is random, which is seldom meant."""
    if run.train.trains_all or options.initial is not None or options.resume:
        return []
    return ["warning: what is frozen stays random; --init FOLDER begins from trained weights"]


def _print(lines: Sequence[str], stream: TextIO | None = None) -> None:
    """Print (to stderr) by the first process of the job only."""
    import jax

    with _quiet():
        is_first = jax.process_index() == 0
    if lines and is_first:
        print("\n".join(lines), file=stream or sys.stderr)
