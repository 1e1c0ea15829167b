"""`jax.devices()` and its relatives answer for a cluster that is not here.

A framework asks jax which devices there are, makes meshes and shardings of them, and lowers its
step. While `pretending` is on, the public functions below answer as on the first host of the
cluster; nothing is executed there: values are computed on the CPU, and arrays that lie on absent
devices are jax.ShapeDtypeStruct.

    asked                                                      answered
    devices, device_count, process_count, ...                  for the cluster
    get_backend of jax.extend.backend, memory_stats()          the absent client, empty devices
    make_mesh, create_device_mesh ... without devices=         over the cluster's devices
    pmap                                                       for all processes, from one's part
    slice_index of a device, for create_hybrid_device_mesh     its NVLink domain, as on GPUs
    device_put, make_array_from_callback, ..., to them         the shape, with its sharding
    multihost_utils, jax.distributed                           as if every process said the same

Names of a module that were imported from jax one by one before keep their meaning.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, ExitStack, contextmanager
from functools import wraps
from inspect import signature
from typing import Any
from unittest.mock import patch

import jax
from jax.experimental import mesh_utils, multihost_utils
from jax.extend import backend

from scaling.compile.jax_internals import coordinated, tracing_for_absent_devices
from scaling.compile.pretend.arrays import THIS_PROCESS, answering_as_arrays
from scaling.compile.pretend.coordinator import Coordinator, answers
from scaling.compile.pretend.device_put import putting_shapes
from scaling.compile.pretend.devices import SingleSharding, is_absent
from scaling.compile.pretend.entries import changing_jax
from scaling.compile.pretend.pmap import mapping
from scaling.compile.quiet import quiet
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_devices, host_mesh
from scaling.meshes.memory_pool import xla_pool
from scaling.meshes.shape import MeshShape

GPUS = ("gpu", "cuda")  # names of the platform, for which absent devices answer
MANY_SLICES = (
    "on this cluster jax.make_mesh refuses a mesh of several NVLink domains (jax 0.10 and later): "
    "use jax.experimental.mesh_utils.create_hybrid_device_mesh there"
)


class Pretending(AbstractContextManager[list[jax.Device]], ContextDecorator):
    """`pretending`, as often as it is entered: a cell of a notebook runs again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.entered: list[AbstractContextManager[list[jax.Device]]] = []

    def __enter__(self) -> list[jax.Device]:
        context = pretending(self.cluster)
        devices = context.__enter__()
        self.entered.append(context)
        return devices

    def __exit__(self, *error: Any) -> bool | None:
        return self.entered.pop().__exit__(*error)


@contextmanager
def pretending(cluster: Cluster) -> Iterator[list[jax.Device]]:
    """While it is on, jax has the devices of a cluster; yields them.

    Raises:
        InputError: there is no compiler for the cluster's chip; another thread or task is inside.
    """
    if cluster.virtual_devices:
        yield list(host_mesh(MeshShape(data=cluster.devices)).devices.flat)
        return
    with quiet():
        devices = absent_devices(cluster.devices, cluster)
    with changing_jax() as stack:
        stack.enter_context(tracing_for_absent_devices())
        stack.enter_context(answering_as_arrays())
        stack.enter_context(_job(1 + max(device.process_index for device in devices)))
        client = _for_gpus(backend.get_backend, lambda *_: devices[0].client)
        stack.enter_context(patch.object(backend, "get_backend", client))
        for name, answer in _answers(devices).items():
            stack.enter_context(patch.object(jax, name, _for_gpus(getattr(jax, name), answer)))
        for place, name in _MAKERS:
            made = getattr(place, name)
            made = _over(_one_slice(made) if name == "make_mesh" else made, devices)
            stack.enter_context(patch.object(place, name, made))
        local = sum(device.process_index == THIS_PROCESS for device in devices)
        stack.enter_context(patch.object(jax, "pmap", mapping(jax.pmap, local, len(devices))))
        stack.enter_context(putting_shapes())
        stack.enter_context(patch.object(jax.sharding, "SingleDeviceSharding", SingleSharding))
        for name, answer in _of_devices(cluster).items():
            stack.enter_context(patch.object(type(devices[0]), name, answer, create=True))
        yield devices


