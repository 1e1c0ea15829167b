"""Everything before the first step: checks, data, mesh, compiled programs; cheap checks first."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from scaling.compile.options import compile_with, compiler_options
from scaling.meshes.devices import present_mesh
from scaling.meshes.errors import InputError, reworded
from scaling.meshes.shape import MeshShape
from scaling.models.adapters import without_adapters
from scaling.models.attention_kernels.zigzag import zigzag_order
from scaling.models.execution import Execution
from scaling.models.transformer import Transformer
from scaling.run import Run, run_dict
from scaling.run.parallelism.checks import check_device, check_settings, check_trainable
from scaling.run.parallelism.rules import resolved_mesh, rules_for
from scaling.run.reference import reference_run, with_teacher_model
from scaling.training.checkpoint.read import place_in_data
from scaling.training.data.batches import Batch, check_order, order_of
from scaling.training.data.sources import open_data
from scaling.training.data.sums import Sums, changed_files, data_sums, named
from scaling.training.data.tokens import Source, fingerprint, parts_of
from scaling.training.execution import execution_on
from scaling.training.launch.consensus import mismatched_processes, refused_by_all
from scaling.training.optim.trained import joined
from scaling.training.run_folder.steps import latest_step, step_path
from scaling.training.step import (
    Tokens,
    TrainState,
    abstract_arguments,
    eval_step,
    init_state,
    jitted_step,
    state_of,
)
from scaling.training.trained_model import newest_model, run_of_folder
from scaling.training.weights.imported import import_weights
from scaling.training.weights.naming import from_dict, reorder_layers, to_dict


@dataclass(frozen=True)
class PreparedRun:
    """A run that has passed every check that needs no device program."""

    run: Run  # with its mesh filled in
    execution: Execution
    mesh: Mesh
    source: Source
    sums: Sums | None = None  # of the files of the data, by process 0


@dataclass(frozen=True)
class Programs:
    """The compiled programs of a run, and the shapes they take. Use them under `plan.mesh`."""

    state: TrainState  # of ShapeDtypeStruct
    tokens: Tokens  # of ShapeDtypeStruct
    init: Callable[[], TrainState]
    step: jax.stages.Compiled
    evaluate: Callable[..., jax.Array]
    run_step: Callable[[TrainState, Tokens], tuple[TrainState, dict]]  # `step`, or under AutoPGLE


def plan(run: Run) -> PreparedRun:
    """Check the run against the devices present and open its data.

    Raises:
        InputError: whatever does not fit, with the numbers and the fix.
    """
    check_settings(run)
    mesh = resolved_mesh(run, None)  # of the run itself, before jax makes devices
    check_trainable(run, mesh)
    if run.mesh is not None:
        rules_for(run, mesh)
    mesh = resolved_mesh(run, jax.device_count())
    rules = rules_for(run, mesh)
    source = _same_source(run)
    check_device(run, jax.devices()[0])
    if run.train.pgle_runs and jax.devices()[0].platform != "gpu":
        raise InputError(
            f"train.pgle_runs={run.train.pgle_runs}: jax profiles steps on GPUs only, and these "
            f"devices are {jax.devices()[0].device_kind}; use 0"
        )
    execution = execution_on(jax.devices()[0], run, rules)
    sums = data_sums(run.train) if jax.process_index() == 0 else None
    run = with_teacher_model(replace(run, mesh=mesh))
    return PreparedRun(run, execution, present_mesh(mesh), source, sums)


def _same_source(run: Run) -> Source:
    """The run's data; raises InputError on all processes unless all can use the same."""
    with refused_by_all(
        f"another process cannot use the data {run.train.data!r} on its host, and prints why: put "
        "the same files on every host"
    ):
        source = open_data(run.train, run.model.vocab_size, run.batch.seq_len)
        windows = sum(len(part.train) for _, part, _ in parts_of(source))
        if run.batch.global_batch > windows:
            raise InputError(
                f"batch.global_batch={run.batch.global_batch} sequences of {run.batch.seq_len} "
                f"tokens is more than the data's {windows} ({source.description}); use at most "
                f"{windows}, or more data"
            )
    if others := mismatched_processes(fingerprint(source)):
        raise InputError(
            f"the data of processes {', '.join(map(str, others))} are not those of process 0: here "
            f'{source.description}. Name the same files on every host ("stdlib" differs from one '
            "version of Python to the next)."
        )
    return source


def check_same_data(plan: PreparedRun, folder: Path, allowed: bool) -> list[str]:
    """Refuse, on all processes, to resume with data that have changed; lines where it is allowed.

    Raises:
        InputError: by process 0 with the files, each with how it differs; or what decides the order
            of their sequences, such as their number of tokens, is not as it was.
    """
    with refused_by_all("process 0 found that the data have changed, and says which"):
        changed = named(changed_files(folder, plan.sums)) if plan.sums is not None else ""
        if changed and not allowed:
            raise InputError(
                f"--resume: the data have changed since the run began: {changed}. Put them back, "
                "start in another --run-dir, or, if they have as many tokens as before, go on with "
                "them by --allow-changed-data."
            )
        step = latest_step(folder / "checkpoints") if plan.sums is not None else None
        place = place_in_data(step_path(folder / "checkpoints", step)) if step else {}
        if place:  # of a damaged checkpoint it is {}: the one before it is told later
            order = order_of(plan.source, rows_of_batch(plan.run), plan.run.train.seed)
            check_order(place, order)
    return [f"warning: the data have changed: {changed}"] if changed else []


