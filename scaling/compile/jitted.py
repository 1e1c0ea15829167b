"""The compiled front end: any jitted step, compiled for an absent cluster, read as a Program.

    from scaling.compile import jitted

    mesh = jitted.mesh({"data": 8, "model": 8}, cluster)     # 64 absent GPUs
    program, text = jitted.program_and_text(jax.jit(step), abstract_arguments_on_mesh, cluster)

Needs no GPU. For NVIDIA clusters it needs JAX's CUDA plugin (the extra `deviceless`) and
JAX_PLATFORMS=cpu in the environment before jax is imported.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jax.sharding import Mesh

from scaling.compile import cache
from scaling.compile.lower import check_order, check_size, compile_text, lower, target_of
from scaling.hlo.reader import read_program
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_devices, host_mesh, named_mesh
from scaling.meshes.shape import MeshShape
from scaling.program.ir import Program


def mesh(axes: Mapping[str, int], cluster: Cluster) -> Mesh:
    """A jax mesh with axes of any names over the devices of a cluster, outermost axis first.

    Raises:
        InputError: more devices than the cluster has, or no compiler for its chip.
    """
    count = math.prod(axes.values())
    check_size(count, cluster)
    if cluster.virtual_devices:
        return named_mesh(axes, host_mesh(MeshShape(data=count)).devices.tolist())
    return named_mesh(axes, absent_devices(count, cluster))


def program_and_text(
    jitted: Any,
    arguments: tuple[Any, ...],
    cluster: Cluster | None = None,
    name: str = "step",
    estimates: bool = False,
    mesh: Mesh | None = None,
    options: Mapping[str, bool | str | int] | None = None,
) -> tuple[Program, str]:
    """Compile a jitted function; what one device does in it, and the text of the compiled module.

    Args:
        jitted: `jax.jit(...)`, donations included; the function whose call is one training step.
        arguments: pytrees of jax.ShapeDtypeStruct with NamedShardings over one mesh, of devices
            that are present or not (`mesh` above).
        cluster: for which the mesh was made; None: its devices are present.
        estimates: also keep XLA's own estimate of every operation, where it has one.
        mesh: None: that of the arguments' shardings.
        options: of XLA, by name: besides the trainer's, or instead of them.

    Raises:
        InputError: not a jitted function, no mesh, one that is not of this cluster, or whose
            devices are not in ascending order.
        UnknownHlo: the compiled text holds an unknown instruction that may communicate.
    """
    lowered = lower(jitted, arguments, mesh, options)
    check_order(lowered.mesh)

    def make() -> tuple[Program, str]:
        made = compile_text(lowered, estimates)
        read = read_program(made.text, dict(lowered.mesh.shape), name, made.peak)
        return replace(read, warnings=(*made.notes, *read.warnings)), made.text

    key = cache.key_of(lowered.key, target_of(lowered.mesh, cluster), f"{estimates}")
    return cache.load_or_make(key, name, make)
