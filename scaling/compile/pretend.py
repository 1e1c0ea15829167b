"""`jax.devices()` and its relatives answer for a cluster that is not here.

A framework asks jax which devices there are, makes meshes and shardings of them, and lowers its
step. While `pretending` is on, the public functions below answer as on the first host of the
cluster; nothing is executed there: values are computed on the CPU, and arrays that lie on absent
devices are jax.ShapeDtypeStruct.

    asked                                                      answered
    devices, device_count, process_count, ...                  for the cluster
    make_mesh, create_device_mesh ... without devices=         over the cluster's devices
    pmap                                                       for all processes, from one's part
    slice_index of a device, for create_hybrid_device_mesh     its NVLink domain, as on GPUs
    device_put, make_array_from_callback, ..., to them         the shape, with its sharding

Names of a module that were imported from jax one by one before keep their meaning.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from inspect import signature
from typing import Any
from unittest.mock import patch

import jax
from jax.dtypes import canonicalize_dtype
from jax.experimental import mesh_utils

from scaling.compile.jax_internals import is_absent, tracing_for_absent_devices
from scaling.compile.mapped import mapping
from scaling.compile.quiet import quiet
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import absent_devices, host_mesh
from scaling.meshes.shape import MeshShape

GPUS = ("gpu", "cuda")  # names of the platform, for which absent devices answer
HERE = 0  # index of the process that asks
MANY_SLICES = (
    "on this cluster jax.make_mesh refuses a mesh of several NVLink domains (jax 0.10 and later): "
    "use jax.experimental.mesh_utils.create_hybrid_device_mesh there"
)


@contextmanager
def pretending(cluster: Cluster) -> Iterator[list[jax.Device]]:
    """While it is on, jax has the devices of a cluster; yields them.

    Raises:
        InputError: there is no compiler for the cluster's chip.
    """
    if cluster.virtual_devices:
        yield list(host_mesh(MeshShape(data=cluster.devices)).devices.flat)
        return
    with quiet():
        devices = absent_devices(cluster.devices, cluster)
    with ExitStack() as stack:
        stack.enter_context(tracing_for_absent_devices())
        for name, answer in _answers(devices).items():
            stack.enter_context(patch.object(jax, name, _for_gpus(getattr(jax, name), answer)))
        for place, name in _MAKERS:
            made = getattr(place, name)
            made = _over(_one_slice(made) if name == "make_mesh" else made, devices)
            stack.enter_context(patch.object(place, name, made))
        local = sum(device.process_index == HERE for device in devices)
        stack.enter_context(patch.object(jax, "pmap", mapping(jax.pmap, local, len(devices))))
        for name, shape_of in _PUTTERS.items():
            put = _abstract(getattr(jax, name), shape_of)
            stack.enter_context(patch.object(jax, name, put))
        start = patch.object(jax.distributed, "initialize", lambda *args, **options: None)
        stack.enter_context(start)
        slices = property(partial(_slice_of, domain=cluster.domain_nodes))
        stack.enter_context(patch.object(type(devices[0]), "slice_index", slices, create=True))
        yield devices


def _slice_of(device: jax.Device, domain: int) -> int:
    """The NVLink domain of an absent device, which jax calls a slice."""
    return device.process_index // domain if is_absent(device) else 0


def _answers(devices: list[jax.Device]) -> dict[str, Callable[..., Any]]:
    """Name of a function of jax -> what it answers for these devices."""
    processes = 1 + max(device.process_index for device in devices)

    def local_devices(process_index: int | None = None, **_: Any) -> list[jax.Device]:
        index = HERE if process_index is None else process_index
        return [device for device in devices if device.process_index == index]

    return {
        "devices": lambda *_: list(devices),
        "local_devices": local_devices,
        "device_count": lambda *_: len(devices),
        "local_device_count": lambda *_: len(local_devices()),
        "process_index": lambda *_: HERE,
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


def _abstract(put: Callable[..., Any], shape_of: Callable[..., Any]) -> Callable[..., Any]:
    """A function that puts values on devices: on absent ones it returns their shapes."""

    @wraps(put)
    def placed(*given: Any, **options: Any) -> Any:
        values, where = shape_of(*given, **options)
        if not any(map(_is_over_absent, jax.tree.leaves(where, is_leaf=_is_place))):
            return put(*given, **options)
        places = where if not _is_place(where) else jax.tree.map(lambda _: where, values)
        return jax.tree.map(_shape, values, places)

    return placed


def _is_place(where: Any) -> bool:
    return isinstance(where, jax.sharding.Sharding | jax.Device)


def _is_over_absent(where: Any) -> bool:
    devices = [where] if isinstance(where, jax.Device) else getattr(where, "device_set", ())
    return any(map(is_absent, devices))


def _shape(value: Any, where: Any) -> jax.ShapeDtypeStruct:
    """The shape of a value; on one device that is not in a mesh, without a sharding."""
    sharding = where if isinstance(where, jax.sharding.Sharding) else None
    if not isinstance(value, jax.ShapeDtypeStruct):
        value = jax.eval_shape(lambda: jax.numpy.asarray(value))
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)


def _of_callback(shape: Any, sharding: Any, data: Any, dtype: Any = None, **_: Any) -> Any:
    """The array of `make_array_from_callback`, whose type the callback's first part tells."""
    if dtype is None:
        index = next(iter(sharding.devices_indices_map(tuple(shape)).values()))
        dtype = jax.numpy.asarray(data(index)).dtype
    return jax.ShapeDtypeStruct(tuple(shape), dtype), sharding


def _of_process(sharding: Any, data: Any, global_shape: Any = None) -> Any:
    """The array of `make_array_from_process_local_data`."""
    if global_shape is None:  # every process has an equal part of the first dim
        processes = len({device.process_index for device in sharding.device_set})
        global_shape = (data.shape[0] * processes, *data.shape[1:])
    return jax.ShapeDtypeStruct(tuple(global_shape), canonicalize_dtype(data.dtype)), sharding


_MAKERS = (
    (jax, "make_mesh"),
    (jax, "pmap"),
    (mesh_utils, "create_device_mesh"),
    (mesh_utils, "create_hybrid_device_mesh"),
)
_PUTTERS: dict[str, Callable[..., Any]] = {
    "device_put": lambda x, device=None, **_: (x, device),
    "make_array_from_callback": _of_callback,
    "make_array_from_process_local_data": _of_process,
}