def compile_programs(plan: PreparedRun) -> Programs:
    """Lower and compile the step with the project's compiler options."""
    run, execution = plan.run, plan.execution
    with jax.set_mesh(plan.mesh):
        state, tokens = abstract_arguments(run, execution)
        train = run.train
        platform = plan.mesh.devices.flat[0].platform
        options = compiler_options(platform, train.deterministic, train.xla)
        lowered = jitted_step(run).lower(state, tokens)
        step = compile_with(lowered, options)
        init = jax.jit(lambda: init_state(run, execution))
        evaluation = functools.partial(eval_step, train)
        evaluate: Callable[..., jax.Array] = jax.jit(evaluation)
        if run.train.eval_every:  # now, not hours into the run
            lowered = jax.jit(evaluation).lower(state.params, tokens, state.reference)
            evaluate = compile_with(lowered, options)
        run_step: Callable = step
        if run.train.pgle_runs:
            # AutoPGLE: jax profiles the first runs, then compiles the step anew by their times. It
            # does so only for what it dispatches itself, in the whole process.
            jax.config.update("jax_enable_pgle", True)
            jax.config.update("jax_pgle_profiling_runs", run.train.pgle_runs)
            run_step = jitted_step(run, options)
    return Programs(state, tokens, init, step, evaluate, run_step)


def initial_state(plan: PreparedRun, programs: Programs, weights: Path | None) -> TrainState:
    """A fresh state: random parameters, or those of safetensors files, with fresh adapters if any.

    Call it under the mesh.

    Raises:
        InputError: the files are of another model, or incomplete.
    """
    run = plan.run
    if weights is None:
        return _with_teacher(programs.init(), plan, programs)
    params = import_weights(weights, without_adapters(programs.state.params))

    def begin(params: Transformer) -> TrainState:
        fresh = Transformer(run.model, plan.execution, jax.random.key(run.train.seed))
        return state_of(joined(params, fresh), run)

    state = jax.jit(begin, donate_argnums=0)(params)
    in_order = run_dict(replace(plan.run, mesh=MeshShape()))  # as files have their layers
    state = from_dict(programs.state, reorder_layers(to_dict(state), in_order, plan.run))
    return _with_teacher(state, plan, programs)


def _with_teacher(state: TrainState, plan: PreparedRun, programs: Programs) -> TrainState:
    """The state with the weights of the teacher that `train.loss` names, if it does."""
    loss = plan.run.train.loss
    if loss is None or loss.teacher is None:
        return state
    like, folder = programs.state.reference, Path(loss.teacher)
    jax.tree.map(lambda x: x.delete(), state.reference)  # random ones
    with reworded("train.loss.teacher: "):
        teacher = run_of_folder(folder)
        own, train = reference_run(plan.run), replace(teacher.train, loss=None)
        assert own is not None
        teacher = replace(
            own, train=train, precision=replace(own.precision, frozen=teacher.precision.frozen)
        )
        model, _ = newest_model(teacher, folder)
    leaves = zip(jax.tree.leaves(model), jax.tree.leaves(like), strict=True)
    stored = [x.astype(to.dtype) for x, to in leaves]
    return state._replace(reference=jax.tree.unflatten(jax.tree.structure(like), stored))


def rows_of_batch(run: Run) -> int:
    """Rows of the data in a batch of the whole job; a row has both answers of a pair."""
    return run.batch.global_batch // (2 if run.train.pairs else 1)


def own_rows(programs: Programs) -> np.ndarray:
    """The rows of a global batch that the devices of this process hold, ascending."""
    target: Any = programs.tokens.inputs
    rows_MB = _rows_of(target)
    held = target.sharding.addressable_devices_indices_map(target.shape).values()
    return np.unique(np.concatenate([rows_MB[place[:2]].ravel() for place in held]))


def place_tokens(programs: Programs, batch: Batch) -> Tokens:
    """One batch on the devices, as [M, B, S]; `batch` holds the rows of `own_rows` [rows, S].

    Where sequences are sharded over `context`, their tokens are in zigzag order
    (`models.attention_kernels.zigzag`).
    """
    own = own_rows(programs)

    def place(rows: np.ndarray, target: Any) -> jax.Array:
        zigzag = zigzag_order(target.shape[-1], target.sharding.mesh.shape.get("context", 1))
        rows_MB = np.searchsorted(own, _rows_of(target))  # places in `rows`
        shard = lambda at: rows[rows_MB[at[:2]]][..., zigzag[at[2]]]
        return jax.make_array_from_callback(target.shape, target.sharding, shard)

    leaves, structure = jax.tree.flatten(programs.tokens)
    both = (x.reshape(-1, x.shape[-1]) for x in batch)  # of pairs [pairs, 2, S]
    return jax.tree.unflatten(structure, map(place, both, leaves))


def _rows_of(target: Any) -> np.ndarray:
    """The row of a global batch at each place of [M, B]."""
    M, B = target.shape[:2]
    return np.arange(M * B).reshape(M, B)