@contextmanager
def _job(processes: int) -> Iterator[None]:
    """While it is on, this is the first of so many processes."""
    with ExitStack() as stack:
        stack.enter_context(coordinated(Coordinator(), processes))
        for name in ("initialize", "shutdown"):
            nothing = patch.object(jax.distributed, name, lambda *_, **__: None)
            stack.enter_context(nothing)
        for name, answer in answers(processes).items():
            stack.enter_context(patch.object(multihost_utils, name, answer))
        yield


def _of_devices(cluster: Cluster) -> dict[str, Any]:
    """Name of an attribute of absent devices -> its answer, as of a GPU where nothing is stored."""
    chip, domain = cluster.accelerator, cluster.domain_nodes
    pool = int(xla_pool().share * (chip.usable_memory or 0))  # what XLA gives to arrays
    sizes = {"bytes_in_use": 0, "peak_bytes_in_use": 0, "bytes_limit": pool}
    return {
        # jax calls an NVLink domain a slice; devices that are here are in the first one.
        "slice_index": property(lambda d: d.process_index // domain if is_absent(d) else 0),
        "compute_capability": property(lambda self: f"{chip.compute_capability}"),
        "memory_stats": lambda self: dict(sizes),
    }


def _answers(devices: list[jax.Device]) -> dict[str, Callable[..., Any]]:
    """Name of a function of jax -> what it answers for these devices."""
    processes = 1 + max(device.process_index for device in devices)

    def local_devices(process_index: int | None = None, **_: Any) -> list[jax.Device]:
        index = THIS_PROCESS if process_index is None else process_index
        return [device for device in devices if device.process_index == index]

    return {
        "devices": lambda *_: list(devices),
        "local_devices": local_devices,
        "device_count": lambda *_: len(devices),
        "local_device_count": lambda *_: len(local_devices()),
        "process_index": lambda *_: THIS_PROCESS,
        "process_count": lambda *_: processes,
        "process_indices": lambda *_: list(range(processes)),
        "default_backend": lambda: "gpu",
    }


def _for_gpus(ask: Callable[..., Any], answer: Callable[..., Any]) -> Callable[..., Any]:
    """The answer, unless another platform is asked for by its name."""

    @wraps(ask)
    def asked(*given: Any, **options: Any) -> Any:
        backend = options.pop("backend", None)
        named = backend or next((g for g in given if isinstance(g, str)), None)
        if named is None or named in GPUS:
            return answer(*(g for g in given if not isinstance(g, str)), **options)
        return ask(*given, **options, **({"backend": backend} if backend else {}))

    return asked


def _over(make: Callable[..., Any], devices: list[jax.Device]) -> Callable[..., Any]:
    """A maker that takes `devices=`, with these where none are given."""
    parameters = signature(make)

    @wraps(make)
    def made(*given: Any, **options: Any) -> Any:
        if parameters.bind_partial(*given, **options).arguments.get("devices") is None:
            options["devices"] = devices
        return make(*given, **options)

    return made


def _one_slice(make: Callable[..., Any]) -> Callable[..., Any]:
    """`jax.make_mesh`, which refuses devices of several slices, as if there was one; it warns."""

    @wraps(make)
    def made(*given: Any, **options: Any) -> Any:
        with patch.object(type(options["devices"][0]), "slice_index", 0):
            mesh = make(*given, **options)
        if len({device.slice_index for device in mesh.devices.flat}) > 1:
            warnings.warn(MANY_SLICES, stacklevel=3)
        return mesh

    return made


_MAKERS = (
    (jax, "make_mesh"),
    (jax, "pmap"),
    (mesh_utils, "create_device_mesh"),
    (mesh_utils, "create_hybrid_device_mesh"),
)
