"""The one place that makes jax meshes: for the devices present, for fake host devices, for a GPU
cluster nobody has, and for no devices at all.

All meshes carry the six axes in the run's device order, every axis Explicit, so that the same step
runs, compiles or is traced on any of them under `with jax.set_mesh(mesh):`.
"""

import importlib.util
import os
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh

from scaling.meshes.absent_memory import show_memories
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.shape import MeshShape, check_devices
from scaling.meshes.xla_target import xla_target_text

# Fake ones. Each has threads: 4,096 take 10 s and more than 16 GB of address space (jax 0.10.2).
MOST_HOST_DEVICES = 1024
# Absent ones: as many take 7 s and 1 GB (65,536 of H100: 3.2 s, 0.4 GB; jax 0.10.2, two cores)
MOST_ABSENT_DEVICES = 131_072
PLUGIN = "jax-cuda12-plugin"
# Versions of jax (tried by experiments/jax_versions.py): 0.8.0 lacks jax.sharding.get_mesh. Before
# 0.9.2 the plugin starts without a driver only if it is told not to look at CUDA's libraries.
OLDEST, WITHOUT_DRIVER = (0, 8, 3), (0, 9, 2)
SKIP_LIBRARIES = "JAX_SKIP_CUDA_CONSTRAINTS_CHECK"
NO_MESH = Mesh(np.empty((), dtype=object), ())  # what jax takes for none


def present_mesh(shape: MeshShape, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """A jax mesh over exactly these devices (None: all of this job's), or InputError."""
    devices = jax.devices() if devices is None else devices
    check_devices(shape, len(devices))
    return _mesh(shape, devices)


def use_host_devices(count: int) -> None:
    """Ask for `count` fake CPU devices. Must come before the first use of a jax device.

    Does nothing where an accelerator is present (then the devices present count).

    Raises:
        InputError: more than MOST_HOST_DEVICES, or jax already runs with another number of devices.
    """
    if not 1 <= count <= MOST_HOST_DEVICES:
        raise InputError(
            f"--devices {count} must be a positive whole number, at most {MOST_HOST_DEVICES:,}: "
            "so many fake devices can one process have"
        )
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:
        have = len(jax.devices("cpu"))
        if have != count:
            raise InputError(
                f"jax already runs with {have} host devices, cannot make it {count}; "
                "ask for them before the first use of jax"
            ) from None


def host_mesh(shape: MeshShape) -> Mesh:
    """A jax mesh over as many fake CPU devices of this process as `shape` needs."""
    use_host_devices(max(shape.devices, jax.config.values["jax_num_cpu_devices"]))
    devices = jax.devices("cpu")
    if len(devices) < shape.devices:
        check_devices(shape, len(devices))
    return _mesh(shape, devices[: shape.devices])


def absent_mesh(shape: MeshShape, cluster: Cluster) -> Mesh:
    """A jax mesh over the GPUs of a cluster that is not here: lower and compile on it, not run.

    A mesh smaller than one host uses part of it.

    Raises:
        InputError: the mesh is larger than the cluster or fills its last host in part, the chip
            cannot be compiled for, the CUDA plugin is not installed, or jax is not restricted to
            the CPU.
    """
    check_fits(shape, cluster)
    return _mesh(shape, absent_devices(shape.devices, cluster))


def check_version() -> None:
    """Raise InputError under a jax that is too old to compile steps with."""
    if jax.__version_info__ < OLDEST:
        raise InputError(
            f"jax {jax.__version__} is too old to compile steps with: install jax "
            f"{'.'.join(map(str, OLDEST))} or newer, or price a dump with sc.predict_hlo, which "
            "needs none"
        )


def absent_devices(count: int, cluster: Cluster) -> list[jax.Device]:
    """The first `count` GPUs of a cluster that is not here; InputError as of `absent_mesh`."""
    check_version()
    if count > MOST_ABSENT_DEVICES:
        raise InputError(
            f"{count:,} devices are more than the {MOST_ABSENT_DEVICES:,} that a step can be "
            "compiled for without them: use fewer nodes"
        )
    per_node = min(cluster.devices_per_node, count)
    if count % per_node:
        raise InputError(
            f"a mesh of {count} devices does not fill hosts of {per_node} GPUs; use a multiple of "
            f"{per_node} devices, or --override gpus_per_node=N with an N that divides {count}"
        )
    try:
        return list(_topology(xla_target_text(cluster.accelerator), count // per_node, per_node))
    except (NotImplementedError, RuntimeError) as error:
        remedy = "needs JAX's CUDA plugin: pip install 'jax-scaling[deviceless]'"
        if importlib.util.find_spec("jax_cuda12_plugin") is not None:
            remedy = "fails after jax has looked for GPUs: set JAX_PLATFORMS=cpu first"
        raise InputError(f"compiling for GPUs that are not here {remedy} ({error})") from None


@cache
def _topology(target: str, hosts: int, per_host: int) -> tuple[jax.Device, ...]:
    """The devices of a topology; equal ones for equal arguments, as devices of jax are."""
    from jax.experimental import topologies

    _check_plugin()
    show_memories()
    if jax.__version_info__ < WITHOUT_DRIVER:
        os.environ.setdefault(SKIP_LIBRARIES, "1")
    place = f"1x{hosts}x{per_host}"  # slices x hosts x GPUs
    topology = topologies.get_topology_desc(platform="cuda", target_config=target, topology=place)
    return tuple(topology.devices)


def _check_plugin() -> None:
    """Raise InputError if the CUDA plugin is of another version than jax: it compiles otherwise."""
    try:
        plugin = metadata.version(PLUGIN)
    except metadata.PackageNotFoundError:
        return  # the compiler's own error says so
    if plugin.split(".")[:2] != jax.__version__.split(".")[:2]:
        raise InputError(
            f"{PLUGIN} {plugin} is not for jax {jax.__version__}: "
            f"pip install {PLUGIN}=={jax.__version__} jax-cuda12-pjrt=={jax.__version__}"
        )


def abstract_mesh(shape: MeshShape) -> AbstractMesh:
    """The mesh without devices: enough to trace a step and to read every sharding."""
    names = shape.device_order
    return AbstractMesh(tuple(shape.sizes.values()), names, (AxisType.Explicit,) * len(names))


def named_mesh(
    sizes: Mapping[str, int], devices: Sequence[jax.Device], kind: AxisType = AxisType.Auto
) -> Mesh:
    """A jax mesh with axes of any names, outermost first, for steps that are not this project's."""
    grid = np.array(devices, dtype=object).reshape(tuple(sizes.values()))
    return Mesh(grid, tuple(sizes), axis_types=(kind,) * len(sizes))


def over_devices(mesh: AbstractMesh, devices: Sequence[jax.Device]) -> Mesh:
    """A mesh over devices with the axes of an abstract one, and their types."""
    grid = np.array(devices, dtype=object).reshape(mesh.axis_sizes)
    return Mesh(grid, mesh.axis_names, axis_types=mesh.axis_types)


def _mesh(shape: MeshShape, devices: Sequence[jax.Device]) -> Mesh:
    return named_mesh(shape.sizes, devices, AxisType.Explicit)
