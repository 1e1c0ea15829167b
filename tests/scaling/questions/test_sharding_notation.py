"""The notation of sharded arrays, what devices hold, and the steps between two shardings."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import groups_along
from scaling.questions.notation import (
    ArraySpec,
    Dim,
    format_array,
    parse_array,
    parse_expression,
)
from scaling.questions.product import product_of, strategies
from scaling.questions.resharding import steps
from scaling.questions.sharding import (
    ShapeContext,
    coordinates,
    copies,
    device_bytes,
    device_shape,
    index,
    slices,
    total_bytes,
)

MESH = {"X": 2, "Y": 3, "Z": 2}
SETTING = ShapeContext(MESH, {"I": 24, "J": 12, "K": 36}, "bf16")


@st.composite
def arrays(draw, mesh=MESH, names="IJK", unreduced=True):
    """Any way to lay an array on a mesh."""
    axes = draw(st.permutations(list(mesh)))
    places = [draw(st.sampled_from([*names, "", *("+" if unreduced else "")])) for _ in axes]
    held = lambda name: tuple(a for a, place in zip(axes, places, strict=True) if place == name)
    dtype = draw(st.sampled_from(["", "bf16", "int4", "fp32"]))
    return ArraySpec("A", tuple(Dim(name, held(name)) for name in names), held("+"), dtype)


@given(arrays({"X": 2, "XY": 2, "Y": 2, "data": 2}))
def test_what_is_written_is_read_again(array):
    axes = ["X", "XY", "Y", "data"]
    assert parse_array(format_array(array, axes), axes) == array


@pytest.mark.parametrize(
    "text",
    ["A[I_XY,J]{U_Z}", " A [ I_{XY} , J ] { U_Z } ", "A[I_{X,Y},J]{U_{Z}}"],
)
def test_spellings_of_one_array(text):
    dims = (Dim("I", ("X", "Y")), Dim("J"))
    assert parse_array(text, list(MESH)) == ArraySpec("A", dims, ("Z",))


def test_number_formats_and_sizes_in_place_of_names():
    array = parse_array("bf16[1024_X, 4096]", ["X"])
    assert array == ArraySpec("", (Dim("1024", ("X",)), Dim("4096")), (), "bf16")
    assert parse_array("int8 A[I]", ["X"]).dtype == "int8"
    assert len(parse_expression("A[I,J] ·_J B[J,K] → C[I,K]", ["X"]).operands) == 2


@given(arrays())
def test_bytes_of_all_devices_are_copies_of_all_bytes(array):
    held = device_bytes(array, SETTING)
    assert held * SETTING.devices == copies(array, SETTING) * total_bytes(array, SETTING)
    assert len({part for _, part in slices(array, SETTING)}) == SETTING.ways(
        (*array.axes, *array.unreduced)
    )


def region(array, device):
    """The elements that a device holds, as a mask."""
    mask = np.zeros([SETTING.size(dim.name) for dim in array.dims], bool)
    place = coordinates(device, MESH)
    cut = []
    for dim, size in zip(array.dims, device_shape(array, SETTING), strict=True):
        number = index(dim.axes, place, MESH)
        cut.append(slice(number * size, (number + 1) * size))
    mask[tuple(cut)] = True
    return mask


@given(arrays(), arrays(unreduced=False), st.booleans())
def test_every_step_gives_a_device_what_its_group_holds(source, target, together):
    """The regions of the members cover what each of them has behind a step."""
    now = source
    for step in steps(source, target, SETTING, together):
        assert step.before == now
        now = step.after
        alone = [[device] for device in range(SETTING.devices)]
        groups = alone if step.kind == "slice" else groups_along(MESH, step.axes)
        for members in groups:
            before = np.logical_or.reduce([region(step.before, device) for device in members])
            assert all((before | ~region(step.after, device)).all() for device in members)
        if step.kind in ("slice", "all-gather", "all-to-all", "permute"):
            assert set(step.before.unreduced) == set(step.after.unreduced)
        if step.kind in ("all-to-all", "permute"):
            assert device_bytes(step.before, SETTING) == device_bytes(step.after, SETTING)
    assert (now.dims, now.unreduced) == (target.dims, ())


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("A[I_X,J] -> A[I,J]", ["all-gather"]),
        ("A[I_X,J] -> A[I,J_X]", ["all-to-all"]),
        ("A[I,J] {U_X} -> A[I,J]", ["all-reduce"]),
        ("A[I,J] {U_X} -> A[I_X,J]", ["reduce-scatter"]),
        ("A[I,J] -> A[I_X,J]", ["slice"]),
        ("A[I_X,J_Z] -> A[I_Z,J_X]", ["permute"]),
        ("A[I_XY,J] -> A[I_Y,J]", ["all-gather", "slice"]),
        ("A[I_X,J_Y] -> A[I_Y,J_X]", ["all-gather", "all-to-all", "slice"]),
        ("A[I_X,J] {U_Y} -> A[I,J]", ["all-reduce", "all-gather"]),
        ("A[I_X,J_Y] -> A[I,J]", ["all-gather"]),
    ],
)
def test_reshardings_and_their_collectives(text, kinds):
    asked = parse_expression(text, list(MESH))
    assert [s.kind for s in steps(asked.operands[0], asked.result, SETTING)] == kinds


@pytest.mark.parametrize(
    "text",
    [
        "A[I_X,J_Y] @ B[J_Y,K] -> C[I_X,K]",
        "A[I_X,J] @ B[J_X,K_Y] -> C[I_Z,K]",
        "A[I,J_X] @ B[K_X,J] -> C[K_X,I]",
        "A[K_X,I] @ B[K,J_X] -> C[K,I,J]",
        "A[I_X,J_YZ] @ B[J_Y,K] -> C[I,K_X]",
    ],
)
def test_every_strategy_multiplies_to_the_whole_product(text):
    """What the devices make of their parts, summed over axes with partial sums, is the result."""
    product = product_of(parse_expression(text, list(MESH)))
    random = np.random.default_rng(0)
    names = [[dim.name for dim in a.dims] for a in (product.left, product.right, product.result)]
    letters = "{},{}->{}".format(*("".join(n).lower() for n in names))
    left, right = (random.integers(0, 9, [SETTING.sizes[n] for n in name]) for name in names[:2])
    whole = np.einsum(letters, left, right)
    for way in strategies(product, SETTING):
        made = np.zeros_like(whole)
        for device in range(SETTING.devices):
            place = coordinates(device, MESH)
            idle = [a for a in MESH if a not in dict(way.works) or not dict(way.works)[a]]
            if any(place[axis] for axis in idle):
                continue
            a, b, c = (np.argwhere(region(x, device)) for x in (way.left, way.right, way.made))
            box = lambda found: np.ix_(*(np.unique(column) for column in found.T))
            made[box(c)] += np.einsum(letters, left[box(a)], right[box(b)])
        assert (made == whole).all(), str(way)
        assert math.prod(device_shape(way.made, SETTING)) > 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A[I_Q]", "no axis of the mesh"),
        ("A[I_X,J_X]", "uses axis X 2 times"),
        ("A[I_X,J]{U_X}", "uses axis X 2 times"),
        ("A[I,I]", "names dimension I twice"),
        ("A(I,J)", "write for example"),
        ("", "write for example"),
        ("A[I_,J]", "is no dimension"),
        ("A[I,,J]", "is no dimension"),
        ("A[I_{},J]", "no axis in"),
        ("A[0_X]", "no size"),
        ("A[" + "9" * 30 + "]", "no size"),
        ("A[if]", "word of formulas"),
        ("A[max]", "word of formulas"),
        ("bf17 A[I]", "bf16"),
        ("A[I] {U_}", "no axis behind U_"),
        ("A[I] -> ", "one ->"),
        ("A[I] -> A[I] -> A[I]", "one ->"),
        ("A[I,J] @ B[J,K] @ C[K,L]", "two at a time"),
        ("A[I]" * 300, "characters"),
        ("A[" + ",".join(f"d{i}" for i in range(13)) + "]", "at most 12"),
    ],
)
def test_what_is_not_the_notation_is_said(text, says):
    with pytest.raises(InputError, match=says):
        parse_expression(text, list(MESH))
