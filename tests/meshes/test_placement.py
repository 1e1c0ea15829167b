"""Placement: which level an axis crosses, and how many of its groups share a node's NICs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes import catalog
from scaling.meshes.cluster import LEVELS, level_of
from scaling.meshes.errors import InputError
from scaling.meshes.placement import (
    groups_crossing,
    groups_on,
    groups_sharing_nics,
    level_of_axes,
    levels,
    place,
)
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.meshes.torus import coordinates

SIZES = st.sampled_from([1, 2, 4, 8])
MESHES = st.builds(MeshShape, data=SIZES, fsdp=SIZES, stage=SIZES, tensor=SIZES)


def h100(devices):
    return catalog.load("dgx-h100", max(1, devices // 8))


def test_neighbours_on_the_last_axis_share_a_node():
    mesh = parse_mesh("data=4,tensor=8")
    assert place(mesh, {"data": 2, "tensor": 3}, h100(32)) == (2, 3)


def test_levels_of_a_textbook_mesh():
    mesh = parse_mesh("data=128,fsdp=4,tensor=8")
    assert levels(mesh, h100(4096)) == {
        "data": "core",
        "fsdp": "leaf",
        "stage": "chip",
        "expert": "chip",
        "context": "chip",
        "tensor": "node",
    }


def test_the_device_order_decides_who_crosses():
    inside = parse_mesh("stage=2,tensor=8")
    outside = MeshShape(stage=2, tensor=8, device_order=tuple(reversed(AXES)))
    cluster = h100(16)
    assert levels(inside, cluster)["tensor"] == "node"
    assert levels(outside, cluster)["tensor"] == "leaf"
    assert levels(outside, cluster)["stage"] == "node"


def test_all_groups_of_data_leave_through_the_same_nics():
    mesh = parse_mesh("data=2,tensor=8")
    assert groups_sharing_nics(mesh, ["data"], h100(16)) == {0: 8, 1: 8}
    assert groups_sharing_nics(mesh, ["tensor"], h100(16)) == {}
    assert groups_sharing_nics(mesh, ["data", "tensor"], h100(16)) == {0: 1, 1: 1}


def test_a_tensor_axis_wider_than_a_node_is_one_group_per_node():
    assert groups_sharing_nics(parse_mesh("tensor=16"), ["tensor"], h100(16)) == {0: 1, 1: 1}


def test_groups_over_the_leaves_of_a_superpod():
    mesh = parse_mesh("data=4,fsdp=32,tensor=8")
    cluster = h100(1024)
    assert groups_crossing(mesh, ["data"], cluster, "leaf") == dict.fromkeys(range(4), 256)
    assert groups_crossing(mesh, ["fsdp"], cluster, "leaf") == {}


def test_a_mesh_may_be_smaller_than_the_cluster():
    assert levels(parse_mesh("data=4"), h100(64))["data"] == "node"


def test_a_mesh_larger_than_the_cluster_says_the_numbers():
    with pytest.raises(InputError, match="needs 32 devices.*2 nodes x 8 has 16.*--nodes 4"):
        levels(parse_mesh("data=4,tensor=8"), h100(16))


def test_a_level_that_the_cluster_lacks_names_those_it_has():
    with pytest.raises(InputError, match="no level 'spine'; it has node, leaf"):
        groups_crossing(parse_mesh("data=2"), ["data"], h100(16), "spine")


@given(MESHES, st.sampled_from(AXES))
def test_the_level_of_an_axis_is_the_highest_of_any_two_members(mesh, axis):
    cluster = h100(mesh.devices)
    groups = mesh.groups([axis]).tolist()
    pairs = ((group[0], member) for group in groups for member in group)
    highest = max((LEVELS.index(level_of(cluster, a, b)) for a, b in pairs), default=0)
    assert LEVELS.index(level_of_axes(mesh, [axis], cluster)) == highest


@given(MESHES)
def test_an_axis_uses_nics_exactly_when_it_leaves_the_node(mesh):
    cluster = h100(mesh.devices)
    for axis, level in levels(mesh, cluster).items():
        assert bool(groups_sharing_nics(mesh, [axis], cluster)) == (level not in ("chip", "node"))


@given(MESHES, st.sampled_from([AXES, AXES[::-1]]))
def test_no_node_runs_more_groups_than_it_has_devices(mesh, order):
    mesh = MeshShape(data=mesh.data, stage=mesh.stage, tensor=mesh.tensor, device_order=order)
    cluster = h100(mesh.devices)
    for axis in AXES:
        counts = groups_sharing_nics(mesh, [axis], cluster).values()
        assert all(1 <= count <= cluster.devices_per_node for count in counts)


@given(MESHES)
def test_every_device_has_its_own_place(mesh):
    cluster = h100(mesh.devices)
    places = {place(mesh, mesh.coordinates(d), cluster) for d in range(mesh.devices)}
    assert len(places) == mesh.devices


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


@given(MESHES)
def test_elsewhere_devices_are_those_of_the_mesh(mesh):
    for axis in AXES:
        found = groups_on(mesh, [axis], h100(mesh.devices))
        assert (found == mesh.groups([axis])).all()
