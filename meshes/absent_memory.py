"""Absent devices have the memories of present ones, so that `memory_kind="pinned_host"` is kept.

    NamedSharding(mesh, spec, memory_kind=...)   asks the mesh's list of devices for their memories
    jaxlib's device of a topology                has none to tell: jax drops the kind in silence
    TellingDevice                                stands for one such device in the list, and tells

A list with one object that is none of jaxlib's devices asks the first that is addressable for
`addressable_memories()` (jaxlib/py_device_list.cc). Programs are compiled for jaxlib's own devices;
of their results the list is asked again. What is used here of jax is private: tried with jax
0.10.2, there in 0.12. A SingleDeviceSharding makes its own list, and still drops the kind
(`scaling.compile.pretend.devices` has another).
"""

import functools
from typing import Any

import jax
from jax._src.interpreters import pxla
from jax.sharding import Mesh


class Memory(str):
    """One memory of a device: equal to its kind, as jaxlib compares them."""

    @property
    def kind(self) -> str:
        """What `memory_kind=` calls it."""
        return str(self)


# Those of a GPU that is present, by `jax.Device.addressable_memories()`; its own is the default
MEMORIES = Memory("device"), Memory("pinned_host")


class TellingDevice:
    """A device of a topology that tells its memories; equal to it."""

    def __init__(self, device: jax.Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._device == getattr(other, "_device", other))

    def __hash__(self) -> int:
        return hash(self._device)

    def __repr__(self) -> str:
        return repr(self._device)

    def default_memory(self) -> Memory:
        """Where arrays are if nothing else is said."""
        return MEMORIES[0]

    def addressable_memories(self) -> tuple[Memory, ...]:
        """Its own memory, and its host's."""
        return MEMORIES


def is_absent(device: Any) -> bool:
    """Return True for a device without hardware: programs compile for it and do not run.

    An empty mesh has None in the place of a device, for which this is False.
    """
    return "CompileOnly" in type(getattr(device, "client", None)).__name__


@functools.cache
def show_memories() -> None:
    """Let meshes of absent devices, and programs for them, tell their memories from now on."""
    listed: Any = vars(Mesh)["_internal_device_list"]
    programs: Any = pxla
    results = programs.get_out_shardings_from_executable

    def listing(mesh: Mesh) -> Any:
        return _with_memories(listed.__get__(mesh, type(mesh)))

    def with_kinds(program: Any, devices: Any, *given: Any, **named: Any) -> Any:
        return results(program, _with_memories(devices), *given, **named)

    Mesh._internal_device_list = property(listing)  # type: ignore[assignment]
    programs.get_out_shardings_from_executable = with_kinds


@functools.cache
def _with_memories(devices: Any) -> Any:
    """The list of devices; of absent ones with a teller for the first that is addressable."""
    if not len(devices) or not is_absent(devices[0]):
        return devices
    mine = devices[0].client.process_index()
    first = next((i for i, d in enumerate(devices) if d.process_index == mine), 0)
    return type(devices)(
        tuple(TellingDevice(d) if i == first else d for i, d in enumerate(devices))
    )
