"""Groups read from every spelling that XLA has, and the mesh axes that they are.

Expected groups come from walking the coordinates of a mesh one device at a time.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.parse import UnknownHlo, parse_instruction
from scaling.hlo.replica_groups import (
    axes_of_groups,
    axes_of_pairs,
    groups_in,
    replica_groups,
    source_target_pairs,
)
from tests.calls import calls

SIX = {"data": 2, "fsdp": 16, "stage": 4, "expert": 4, "context": 4, "tensor": 8}  # 16,384 devices

meshes = st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=4).map(
    lambda sizes: {f"axis_{i}": size for i, size in enumerate(sizes)}
)


@st.composite
def mesh_and_axes(draw):
    """A mesh and some of its axes larger than 1, in mesh order."""
    mesh = draw(meshes)
    large = [axis for axis, size in mesh.items() if size > 1]
    chosen = draw(st.sets(st.sampled_from(large))) if large else set()
    return mesh, tuple(axis for axis in large if axis in chosen)


def walked(mesh, axes) -> dict[tuple, list[int]]:
    """Device numbers by their coordinates on the other axes."""
    groups: dict[tuple, list[int]] = {}
    places = itertools.product(*(range(size) for size in mesh.values()))
    for device, place in enumerate(places):
        rest = tuple(i for i, axis in zip(place, mesh, strict=True) if axis not in axes)
        groups.setdefault(rest, []).append(device)
    return groups


def as_sets(groups) -> set[frozenset[int]]:
    return {frozenset(group) for group in np.asarray(groups).tolist()}


def listed(groups) -> str:
    return "{" + ",".join("{" + ",".join(map(str, group)) + "}" for group in groups) + "}"


def start(attributes: str):
    return parse_instruction(f"  %x = f32[8]{{0}} all-reduce-start(%p), {attributes}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("{{3}}", [[3]]),
        ("{}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("[4,2]<=[8]", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("[2,4]<=[4,2]T(1,0)", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("[4,2]<=[2,2,2]T(1,2,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_1'}", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        ("mesh['axis_0'=4,'axis_1'=2] {'axis_0'}", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("mesh['data'=2,'fsdp'=2,'cp'=1,'tp'=2] {'data','tp'}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=2,'b'=2], device_ids=(0,2,1,3) {'b'}", [[0, 2], [1, 3]]),
        ("mesh['a'=8] {'a':(1)2}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("mesh['a'=8] {'a':(2)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("mesh['a'=8] {'a':(2)4}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("mesh['a'=8] {'a':(1)2,'a':(4)2}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=2,'b'=4] {'a','b':(2)2}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("mesh['a'=2,'b'=2] {}", [[0], [1], [2], [3]]),
    ],
)  # fmt: skip
def test_each_spelling_reads_as_device_numbers(text, expected):
    assert as_sets(groups_in(text, 8)) == as_sets(expected)


@given(mesh_and_axes(), st.booleans())
def test_groups_along_axes_read_the_same_listed_or_as_a_mesh(case, with_ids):
    mesh, axes = case
    devices = math.prod(mesh.values())
    ids = f", device_ids=([{devices},1]T(1,0))" if with_ids else ""
    sizes = ",".join(f"'{axis}'={size}" for axis, size in mesh.items())
    names = ",".join(f"'{axis}'" for axis in axes)
    expected = list(walked(mesh, axes).values())
    assert as_sets(groups_in(f"mesh[{sizes}]{ids} {{{names}}}", devices)) == as_sets(expected)
    assert as_sets(groups_in(listed(expected), devices)) == as_sets(expected)


@given(mesh_and_axes())
def test_a_transposed_iota_of_a_mesh_is_its_groups(case):
    mesh, axes = case
    names = list(mesh)
    order = [i for i in range(len(names)) if names[i] not in axes]
    order += [i for i in range(len(names)) if names[i] in axes]
    sizes = ",".join(map(str, mesh.values()))
    expected = list(walked(mesh, axes).values())
    text = f"[{len(expected)},{len(expected[0])}]<=[{sizes}]T({','.join(map(str, order))})"
    assert as_sets(groups_in(text, math.prod(mesh.values()))) == as_sets(expected)


@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 4))
def test_a_part_of_an_axis_is_an_axis_of_the_finer_mesh(outside, size, inside):
    whole = outside * size * inside
    finer = {"outside": outside, "part": size, "inside": inside}
    expected = list(walked(finer, ("part",)).values())
    assert as_sets(groups_in(f"mesh['a'={whole}] {{'a':({outside}){size}}}", whole)) == as_sets(
        expected
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{0,1},{2}}", "different sizes"),
        ("{{0,1},{1,2}}", "two groups"),
        ("{{0,8}}", "beyond the 8"),
        ("{{},{}}", "not known"),
        ("{{0,1}", "not known"),
        ("[2,4]<=[4]", "do not fill"),
        ("[2,4]<=[8]T(1)", "not known"),
        ("[2,4]<=[x]", "not known"),
        ("@mesh<a=8> {a}", "not known"),
        ("mesh['a'=8]", "not known"),
        ("mesh['a'=8] {'b'}", "no axis 'b'"),
        ("mesh['a'=8] {'a':(3)2}", "do not divide"),
        ("mesh['a'=4] {'a':(2)4}", "do not divide"),
        ("mesh['a'=8] {'a':(1)8,'a':(2)2}", "do not divide"),  # they overlap
        ("mesh['a'=4], device_ids=(0,1) {'a'}", "do not fill"),
        ("mesh['a'=4], device_ids=([2,2]T(2,0)) {'a'}", "not known"),
        ("mesh['a'=16] {'a'}", "beyond the 8"),
        ("all", "not known"),
    ],
)
def test_what_does_not_read_as_groups_is_an_error_that_quotes_it(text, said):
    with pytest.raises(UnknownHlo, match=said) as error:
        groups_in(text, 8)
    assert text in str(error.value)


def test_device_numbers_after_a_comma_belong_to_the_groups():
    ids = "replica_groups=mesh['a'=4,'b'=2], device_ids=([2,4]T(1,0)) {'b'}, to_apply=%sum"
    assert replica_groups(start(ids), 8).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_replica_0_with_a_channel_is_all_its_partitions():
    assert replica_groups(start("channel_id=1, replica_groups={{0}}"), 4).tolist() == [[0, 1, 2, 3]]
    flat = "channel_id=1, replica_groups={{0}}, use_global_device_ids=true"
    assert replica_groups(start(flat), 4).tolist() == [[0]]
    assert replica_groups(start("replica_groups={{0}}"), 4).tolist() == [[0]]


@given(mesh_and_axes(), st.randoms(use_true_random=False))
def test_the_axes_of_groups_are_found_in_whatever_order_these_stand(case, random):
    mesh, axes = case
    groups = list(walked(mesh, axes).values())
    random.shuffle(groups)
    for group in groups:
        random.shuffle(group)
    assert axes_of_groups(np.array(groups), mesh) == axes


@given(mesh_and_axes(), st.data())
def test_groups_with_two_devices_exchanged_are_those_of_no_axes(case, data):
    mesh, axes = case
    groups = np.array(list(walked(mesh, axes).values()))
    if 1 in groups.shape:
        return
    first, second = data.draw(st.permutations(range(len(groups))))[:2]
    groups[first, 0], groups[second, 0] = groups[second, 0], groups[first, 0]
    if as_sets(groups) != as_sets(list(walked(mesh, axes).values())):
        assert axes_of_groups(groups, mesh) != axes


@pytest.mark.parametrize(
    "groups",
    [
        [[0, 1]],  # the other devices do nothing
        [[0, 1], [2, 3], [4, 5], [6, 8]],
        [[0, 3], [1, 2], [4, 7], [5, 6]],
        [[0, 1, 2], [3, 4, 5]],
        [[0, 1, 2, 3], [4, 5, 6, 7]],  # half of the axis of 4
    ],
)
def test_groups_of_no_axes_have_none(groups):
    assert axes_of_groups(np.array(groups), {"data": 4, "context": 1, "tensor": 2}) is None


def test_groups_of_one_device_are_along_no_axes():
    assert axes_of_groups(np.array([[0], [1]]), {"data": 2}) == ()
    assert axes_of_groups(np.array([[0]]), {"data": 1}) == ()
    assert axes_of_groups(np.array([[0]]), {}) == ()


@pytest.mark.parametrize("axes", [("data",), ("fsdp", "tensor"), tuple(SIX)])
def test_axes_of_16384_devices_are_found_at_once(axes):
    names = ",".join(f"'{axis}'" for axis in axes)
    sizes = ",".join(f"'{axis}'={size}" for axis, size in SIX.items())
    groups = groups_in(f"mesh[{sizes}] {{{names}}}", 16384)
    assert axes_of_groups(groups, SIX) == axes
    assert (
        calls(lambda: axes_of_groups(groups, SIX)) < 300
    )  # 87 at most, by arrays; not each device


def pairs(text: str, devices: int = 8) -> np.ndarray:
    line = f"  %x = f32[8]{{0}} collective-permute(%p), source_target_pairs={text}"
    return source_target_pairs(parse_instruction(line), devices)


@pytest.mark.parametrize(
    ("text", "axes", "is_ring"),
    [
        ("{{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}}", ("tensor",), True),
        ("{{0,2},{1,3},{2,4},{3,5},{4,6},{5,7},{6,0},{7,1}}", ("data",), True),
        ("{{2,0},{3,1},{4,2},{5,3},{6,4},{7,5},{0,6},{1,7}}", ("data",), True),  # backwards
        ("{{0,2},{1,3},{2,4},{3,5},{4,6},{5,7}}", ("data",), False),  # the last sends nothing
        ("{{0,1},{1,2},{2,3},{3,4},{4,5},{5,6},{6,7},{7,0}}", ("data", "tensor"), True),
        ("{{0,6},{1,7},{2,4},{3,5},{4,2},{5,3},{6,0},{7,1}}", ("data",), False),  # a reflection
        ("{{0,4},{1,5},{2,6},{3,7},{4,0},{5,1},{6,2},{7,3}}", ("data",), False),  # two places on
        ("{{0,1},{1,0}}", ("tensor",), False),
        ("{{0,0},{1,1}}", (), False),
        ("{}", (), False),
    ],
)
def test_pairs_are_along_the_axes_on_which_any_differ(text, axes, is_ring):
    mesh = {"data": 4, "context": 1, "tensor": 2}
    assert axes_of_pairs(pairs(text), mesh) == (axes, is_ring)


@given(mesh_and_axes(), st.integers(-5, 5))
def test_only_a_shift_by_one_place_is_a_ring(case, shift):
    mesh, axes = case
    sent = shifted(mesh, axes, shift)
    found, is_ring = axes_of_pairs(np.array(sorted(sent)), mesh)
    moves = bool(axes) and shift % math.prod(mesh[axis] for axis in axes) != 0
    assert set(found) <= set(axes) and bool(found) == moves
    assert is_ring == (moves and sent in (shifted(mesh, found, 1), shifted(mesh, found, -1)))


def shifted(mesh: dict, axes: tuple, places: int) -> set[tuple[int, int]]:
    """Every device sends so many places on along the axes."""
    groups = walked(mesh, axes).values()
    return {(g[i], g[(i + places) % len(g)]) for g in groups for i in range(len(g))}


@pytest.mark.parametrize("text", ["{{0,1,2}}", "{{0}}", "{{0,8}}", "{{0,1},{2}}", "[2,2]<=[4]"])
def test_what_are_no_pairs_of_the_mesh_is_an_error(text):
    with pytest.raises(UnknownHlo):
        pairs(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1,10000000000]<=[10000000000]",
        "mesh['a'=10000000000] {'a'}",
        "mesh['a'=8], device_ids=([10000000000]) {'a'}",
    ],
)
def test_groups_of_more_devices_than_there_are_take_no_memory(text, monkeypatch):
    arange = np.arange

    def small(count):
        assert count <= 8
        return arange(count)

    monkeypatch.setattr(np, "arange", small)
    with pytest.raises(UnknownHlo, match="devices beyond the 8 of the mesh"):
        groups_in(text, 8)
