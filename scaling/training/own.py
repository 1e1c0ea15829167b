"""Anybody's state, step and data, checked and compiled: what `run(mesh)` of a user returns.

    plan      the function called, what it returned checked by shapes alone
    compile   the step lowered with the shardings of its state, which must come out as it went in

Nothing is computed before the first step but what the function itself computes.
"""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from scaling.compile.jax_internals import jitted_options
from scaling.compile.options import compile_with, compiler_options
from scaling.compile.stages import argument_mesh
from scaling.meshes.devices import named_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import axes_text
from scaling.run.own import OwnRun
from scaling.run.user_code import described, folder_on_path, run_user_code, user_function
from scaling.training.data.own_batches import OwnBatches
from scaling.training.monitor.report import FIGURES
from scaling.training.protocol import Training
from scaling.training.weights.naming import leaf_names, to_dict

HOW = (
    "return scaling.Training(state=..., step=jax.jit(step), data=batches), where "
    "step(state, batch) returns (state, metrics)"
)


@dataclass(frozen=True)
class OwnPlan:
    """A run of a function that has been called."""

    run: OwnRun  # with the axes of its mesh
    mesh: Mesh
    training: Training  # its state as shapes, which `init` gives; data as `OwnBatches`
    batch: Any  # the first one, as the step takes it
    sums: None = None


def plan_own(run: OwnRun, resume: bool = False) -> OwnPlan:
    """Call the function of a run under a mesh over all devices, and check what it returns.

    Args:
        resume: the state that it makes is only looked at.

    Raises:
        InputError: a mesh of another number of devices; the function fails, or returns what cannot
            be trained, in one line.
    """
    axes, devices = run.mesh or {"data": jax.device_count()}, jax.devices()
    if (size := math.prod(axes.values())) != len(devices):
        raise InputError(f"mesh {axes_text(axes)} has {size} devices, there are {len(devices)}")
    mesh = named_mesh(axes, devices)
    training = returned(run, mesh)
    data = OwnBatches(training.data, run.function)
    batch = run_user_code(_file(run), data.peek)
    if training.place is not None:
        place = training.place
        batch = run_user_code(_file(run), lambda: place(batch))
    given = jax.tree.map(_array, training.state)
    mesh = argument_mesh(given) or argument_mesh(batch) or mesh
    state, batch = (jax.tree.map(_shape, tree) for tree in (given, batch))
    with jax.set_mesh(mesh):
        out = run_user_code(_file(run), lambda: jax.eval_shape(training.step, state, batch))
    _check_output(run.function, state, out)
    if run.train.eval_every and training.evaluate is None:
        raise InputError(
            f"train.eval_every={run.train.eval_every}: {run.function} returned no `evaluate`; "
            "leave it out, or return Training(..., evaluate=f), with f(state) -> {name: figure}"
        )
    kept = [] if resume else [given]
    init = training.init or (kept.pop if kept else None)
    named = replace(run, mesh=dict(mesh.shape))
    return OwnPlan(named, mesh, replace(training, state=state, data=data, init=init), batch)


def returned(run: OwnRun, mesh: Mesh) -> Training:
    """What the function of a run returns for a mesh.

    Raises:
        InputError: no such function, it fails, or returns something else.
    """
    function = run.make or user_function(run.function)[1]
    # What it prints is no answer of ours. Modules beside it can be imported, also while it traces.
    with redirect_stdout(sys.stderr):
        made = run_user_code(_file(run), lambda: function(mesh, **run.settings))
    if not isinstance(made, Training):
        raise InputError(f"{run.function} returned {described(made)}: {HOW}")
    if not hasattr(made.step, "lower"):
        raise InputError(
            f"{run.function}: step is {described(made.step)} that is not jitted: give "
            "step=jax.jit(step, donate_argnums=0)"
        )
    return made


