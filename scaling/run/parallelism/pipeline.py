"""A run's pipeline over the mesh axis `stage`: its schedule, its checks and its description.

    1f1b          forward and backward passes in turn, so stages keep what remat says of
                  2 stage - 1 microbatches at most
                  (`scaling.models.pipeline.one_forward_one_backward`)
    interleaved   the same with pipeline.virtual_stages parts on each stage, so a bubble as many
                  times shorter
    gpipe         runs as 1f1b, whose bubble is as long, and which keeps no more
    circular      runs as interleaved

Imports no jax.
"""

from scaling.meshes.errors import InputError
from scaling.meshes.rules import Rules, divisors
from scaling.meshes.shape import MeshShape
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.run import OURS, Run

RUNS_AS = {"1f1b": "1f1b", "interleaved": "interleaved", "gpipe": "1f1b", "circular": "interleaved"}


def pipeline_schedule(run: Run, shape: MeshShape) -> PipelineSchedule:
    """The schedule of a step of `run`; one iteration per microbatch without stages."""
    virtual_stages = run.pipeline.virtual_stages if shape.stage > 1 else 1
    return PipelineSchedule(shape.stage, virtual_stages, run.batch.microbatches)


def check_stages(run: Run, rules: Rules) -> None:
    """Raise InputError unless layers, microbatches and sequences can be shared out over stages."""
    mesh, virtual_stages = rules.mesh, run.pipeline.virtual_stages
    if mesh.stage == 1:
        return
    _check_schedule(run, mesh)
    _check_layers(run.model.n_layers, mesh.stage, virtual_stages)
    microbatches = run.batch.microbatches
    if virtual_stages > 1 and microbatches % mesh.stage:
        local = run.batch.global_batch // mesh.batch_shards
        fitting = [m for m in range(mesh.stage, local + 1, mesh.stage) if local % m == 0]
        near = min(fitting, key=lambda m: abs(m - microbatches), default=mesh.stage)
        besides = "" if fitting else f" and a batch of a multiple of {near} for each of its shards"
        raise InputError(
            f"batch.microbatches={microbatches} is not a multiple of stage={mesh.stage}: a "
            "pipeline of several virtual stages takes as many microbatches at a time as it has "
            f"stages; use batch.microbatches of {near}{besides}, or pipeline.virtual_stages 1"
        )
    _check_sequence(run.batch.seq_len, rules)


def check_parts(run: Run, shape: MeshShape) -> None:
    """Raise InputError unless every part of a pipeline has a layer, in whatever software."""
    layers, rounds, schedule = (
        run.model.n_layers,
        run.pipeline.virtual_stages,
        run.pipeline.schedule,
    )
    if shape.stage > 1 and run.software == OURS and schedule not in RUNS_AS:
        raise InputError(
            f"pipeline.schedule={schedule!r} is of other software; use {', '.join(RUNS_AS)}, "
            "or name that software, such as --set software=megatron"
        )
    if shape.stage > 1 and run.overlap.experts and schedule == "gpipe":
        raise InputError(
            "overlap.experts lays the layers of one microbatch forward beside those of another "
            "backward, and pipeline.schedule='gpipe' ends all forward passes before any backward "
            "one; use 1f1b, interleaved, zero_bubble or dualpipe"
        )
    _check_schedule(run, shape)
    if shape.stage > 1 and (parts := shape.stage * rounds) > layers:
        product = f" x pipeline.virtual_stages={rounds} = {parts:,}" if rounds > 1 else ""
        most = layers // shape.stage
        fix = f"pipeline.virtual_stages up to {most}" if most else f"stage up to {layers}"
        raise InputError(
            f"stage={shape.stage}{product} parts of model.n_layers={layers}, each of which has a "
            f"layer or more; use {fix}"
        )


def _check_schedule(run: Run, shape: MeshShape) -> None:
    """Raise InputError for virtual stages that a schedule has not, or ends that DualPipe lacks."""
    stages, count, virtual = shape.stage, run.batch.microbatches, run.pipeline.virtual_stages
    schedule = run.pipeline.schedule
    if stages == 1:
        return
    if schedule == "dualpipe" and (virtual > 1 or stages % 2 or count % 2 or count < 2 * stages):
        raise InputError(
            "pipeline.schedule='dualpipe' takes an even number of stages, an even number of "
            f"microbatches, at least twice as many, and virtual_stages 1; got stage={stages}, "
            f"batch.microbatches={count} and pipeline.virtual_stages={virtual}"
        )
    # Megatron, and those after it, interleave 1F1B where virtual stages are asked for.
    is_interleaved = RUNS_AS.get(schedule) == "interleaved"
    if virtual > 1 and not is_interleaved and (run.software == OURS or schedule != "1f1b"):
        raise InputError(
            f"pipeline.virtual_stages={virtual} is for pipeline.schedule 'interleaved', and the "
            f"schedule is {schedule!r}; use interleaved, or virtual_stages 1"
        )


def pipeline_line(run: Run, shape: MeshShape) -> str | None:
    """The pipeline in one line, for the user to read; None without one."""
    if shape.stage == 1:
        return None
    schedule = pipeline_schedule(run, shape)
    virtual_stages = schedule.virtual_stages
    layers = run.model.n_layers // (schedule.stages * virtual_stages)
    parts = f"{virtual_stages} parts of {layers}" if virtual_stages > 1 else f"{layers}"
    idle, name = (schedule.stages - 1) / schedule.iterations, run.pipeline.schedule
    runs_as = RUNS_AS.get(name, name)
    said = name if runs_as == name else f"{name}, which runs as {runs_as}"
    return (
        f"stage={schedule.stages}: {parts} layer(s) on each, schedule {said}; "
        f"{schedule.iterations} iterations for {schedule.microbatches} microbatch(es), so each "
        f"stage is idle for {idle:.0%} of them"
    )


def _check_layers(layers: int, stages: int, virtual_stages: int) -> None:
    parts = stages * virtual_stages
    if layers % parts == 0:
        return
    fits = [n for n in divisors(layers) if layers % (n * virtual_stages) == 0]
    factor = f" x pipeline.virtual_stages={virtual_stages} = {parts}"
    product = factor if virtual_stages > 1 else ""
    choices = f"stage of {', '.join(map(str, fits))}" if fits else ""
    if virtual_stages > 1 and layers % stages == 0:
        others = ", ".join(map(str, divisors(layers // stages)))
        choices += f"{', or ' if choices else ''}pipeline.virtual_stages of {others}"
    up = -(-layers // parts) * parts
    raise InputError(
        f"model.n_layers={layers} is not divisible by stage={stages}{product}: every stage has as "
        f"many layers; use {choices or 'pipeline.virtual_stages 1'}, or model.n_layers of {up}"
    )


def _check_sequence(seq_len: int, rules: Rules) -> None:
    """The head's tokens are shared out over stages, inside the other cuts of the sequence."""
    cut = tuple(dict.fromkeys((*rules.axes("sequence"), *rules.axes("residual"))))
    parts = rules.mesh.size((*cut, "stage"))
    if seq_len % parts == 0:
        return
    product = " x ".join(f"{axis}={getattr(rules.mesh, axis)}" for axis in (*cut, "stage"))
    up = -(-seq_len // parts) * parts
    raise InputError(
        f"batch.seq_len={seq_len} is not divisible by {product}"
        f"{f' = {parts}' if cut else ''}: stages share out the tokens of the output head; use "
        f"batch.seq_len of {up}"
    )
