"""Placement: the devices of an axis, and the level that they cross."""

import math

import numpy as np
import pytest

from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.placement import (
    check_fits,
    crossed_level,
    devices_of,
    groups_on,
    torus_box,
)
from scaling.meshes.rules import divisors
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.meshes.torus import coordinates


def h100(devices):
    return catalog.load("dgx-h100", max(1, devices // 8))


def test_axes_of_a_textbook_mesh_cross_these_levels():
    mesh, cluster = parse_mesh("data=128,fsdp=4,tensor=8"), h100(4096)
    crossed = {axis: crossed_level(groups_on(mesh, [axis], cluster), cluster) for axis in AXES}
    assert (crossed["data"], crossed["fsdp"], crossed["tensor"]) == ("core", "leaf", "node")
    assert {crossed[axis] for axis in ("stage", "expert", "context")} == {"chip"}


def test_the_device_order_decides_which_axis_crosses():
    inside = parse_mesh("stage=2,tensor=8")
    outside = MeshShape(stage=2, tensor=8, device_order=tuple(reversed(AXES)))
    cluster = h100(16)
    levels = [
        crossed_level(groups_on(mesh, [axis], cluster), cluster)
        for mesh in (inside, outside)
        for axis in ("stage", "tensor")
    ]
    assert levels == ["leaf", "node", "node", "leaf"]


def test_a_mesh_may_be_smaller_than_the_cluster():
    assert groups_on(parse_mesh("data=4"), ["data"], h100(64)).tolist() == [[0, 1, 2, 3]]


def test_a_mesh_larger_than_the_cluster_says_the_numbers():
    with pytest.raises(InputError, match="needs 32 devices.*2 nodes x 8 has 16.*--nodes 4"):
        check_fits(parse_mesh("data=4,tensor=8"), h100(16))


def test_axes_of_a_mesh_run_along_the_dimensions_of_a_torus():
    """Every group of every axis of 4 x 4 x 4 is a ring of chips that differ in one coordinate."""
    cluster, mesh = catalog.load("tpu-v5p", 16), parse_mesh("data=4,fsdp=4,tensor=4")
    for dimension, axis in enumerate(("data", "fsdp", "tensor")):
        for group in groups_on(mesh, [axis], cluster).tolist():
            places = np.array([coordinates(cluster.torus, (4, 4, 4), chip) for chip in group])
            assert places[:, dimension].tolist() == [0, 1, 2, 3]
            assert all(len(set(places[:, d])) == 1 for d in range(3) if d != dimension)


def test_axes_across_slices_join_the_same_place_of_each():
    cluster, mesh = catalog.load("tpu-v4", 2048), parse_mesh("data=2,fsdp=4096")
    chips = cluster.devices // 2
    groups = groups_on(mesh, ["data"], cluster)
    assert (groups[:, 1] - groups[:, 0] == chips).all()


@pytest.mark.parametrize("name", ["tpu-v4", "tpu-v5e", "tpu-v5p"])
@pytest.mark.parametrize("nodes", [1, 4, 16])
def test_a_box_holds_as_many_chips_as_the_mesh_has(name, nodes):
    """And is a corner of the slices: the devices of a mesh are chips within it, each once."""
    cluster = catalog.load(name, nodes)
    for count in divisors(cluster.devices):
        box = torus_box(count, cluster)
        assert not box or math.prod(box) == count
        ids = devices_of({"a": count}, cluster)
        assert len(set(ids.tolist())) == count and ids.max() < cluster.devices
