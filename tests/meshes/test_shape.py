"""Mesh shapes: places and groups of devices, parsing, and what misfits say."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import (
    AXES,
    MeshShape,
    check_devices,
    parse_mesh,
    parse_order,
)

sizes = st.dictionaries(st.sampled_from(AXES), st.integers(1, 4))
shapes = st.builds(
    lambda sizes, order: MeshShape(**sizes, device_order=tuple(order)),
    sizes,
    st.permutations(AXES),
)
axis_sets = st.sets(st.sampled_from(AXES))


@given(shapes)
def test_every_device_has_its_own_place(shape: MeshShape) -> None:
    places = [shape.coordinates(device) for device in range(shape.devices)]
    assert len({tuple(place.items()) for place in places}) == shape.devices
    for place in places:
        assert all(0 <= place[axis] < getattr(shape, axis) for axis in AXES)


@given(shapes)
def test_the_last_axis_of_the_order_has_neighbouring_devices(shape: MeshShape) -> None:
    stride = 1
    for axis in reversed(shape.device_order):
        if getattr(shape, axis) > 1:
            place = {**dict.fromkeys(AXES, 0), axis: 1}
            assert shape.coordinates(stride) == place
        stride *= getattr(shape, axis)


@given(shapes, axis_sets)
def test_members_of_a_group_differ_only_along_its_axes(shape: MeshShape, axes: set[str]) -> None:
    for group in shape.groups(axes):
        places = [shape.coordinates(int(device)) for device in group]
        rest = {tuple(n for axis, n in place.items() if axis not in axes) for place in places}
        assert len(rest) == 1


def test_groups_by_hand() -> None:
    shape = MeshShape(data=2, tensor=4)
    assert shape.groups(["tensor"]).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert shape.groups(["data"]).tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert shape.groups([]).tolist() == [[d] for d in range(8)]
    assert shape.groups(["tensor", "data"]).tolist() == [list(range(8))]
    turned = replace(shape, device_order=tuple(reversed(AXES)))
    assert turned.groups(["data"]).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_partial_order_puts_the_named_axes_outermost() -> None:
    assert parse_order(["tensor", "data"]) == (
        *("tensor", "data", "stage", "fsdp", "expert", "context"),
    )
    assert parse_order([]) == AXES and AXES[0] == "stage"


@pytest.mark.parametrize(
    ("axes", "message"), [(["tensr"], "'tensor'"), (["data", "data"], "named twice")]
)
def test_a_bad_order_is_refused(axes: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_order(axes)


@given(shapes)
def test_what_a_mesh_prints_is_read_back(shape: MeshShape) -> None:
    assert parse_mesh(str(shape), shape.device_order) == shape


def test_spaces_and_order_of_writing_do_not_matter() -> None:
    assert parse_mesh(" tensor = 2, data=4 ,") == MeshShape(data=4, tensor=2)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", ["--mesh is empty", "data=2,fsdp=4"]),
        ("fspd=8", ["unknown axis 'fspd'", "did you mean 'fsdp'?"]),
        ("data=2,data=4", ["'data' is given twice", "data=2,data=4"]),
        ("data", ["expected axis=size", "'data'"]),
        ("data=two", ["--mesh: 'data=two'", "whole number, at least 1"]),
        ("data=2.5", ["--mesh: 'data=2.5'", "whole number, at least 1"]),
        ("data=²", ["--mesh: 'data=²'", "whole number, at least 1"]),
        ("data=0", ["--mesh: 'data=0'", "whole number, at least 1"]),
        ("data=2 fsdp=4", ["--mesh: 'data=2 fsdp=4'", "whole number, at least 1"]),
    ],
)
def test_a_misspelt_mesh_says_what_is_wrong(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_mesh(text)
    assert all(word in str(caught.value) for word in words), caught.value


@given(st.text())
def test_any_text_is_a_mesh_or_an_input_error(text: str) -> None:
    try:
        assert parse_mesh(text).devices >= 1
    except InputError as error:
        assert "--mesh" in str(error) or "mesh axis" in str(error)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "2", None])
def test_a_size_is_a_positive_whole_number(size: object) -> None:
    with pytest.raises(InputError, match="tensor=.* must be a positive whole number"):
        MeshShape(tensor=size)  # type: ignore[arg-type]


def test_a_mesh_that_does_not_fit_says_the_numbers() -> None:
    check_devices(MeshShape(data=2, tensor=4), 8)
    with pytest.raises(InputError) as caught:
        check_devices(MeshShape(data=4, tensor=4), 8)
    for word in (
        "16 devices",
        "data 4 x tensor 4",
        "8 are present",
        "multiply to 8",
        "--devices 16",
    ):
        assert word in str(caught.value)


def test_a_device_or_axis_that_is_not_there_is_refused() -> None:
    shape = MeshShape(data=2)
    for device in (-1, 2):
        with pytest.raises(InputError, match=f"device {device} is not one of the 2"):
            shape.coordinates(device)
    with pytest.raises(InputError, match="did you mean 'fsdp'"):
        shape.groups(["fdsp"])


def test_an_order_names_every_axis_once() -> None:
    with pytest.raises(InputError, match="'pipe'"):
        MeshShape(device_order=("pipe", *AXES[1:]))
    for order in (AXES[1:], (*AXES, "data")):
        with pytest.raises(InputError, match="must name each of stage, data, .* once"):
            MeshShape(device_order=order)


@given(shapes, axis_sets)
def test_groups_share_out_the_devices(shape: MeshShape, axes: set[str]) -> None:
    groups = shape.groups(axes)
    assert groups.shape == (shape.devices // shape.size(axes), shape.size(axes))
    assert sorted(groups.flat) == list(range(shape.devices))
    assert (np.diff(groups, axis=1) > 0).all()  # in device order
