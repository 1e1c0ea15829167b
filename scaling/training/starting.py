"""Before a run trains: its folder and options, its devices, and what a resumed one goes on with."""

import json
import math
import os
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import jax

from scaling.meshes.devices import use_host_devices
from scaling.meshes.errors import InputError, reworded
from scaling.meshes.units import format_memory
from scaling.models.accounting import count_parameters
from scaling.models.accounting.remat import AUTO
from scaling.models.config import ModelConfig, with_positions
from scaling.run import Run, load_run
from scaling.run.own import OwnRun, load_any
from scaling.run.parallelism.checks import check_trainable
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.run.recipes import with_dividing_microbatches
from scaling.run.reference import with_teacher_model
from scaling.training.launch.distributed import job_kind, start_distributed
from scaling.training.launch.gpu import reserve_gpu_memory
from scaling.training.monitor.profile import parse_range
from scaling.training.run_folder.folder import Options, check_folder
from scaling.training.run_folder.metrics import check_sinks
from scaling.training.trained_model import check_teacher
from scaling.training.weights.imported import open_weights


def options_of(
    run: Run | OwnRun,
    folder: Path,
    resume: bool,
    record_profile: str | None,
    init: Path | str | None,
    sinks: tuple[bool, bool],
) -> Options:
    """Check the folder, the profile's steps, the sinks and the initial weights."""
    profile = parse_range(record_profile, run.train.steps) if record_profile else None
    if isinstance(run, OwnRun) and init is not None:
        raise InputError(f"--init: {run.function} makes its own state: read the weights there")
    if profile and isinstance(run, Run) and run.train.pgle_runs:
        raise InputError(
            f"--record-profile {record_profile} with train.pgle_runs={run.train.pgle_runs}: one "
            "profiler runs at a time; record in another run, or use train.pgle_runs=0"
        )
    names = tuple(n for n, on in zip(("tensorboard", "wandb"), sinks, strict=True) if on)
    initial = None if init is None else Path(init)
    options = Options(folder, resume, profile, names, initial=initial)
    check_sinks(names)
    check_folder(options)
    if resume and isinstance(run, Run):
        _check_same_model(run, folder)
    elif isinstance(run, Run):
        if initial is not None:
            open_weights(initial, run.model)
        check_teacher(run)
    return options


def _check_same_model(run: Run, folder: Path) -> None:
    """Refuse to resume a run with other parameters, or other ones trained, before any writing."""
    try:
        before = load_run(folder / "run.json")
    except InputError:  # missing, or only written in part; the checkpoint says what it holds
        return
    size = lambda run: count_parameters(with_positions(run.model, run.batch.seq_len)).total
    there, here = size(before), size(run)
    if there != here:
        raise InputError(
            f"{folder} belongs to another run: its model has {there:,} parameters, this one "
            f"{here:,}; choose another --run-dir, or the model of {folder / 'run.json'}"
        )
    whole = "loss", "lora", "freeze", "trainable", "ema"
    run, teacher = with_teacher_of(before, run), _teacher(run)
    if teacher not in (None, own := _teacher(before)) and own:
        there, here = (count_parameters(model).total for model in (own, teacher))
        raise InputError(
            f"--resume: train.loss.teacher has another shape ({here:,} parameters) than the one "
            f"that {folder} was trained with ({there:,}), whose weights its checkpoint holds: name "
            "that one, or start in another --run-dir"
        )
    for key in (*(f"train.{name}" for name in whole), "precision.frozen"):
        # A setting as `--set` takes it.
        was, now = (json.dumps(attrgetter(key)(r), default=vars) for r in (before, run))
        if was != now:
            raise InputError(
                f"--resume: {folder} was trained with {key}={was}, not {now}: leave it as it was, "
                "or start in another --run-dir from its weights (scaling export, then --init)"
            )


def _teacher(run: Run) -> ModelConfig | None:
    """The shape of a run's teacher; None: it has none, or its folder has gone."""
    try:
        loss = with_teacher_model(run).train.loss
    except InputError:
        return None
    return loss.teacher_model if loss else None


def with_teacher_of(before: Run | OwnRun | None, run: Run) -> Run:
    """A resumed run with the teacher that it began with, if it still has one.

    Its shape is in run.json and its weights are in the checkpoint, so its folder may have moved.
    """
    there, loss = before.train.loss if isinstance(before, Run) else None, run.train.loss
    if not (there and loss and there.teacher and loss.teacher):
        return run
    loss = replace(loss, teacher=there.teacher, teacher_model=there.teacher_model)
    return replace(run, train=replace(run.train, loss=loss))


def start_jax(run: Run | OwnRun, options: Options, devices: int | None) -> None:
    """Make the fake devices that are wanted, or join the other processes of a job."""
    if isinstance(run, Run):
        check_device_count(run, options, devices)
    if devices is not None:
        use_host_devices(devices)
    reserve_gpu_memory()
    start_distributed()


def check_device_count(run: Run, options: Options, devices: int | None) -> None:
    """Refuse, before fake devices are made, a number of them that the run cannot use."""
    if devices is None or devices < 1 or job_kind(os.environ):  # one of several processes
        return
    run, _ = on_devices(run, options, devices)
    with reworded(f"--devices {devices}: "):
        mesh = resolved_mesh(run, devices)
        check_trainable(run, mesh)
        rules_for(run, mesh)


def on_devices(run: Run, options: Options, devices: int) -> tuple[Run, list[str]]:
    """Return the run with microbatches for its mesh (of its folder if resumed), and notes."""
    run, notice = continued(with_teacher_of(_before(options), run), options, devices)
    mesh = run.mesh or resolved_mesh(run, devices)
    run, lowered = with_dividing_microbatches(run, mesh)
    if run.remat == AUTO and (before := _before(options)):
        if isinstance(before, Run) and (before.mesh, before.batch) == (mesh, run.batch):
            run = replace(run, remat=before.remat)
            lowered = [*lowered, f"remat auto: {run.remat}, as in {options.folder}"]
    return run, notice + [f"note: {line}" for line in lowered]


def _before(options: Options) -> Run | OwnRun | None:
    """The run of the folder that is resumed; None: none is, or it is missing or torn."""
    try:
        return load_any(options.folder / "run.json") if options.resume else None
    except InputError:
        return None


def own_continued(run: OwnRun, options: Options, devices: int) -> OwnRun:
    """Return a resumed run with the mesh of its folder, if it names none and has the devices."""
    before = None if run.mesh else _before(options)
    fits = isinstance(before, OwnRun) and math.prod(before.mesh.values()) == devices
    return replace(run, mesh=before.mesh) if isinstance(before, OwnRun) and fits else run


def continued(run: Run, options: Options, devices: int) -> tuple[Run, list[str]]:
    """Return a resumed run with the mesh of its folder if it names none, and what to print."""
    if not options.resume or run.mesh is not None:
        return run, []
    there = _before(options)
    before = there.mesh if isinstance(there, Run) else None
    if before is not None and before.devices == devices:
        return replace(run, mesh=before, device_order=before.device_order), []
    now = resolved_mesh(run, devices)
    was = f"{before} before" if before else "its mesh before is not known"
    return run, [f"resumed on mesh {now}, all {devices} devices ({was}); --mesh names another"]


def check_state_fits(step: jax.stages.Compiled) -> None:
    """Refuse a step whose arguments alone, mostly parameters and their moments, exceed a device."""
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
