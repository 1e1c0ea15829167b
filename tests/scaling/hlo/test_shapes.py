"""Shapes survive being written and read, and what is no shape says so."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.shapes import BITS, Array, arrays, leaves, parse_shape, size


@st.composite
def one_array(draw) -> Array:
    dims = tuple(draw(st.lists(st.integers(0, 20), max_size=4)))
    layout = tuple(draw(st.permutations(range(len(dims)))))
    return Array(
        draw(st.sampled_from(sorted(BITS))), dims, layout, draw(st.sampled_from([0, 1, 5]))
    )


def some_shape():
    tuples = lambda parts: st.lists(parts, max_size=8).map(tuple)
    return st.recursive(one_array(), tuples, max_leaves=20)


def written(shape, tiles: str = "") -> str:
    """As XLA prints it; every fifth part of a tuple with its number."""
    if isinstance(shape, tuple):
        marks = [f"/*index={i}*/" if i and i % 5 == 0 else "" for i in range(len(shape))]
        parts = [mark + written(part, tiles) for mark, part in zip(marks, shape, strict=True)]
        return f"({', '.join(parts)})"
    space = f"S({shape.memory_space})" if shape.memory_space else ""
    rest = f":{tiles}{space}" if tiles or space else ""
    layout = f"{{{','.join(map(str, shape.layout))}{rest}}}" if shape.layout or rest else ""
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]{layout}"


def tiled(shape):
    """As a TPU lays it out."""
    return tuple(map(tiled, shape)) if isinstance(shape, tuple) else replace(shape, is_tiled=True)


@given(some_shape(), st.sampled_from(["", "T(8,128)", "T(8,128)(2,1)", "E(4)"]), st.text(" ,%=)x("))
def test_what_is_written_is_read_and_nothing_beyond_it(shape, tiles, rest):
    text = written(shape, tiles)
    read = tiled(shape) if tiles.startswith("T") else shape
    assert parse_shape(f"%x = {text} {rest}", 5) == (read, 5 + len(text))


@given(some_shape())
def test_leaves_are_found_at_their_index_and_make_up_the_size(shape):
    for path, array in leaves(shape):
        found = shape
        for i in path:
            found = found[i]
        assert found is array
    assert [array for _, array in leaves(shape)] == arrays(shape)
    assert size(shape) == sum(array.bytes for array in arrays(shape))
    assert size((shape, shape)) == 2 * size(shape)


@given(one_array())
def test_bytes_are_bits_rounded_up(array):
    assert array.elements == math.prod(array.dims)
    assert 8 * (array.bytes - 1) < array.elements * BITS[array.dtype] <= 8 * array.bytes


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        ("f32[]", 4),
        ("bf16[8,1024]{1,0}", 16384),
        ("s4[3]{0:E(4)}", 2),
        ("pred[7]{0}", 7),
        ("c64[2]{0}", 16),
        ("token[]", 0),
        ("(f32[2]{0}, (s8[3]{0}, token[]))", 11),
        ("()", 0),
    ],
)
def test_bytes_of_some_shapes(text, bytes_):
    shape, end = parse_shape(text)
    assert size(shape) == bytes_
    assert end == len(text)


def test_memory_space_5_is_the_host():
    shape, _ = parse_shape("(f32[2]{0:S(5)}, f32[2]{0:T(8,128)S(1)}, f32[2]{0}, f32[]{:S(5)})")
    assert [array.is_on_host for array in arrays(shape)] == [True, False, False, True]
    assert [array.memory_space for array in arrays(shape)] == [5, 1, 0, 5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no shape at column 0"),
        ("fusion(%x)", "no shape"),
        ("%x", "no shape"),
        ("(f32[2]", "no shape at column 7"),
        ("(f32[2], ", "no shape at column 9"),
        ("(f32[2]; f32[2])", "no shape"),
        ("f33[2]", "unknown element type 'f33'"),
        ("(s32[], float[2])", "unknown element type 'float'"),
        ("f32[<=8]", "not static"),
        ("f32[?,2]", "not static"),
        ("f32[2,]", "not static"),
        ("f32[-1]", "not static"),
        ("f32[2]{x}", "invalid literal"),
    ],
)
def test_what_is_no_shape_is_a_value_error(text, said):
    with pytest.raises(ValueError) as error:
        parse_shape(text)
    assert said in str(error.value)
