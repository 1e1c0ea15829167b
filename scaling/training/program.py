"""The Program of one of our runs: the trainer's own step, compiled for the cluster it is meant for.

A program that was read before is found without importing jax, by what describes the run, the chip,
the versions and the project's own sources.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from scaling.compile import cache
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.reading import read_text
from scaling.meshes.shape import MeshShape
from scaling.meshes.xla_target import xla_target_text
from scaling.models.config import ModelConfig, Moe
from scaling.program.ir import Program
from scaling.program.stored import key_of, stored_program, stored_programs
from scaling.program.versions import compiler_settings, compiler_versions
from scaling.run import Run, run_dict
from scaling.run.optimizers import is_own_chain
from scaling.run.parallelism.checks import check_trainable
from scaling.run.parallelism.rules import rules_for, with_zero_stage
from scaling.run.reference import reference_model
from scaling.run.run import OWN_REDUCE
from scaling.run.user_code import named_function
from scaling.simulate.pipeline_bubble import mark_bubbles

Options = Mapping[str, bool | str | int]  # of XLA, by name
# Keys of run.json that leave the step alone; the trainer refuses what the last two say.
DECIDES_NOTHING = ("name", "cluster", "recompute", "dispatcher")
FOREIGN = (  # so are these, of other software; the trainer's stages are alike
    *(("pipeline", key) for key in ("layers", "remat_layers", "remat_fewer", "scatter")),
    *(("precision", "dispatch"), ("overlap", "experts")),
)
ADDED = ("xla", "deterministic", "groups", "loss")  # keys of `train`
_FIELDS = [field.name for field in fields(ModelConfig)]
MODEL = {field.name: field.default for field in fields(ModelConfig)} | {"layers": []}
LATER = frozenset(_FIELDS[_FIELDS.index("moe") + 1 :])
# Fields of a mixture, and of layers of a pattern, that came later, and what leaves them out.
LATER_MOE: dict[str, Any] = {"best_of_group": Moe.best_of_group, "every": 1, "weighs_inputs": False}
LATER_KIND: dict[str, Any] = {"attention_chunk": None, "is_rotated": True}
NEAREST = 3  # commands that a message lists
FROM_SHAPE = ("mesh", "device_order")  # the shape has them: a run may name no mesh


def program_of_run(
    run: Run,
    shape: MeshShape,
    cluster: Cluster,
    estimates: bool = False,
    options: Options | None = None,
) -> tuple[Program, str]:
    """The Program of a step of `run` on the mesh `shape`, and the compiler's text.

    Args:
        cluster: of NVIDIA GPUs that need not exist, or `host`.
        estimates: also keep XLA's own estimates.
        options: of XLA, by name: besides the trainer's, or instead of them.

    Raises:
        InputError: what the trainer cannot run, a mesh that does not fit, a chip that cannot be
            compiled for.
    """
    check_trainable(run, shape)
    rules_for(run, shape)
    check_fits(shape, cluster)
    given = dict(options or {})
    key = _key(run, shape, cluster, estimates, given)
    make = lambda: _compiled(run, shape, cluster, estimates, given)
    return cache.load_or_make(key, run.name, make)


def stored_key(run: Run, shape: MeshShape, cluster: Cluster) -> str:
    """Key of the step among the programs that come with the package (`scaling.program.stored`)."""
    where = f"{cluster.devices_per_node} {_chip(cluster)}"
    return key_of(_decides(run, shape), shape.sizes, where)


def stored_program_of_run(run: Run, shape: MeshShape, cluster: Cluster) -> Program:
    """The kept Program of a step of `run`; needs no compiler and no jax.

    Raises:
        InputError: there is none; those of the nearest runs are named.
    """
    program = stored_program(stored_key(run, shape, cluster))
    if program is None:
        near = [f"`{s.command}`" for s in stored_programs() if s.run == run.name][:NEAREST]
        there = "; there is " + "; ".join(near) if near else ""
        raise InputError(
            f"no compiled program of {run.name} on {shape} of {cluster.name} with these settings "
            f"comes with the package: --source compiled makes one{there}"
        )
    return replace(program, name=run.name)


def _key(run: Run, shape: MeshShape, cluster: Cluster, estimates: bool, options: Options) -> str:
    """Hash of all that decides the program; the mesh as pairs, because the order of axes counts."""
    settings = estimates, options, compiler_versions(), compiler_settings()
    decides = json.dumps(
        [_decides(run, shape), list(shape.sizes.items()), *settings], sort_keys=True
    )
    return cache.key_of(decides, _chip(cluster), f"{cluster.devices_per_node}")


def _decides(run: Run, shape: MeshShape) -> dict[str, Any]:
    """What of run.json decides the step, besides the mesh, with the trainer's own choices."""
    stated = replace(run.precision, reduce=run.precision.reduce or OWN_REDUCE)
    document = run_dict(replace(with_zero_stage(run, shape), precision=stated))
    for part, key in FOREIGN:
        del document[part][key]
    document["pipeline"]["schedule"] = "1f1b"  # virtual stages alone make it another
    train = document["train"]
    del train["watchdog_minutes"]  # it watches the step
    # Keys that came later are left out where they say nothing: stored programs keep their keys.
    document["train"] = {k: v for k, v in train.items() if v or k not in ADDED}
    teacher = reference_model(run)
    if teacher is not None:  # whose shape decides, whatever its folder
        document["train"]["loss"] |= {"teacher": asdict(teacher), "teacher_model": None}
    if is_own_chain(run.optimizer):
        document["optimizer"] = [run.optimizer, read_text(named_function(run.optimizer)[0])]
    # Fields of models that came later decide where they say anything: keys stay what they were.
    document["model"] = {
        k: v for k, v in document["model"].items() if k not in LATER or v != MODEL[k]
    }
    kinds = [(each, LATER_KIND) for each in document["model"].get("layers", ())]
    for part, later in [(document["model"]["moe"] or {}, LATER_MOE), *kinds]:
        for key in [key for key in part if key in later and part[key] == later[key]]:
            del part[key]
    return {k: v for k, v in document.items() if k not in (*DECIDES_NOTHING, *FROM_SHAPE)}


def _chip(cluster: Cluster) -> str:
    return "host" if cluster.virtual_devices else xla_target_text(cluster.accelerator)


def _compiled(
    run: Run, shape: MeshShape, cluster: Cluster, estimates: bool, options: Options
) -> tuple[Program, str]:
    import jax

    from scaling.compile.jitted import program_and_text
    from scaling.compile.options import compiler_options
    from scaling.meshes.devices import absent_mesh, host_mesh
    from scaling.training.execution import execution_for
    from scaling.training.step import abstract_arguments, jitted_step

    if cluster.virtual_devices:
        mesh, platform, capability = host_mesh(shape), "cpu", 0.0
    else:
        mesh, platform = absent_mesh(shape, cluster), "cuda"
        capability = cluster.accelerator.compute_capability or 0.0
    execution = execution_for(run, rules_for(run, shape), platform, capability)
    with jax.set_mesh(mesh):
        arguments = abstract_arguments(run, execution)
    options = {**compiler_options(platform, run.train.deterministic, run.train.xla), **options}
    program, text = program_and_text(
        jitted_step(run), arguments, cluster, run.name, estimates, options=options
    )
    return mark_bubbles(program), text
