"""Jax meshes over the devices present, fake ones, absent GPUs and none at all."""

from itertools import permutations

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from scaling.meshes import catalog, devices
from scaling.meshes.cluster import Cluster
from scaling.meshes.devices import (
    absent_mesh,
    abstract_mesh,
    host_mesh,
    present_mesh,
    use_host_devices,
)
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape, parse_mesh

SHAPE = MeshShape(data=2, fsdp=2, tensor=2)


@pytest.mark.parametrize("order", [AXES, AXES[::-1], *list(permutations(AXES))[100:600:150]])
def test_a_mesh_has_all_axes_in_device_order(order: tuple[str, ...]) -> None:
    shape = MeshShape(data=2, fsdp=2, tensor=2, device_order=order)
    for mesh in (host_mesh(shape), present_mesh(shape), abstract_mesh(shape)):
        assert mesh.axis_names == order
        assert dict(mesh.shape) == shape.sizes
        assert set(mesh.axis_types) == {AxisType.Explicit}


@pytest.mark.parametrize("order", [AXES, AXES[::-1]])
def test_devices_sit_where_the_shape_says(order: tuple[str, ...]) -> None:
    shape = MeshShape(data=4, tensor=2, device_order=order)
    mesh = host_mesh(shape)
    for device in range(shape.devices):
        place = tuple(shape.coordinates(device)[axis] for axis in order)
        assert mesh.devices[place].id == device


def test_shards_lie_on_the_group_that_the_shape_names() -> None:
    """An array cut over one axis: devices with equal shards differ along the other axes only."""
    for axis in ("data", "fsdp", "tensor"):
        sharding = jax.NamedSharding(host_mesh(SHAPE), PartitionSpec(axis))
        by_shard: dict[object, set[int]] = {}
        for device, index in sharding.devices_indices_map((8,)).items():
            by_shard.setdefault(str(index), set()).add(device.id)
        others = [other for other in ("data", "fsdp", "tensor") if other != axis]
        assert sorted(map(sorted, by_shard.values())) == sorted(SHAPE.groups(others).tolist())


def test_a_mesh_may_use_fewer_host_devices_than_there_are() -> None:
    assert len(jax.devices("cpu")) == 8
    assert [d.id for d in host_mesh(MeshShape(fsdp=4)).devices.flat] == [0, 1, 2, 3]


def test_too_few_devices_are_refused_with_the_numbers() -> None:
    jax.devices()
    with pytest.raises(InputError, match="16 devices .*8 are present.*--devices 16"):
        present_mesh(MeshShape(data=16))
    with pytest.raises(InputError, match="4 devices .*8 are present"):
        present_mesh(MeshShape(data=4))
    with pytest.raises(InputError, match="already runs with 8 host devices, cannot make it 16"):
        host_mesh(MeshShape(data=16))


def test_asking_for_the_devices_there_are_changes_nothing() -> None:
    jax.devices()
    use_host_devices(8)
    with pytest.raises(InputError, match="--devices 0 must be a positive"):
        use_host_devices(0)
    with pytest.raises(InputError, match="before the first use of jax"):
        use_host_devices(3)


def test_an_abstract_mesh_of_any_size_needs_no_devices() -> None:
    shape = parse_mesh("data=64,fsdp=16,tensor=8")
    with jax.sharding.use_abstract_mesh(abstract_mesh(shape)):
        spec = PartitionSpec(("data", "fsdp"), "tensor")
        x = jax.eval_shape(lambda: jax.numpy.zeros((1024, 16), out_sharding=spec))
    assert x.sharding.shard_shape(x.shape) == (1, 2)


@pytest.fixture(scope="module")
def h100() -> Cluster:
    return catalog.load("dgx-h100", nodes=64)


@pytest.mark.deviceless
@pytest.mark.parametrize("text", ["fsdp=2", "data=4,tensor=8", "data=8,fsdp=8,tensor=8"])
def test_absent_gpus_make_a_mesh_that_compiles(text: str, h100: Cluster) -> None:
    shape = parse_mesh(text)
    mesh = absent_mesh(shape, h100)
    assert dict(mesh.shape) == shape.sizes
    assert [device.id for device in mesh.devices.flat] == list(range(shape.devices))
    with jax.set_mesh(mesh):
        sharding = jax.NamedSharding(mesh, PartitionSpec(tuple(shape.sizes)))
        x = jax.ShapeDtypeStruct((shape.devices, 4), np.float32, sharding=sharding)
        program = jax.jit(lambda x: x.sum()).lower(x).compile().as_text()
    assert "all-reduce" in program


@pytest.mark.deviceless
def test_absent_hosts_must_be_full(h100: Cluster) -> None:
    with pytest.raises(InputError, match="does not fill hosts of 8 GPUs; use a multiple of 8 "):
        absent_mesh(MeshShape(data=12), h100)


def test_a_plugin_of_another_version_than_jax_is_refused(h100: Cluster, monkeypatch) -> None:
    monkeypatch.setattr(devices.metadata, "version", lambda package: "0.4.30")
    with pytest.raises(
        InputError, match=f"jax-cuda12-plugin 0.4.30 is not for jax {jax.__version__}"
    ):
        devices._topology("", 1, 8)


def test_a_jax_that_is_too_old_is_told_in_one_line(h100: Cluster, monkeypatch) -> None:
    monkeypatch.setattr(jax, "__version_info__", (0, 8, 0))
    with pytest.raises(InputError, match="install jax 0.8.3 or newer, or price a dump"):
        absent_mesh(MeshShape(data=8), h100)