def compile_own(plan: OwnPlan) -> tuple[Training, list[str]]:
    """The training with its step compiled, its state where the step takes it; lines for the user.

    Raises:
        InputError: the step fails to compile, or its state comes out sharded otherwise.
    """
    training, run = plan.training, plan.run
    platform, train = plan.mesh.devices.flat[0].platform, run.train

    def compiled(state: Any) -> tuple[Any, Any]:
        with jax.set_mesh(plan.mesh), folder_on_path(_file(run)):
            lower = lambda: training.step.lower(state, plan.batch)
            lowered = run_user_code(_file(run), lower)
            asked = {**jitted_options(lowered), **train.xla}
            options = compiler_options(platform, train.deterministic, asked)
            return lowered, compile_with(lowered, options)

    lowered, program = compiled(training.state)
    if _moved(training.state, program):  # once more, from where its results are
        outputs = program.output_shardings[0]
        state = jax.tree.map(lambda x, s: x.update(sharding=s), training.state, outputs)
        with suppress(InputError):  # jit has in_shardings
            lowered, program = compiled(state)
    if moved := _moved(training.state, program):
        name, before, after = moved
        raise InputError(
            f"{run.function}: the step takes state {name} as {before} and returns it as {after}: "
            "give jax.jit out_shardings for its state, or jax.lax.with_sharding_constraint in it"
        )
    shardings = program.input_shardings[0][0]
    state = jax.tree.map(lambda x, s: x.update(sharding=s), training.state, shardings)
    init = training.init

    def step(state: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        state, metrics = program(state, batch)
        return state, _named(metrics)

    ready = replace(
        training,
        state=state,
        step=step,
        init=None if init is None else lambda: jax.device_put(init(), shardings),
        evaluate=_evaluated(run.function, training.evaluate),
        compiled=program,
    )
    return ready, list(_notes(plan, lowered, program))


def _notes(plan: OwnPlan, lowered: Any, program: Any) -> Iterator[str]:
    donated = [leaf.donated for leaf in jax.tree.leaves(lowered.args_info[0][0])]
    if not any(donated):
        yield "note: the state lies in memory twice; donate it: jax.jit(step, donate_argnums=0)"
    taken, count = jax.tree.leaves(program.input_shardings), jax.device_count()
    if count > 1 and all(sharding.is_fully_replicated for sharding in taken):
        yield (
            f"warning: nothing is divided among the {count} devices: cut the state or the batch "
            "over the mesh, by NamedSharding or in_shardings of jax.jit"
        )
    if plan.training.evaluate and not plan.run.train.eval_every:
        yield "note: evaluate is not called: --set train.eval_every=100 does, every 100 steps"


def _check_output(where: str, state: Any, out: Any) -> None:
    """Raise InputError unless a step's results are its state again, and metrics with a loss."""
    if not isinstance(out, tuple | list) or len(out) != 2:
        raise InputError(f"{where}: the step returned {described(out)}: return (state, metrics)")
    there, here = (
        dict(zip(leaf_names(t), jax.tree.leaves(t), strict=True)) for t in (out[0], state)
    )
    for name in {**here, **there}:
        was, now = (
            f"{t[name].dtype}{list(t[name].shape)}" if name in t else "missing"
            for t in (here, there)
        )
        if was != now:
            raise InputError(
                f"{where}: the step takes state {name or 'itself'} as {was} and returns it as "
                f"{now}: it must return the state as it takes it"
            )
    metrics = _named(out[1])
    if "loss" not in metrics:
        raise InputError(
            f"{where}: of the step's metrics ({', '.join(metrics) or 'none'}) none is called loss: "
            'return {"loss": loss, ...}, or the loss itself'
        )
    if metrics["loss"].shape != ():
        raise InputError(
            f"{where}: the loss has shape {list(metrics['loss'].shape)}: return its mean"
        )
    if taken := [name for name in metrics if name in FIGURES]:
        raise InputError(
            f"{where}: the step's metric {taken[0]!r} has the name of a figure that the loop "
            "writes itself: call it otherwise"
        )


def _named(metrics: Any) -> dict[str, Any]:
    return {name or "loss": value for name, value in to_dict(metrics).items()}


def _evaluated(where: str, evaluate: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    if evaluate is None:
        return None

    def figures(state: Any) -> dict[str, float]:
        found = evaluate(state)
        return {name or "held_out_loss": float(x) for name, x in to_dict(found).items()}

    return figures


def _array(leaf: Any) -> Any:
    """A leaf of a state as an array whose format stays as it is; shapes as they are."""
    if isinstance(leaf, jax.Array | jax.ShapeDtypeStruct):
        return leaf
    if not isinstance(leaf, np.ndarray | np.generic | int | float | bool):
        raise InputError(f"the state holds {described(leaf)} ({leaf!r:.80}): give arrays only")
    return jnp.asarray(np.asarray(leaf))


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    """The shape of an array, with its sharding where it is committed to one."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if isinstance(leaf, jax.Array):
        kept = leaf.sharding if leaf.committed else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=kept)
    leaf = np.asarray(leaf)
    return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))


def _moved(state: Any, program: Any) -> tuple[str, Any, Any] | None:
    """The first array of a state that leaves a step where it did not enter; None if none does."""
    sides = (
        jax.tree.leaves(program.input_shardings[0][0]),
        jax.tree.leaves(program.output_shardings[0]),
    )
    for name, leaf, before, after in zip(
        leaf_names(state), jax.tree.leaves(state), *sides, strict=True
    ):
        if not before.is_equivalent_to(after, leaf.ndim):
            return name, before, after
    return None


def _file(run: OwnRun) -> Path:
    return Path(run.function.rpartition(":")[0] or run.function)
