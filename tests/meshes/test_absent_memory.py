"""Absent devices keep the kind of memory that a sharding asks for."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.meshes import catalog
from scaling.meshes.absent_memory import MEMORIES, TellingDevice, show_memories
from scaling.meshes.devices import absent_mesh
from scaling.meshes.shape import MeshShape


def test_a_list_of_devices_asks_a_telling_device_for_its_memories():
    here = jax.devices("cpu")
    listed = type(Mesh(np.array(here), "d")._internal_device_list)(
        (TellingDevice(here[0]), *here[1:])
    )
    assert listed.default_memory_kind == "device"
    assert listed.memory_kinds == MEMORIES == ("device", "pinned_host")
    assert set(listed) == set(here) and hash(TellingDevice(here[0])) == hash(here[0])
    assert repr(TellingDevice(here[0])) == repr(here[0]) and TellingDevice(here[0]).id == here[0].id


def test_devices_that_are_present_tell_their_own_memories():
    show_memories()
    mesh = Mesh(np.array(jax.devices("cpu")), ("d",))
    here = {memory.kind for memory in jax.devices("cpu")[0].addressable_memories()}
    assert set(mesh._internal_device_list.memory_kinds) == here != set(MEMORIES)
    assert not any(isinstance(device, TellingDevice) for device in mesh._internal_device_list)


def test_a_mesh_without_devices_has_its_list():
    show_memories()
    assert list(Mesh(np.empty((), object), ())._internal_device_list) == [None]


@pytest.mark.deviceless
@pytest.mark.parametrize("devices", [slice(0, 16), slice(8, 16)], ids=["all", "second host"])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_sharding_over_absent_devices_keeps_its_memory_kind(kind, devices):
    whole = absent_mesh(MeshShape(data=16), catalog.load("dgx-h100", nodes=2))
    mesh = Mesh(whole.devices.flatten()[devices], ("d",), axis_types=(kind,))
    host = NamedSharding(mesh, P("d"), memory_kind="pinned_host")
    assert (host.memory_kind, host.mesh.devices[0]) == ("pinned_host", mesh.devices[0])
    assert host != NamedSharding(mesh, P("d"))
    assert host.with_memory_kind("device").memory_kind == "device"
    assert all(isinstance(device, jax.Device) for device in mesh.devices.flat)
