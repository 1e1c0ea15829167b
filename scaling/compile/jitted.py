"""The compiled front end: any jitted step, compiled for an absent cluster, read as a Program.

    from scaling.compile import jitted

    mesh = jitted.mesh({"data": 8, "model": 8}, cluster)     # 64 absent GPUs
    program, text = jitted.program_and_text(jax.jit(step), abstract_arguments_on_mesh, cluster)

Needs no GPU. For NVIDIA clusters it needs JAX's CUDA plugin (the extra `deviceless`) and
JAX_PLATFORMS=cpu in the environment before jax is imported.
"""

import functools
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import jax
from jax.sharding import Mesh

from scaling.compile import cache
from scaling.compile.lower import (
    NOTES,
    CompiledText,
    Lowered,
    check_size,
    compile_text,
    device_numbers,
    lower,
    planned_peak,
    target_of,
)
from scaling.compile.options import Options
from scaling.compile.quiet import quiet
from scaling.compile.stages import check_no_arguments, mesh_of_compiled
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_devices, host_mesh, named_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.program.ir import Program, placed_on


def mesh(axes: Mapping[str, int], cluster: Cluster) -> Mesh:
    """A jax mesh with axes of any names over the devices of a cluster, outermost axis first.

    Raises:
        InputError: more devices than the cluster has, or no compiler for its chip.
    """
    count = math.prod(axes.values())
    check_size(count, cluster)
    if cluster.virtual_devices:
        return named_mesh(axes, host_mesh(MeshShape(data=count)).devices.tolist())
    with quiet():
        return named_mesh(axes, absent_devices(count, cluster))


def program_and_text(
    step: Any,
    arguments: tuple[Any, ...],
    cluster: Cluster | None = None,
    name: str = "step",
    estimates: bool = False,
    mesh: Mesh | None = None,
    options: Options | None = None,
) -> tuple[Program, str]:
    """Compile a jitted function; what one device does in it, and the text of the compiled module.

    Args:
        step: `jax.jit(...)`, donations included; the function whose call is one training step.
        arguments: pytrees of jax.ShapeDtypeStruct with NamedShardings over one mesh, of devices
            that are present or not (`mesh` above).
        cluster: for which the mesh was made; None: its devices are present.
        estimates: also keep XLA's own estimate of every operation, where it has one.
        mesh: None: that of the arguments' shardings.
        options: of XLA, by name: besides the trainer's, or instead of them.

    Raises:
        InputError: not a jitted function, no mesh, or one that is not of this cluster.
        UnknownHlo: the compiled text holds an unknown instruction that may communicate.
    """
    return program_of(lower(step, arguments, mesh, options), cluster, name, estimates)


def staged(
    step: Any,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    cluster: Cluster,
    mesh: Mesh | None = None,
    options: Options | None = None,
) -> Lowered | jax.stages.Compiled:
    """Return any step lowered, or as it is if its caller has compiled it.

    A step without a mesh is one device's, of a cluster that is not here.

    Raises:
        InputError: see `lower`.
    """
    if isinstance(step, jax.stages.Compiled):
        check_no_arguments(arguments, keywords)
        return step
    one_device = functools.partial(_one_mesh, cluster)
    with quiet():
        return lower(step, arguments, mesh, options, keywords=keywords, one_device=one_device)


def _one_mesh(cluster: Cluster) -> Mesh:
    return mesh({"device": 1}, cluster)


def devices_of(step: Lowered | jax.stages.Compiled) -> int:
    """The number of devices of the smallest cluster that holds a step's mesh."""
    mesh = step.mesh if isinstance(step, Lowered) else mesh_of_compiled(step)
    return 1 + max(device_numbers(mesh))


def program_of(
    step: Lowered | jax.stages.Compiled,
    cluster: Cluster | None,
    name: str = "step",
    estimates: bool = False,
    given: Mapping[str, Any] | None = None,
) -> tuple[Program, str]:
    """The program of a step, and its text: from the cache, or compiled now.

    `given` are `trips`, `kernels` and `branches`, as `read_program` takes them. Raises as
    `program_and_text`.
    """
    if isinstance(step, jax.stages.Compiled):
        return _read_compiled(step, cluster, name, dict(given or {}))
    key = cache.key_of(step.key, target_of(step.mesh, cluster), f"{estimates}")

    compiled = functools.cache(lambda: compile_text(step, estimates))

    def make() -> tuple[Program, str]:
        made = compiled()
        return _read(step, made, name, {}), made.text

    def make_with_given() -> tuple[Program, str]:
        found = cache.load_cached(key)
        if found is None:
            made = compiled()
        else:  # what the stored program was read from
            program, text = found
            notes = tuple(note for note in program.warnings if note in NOTES)
            made = CompiledText(text, program.compiler_peak, notes)
        return _read(step, made, name, given or {}), made.text

    if not given:
        return cache.load_or_make(key, name, make)
    with suppress(UnknownHlo):  # kept, so that other values compile nothing
        cache.load_or_make(key, name, make)
    return cache.load_or_make(cache.key_of(key, str(given)), name, make_with_given)


def _read(step: Lowered, made: CompiledText, name: str, given: Mapping[str, Any]) -> Program:
    axes = dict(step.mesh.shape)
    program = read_program(made.text, axes, name, made.peak, traced=step.kernels, **given)
    placed = placed_on(program, device_numbers(step.mesh))
    return replace(placed, warnings=(*made.notes, *program.warnings))


def _read_compiled(
    compiled: jax.stages.Compiled, cluster: Cluster | None, name: str, given: dict[str, Any]
) -> tuple[Program, str]:
    """The program of a step that its caller has compiled."""
    text, over = compiled.as_text(), mesh_of_compiled(compiled)
    target_of(over, cluster)
    if text is None:
        raise InputError("the compiled step has no text: give what jax.jit(...).lower(...) returns")
    peak = planned_peak(compiled, over)
    program = read_program(text, dict(over.shape), name, peak, **given)
    return placed_on(program, device_numbers(over)), text
