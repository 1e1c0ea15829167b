"""Slices of a torus: the documented shapes, rings that close, and links counted by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.torus import (
    Torus,
    coordinates,
    shape_text,
    slice_shape,
    wraparound,
)
from tests.oracle.graph import torus_links

LINK, HOP = SourcedValue(90e9, "test", "2026-11"), SourcedValue(1e-6, "test", "2026-11")
V5P = Torus((16, 20, 28), (2, 2, 1), 4, LINK, HOP, wrap_whole=True)
V5E = Torus((16, 16), (2, 4), 16, LINK, HOP)


@pytest.mark.parametrize(
    ("torus", "shape"),
    [
        # https://docs.cloud.google.com/tpu/docs/v5p (2026-11), table of slice shapes
        (V5P, text)
        for text in "2x2x1 2x2x2 2x4x4 4x4x4 4x4x8 4x8x8 8x8x8 8x8x16 8x16x16 16x16x24".split()
    ]
    # https://cloud.google.com/tpu/docs/v5e (2026-11)
    + [(V5E, text) for text in "1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16".split()],
)
def test_the_slices_that_google_documents(torus, shape):
    assert shape_text(slice_shape(torus, math.prod(map(int, shape.split("x"))))) == shape


@pytest.mark.parametrize(
    ("torus", "chips", "message"),
    [
        (V5E, 24 * 16, "at most 16x16 has 384 chips; use 256 chips"),
        (V5E, 17 * 8, "has 136 chips; use 128 or 144 chips"),  # whole hosts of eight
        (V5E, 17, "has 17 chips; use 16 or 18 chips"),
        (V5P, 8964, "use 8960 chips"),
        (V5P, 37, "use 36 or 38 chips"),
        (V5P, 9000, "use 8960 chips"),
    ],
)
def test_a_number_of_chips_without_a_shape_names_the_nearest(torus, chips, message):
    with pytest.raises(InputError, match=message):
        slice_shape(torus, chips)


@pytest.mark.parametrize(
    ("torus", "shape", "closed"),
    [
        (V5P, (4, 4, 8), (True, True, True)),
        (V5P, (2, 4, 4), (False, False, False)),  # less than a cube of 4x4x4
        (V5E, (8, 16), (False, True)),
        (V5E, (8, 8), (False, False)),
    ],
)
def test_which_dimensions_close_into_rings(torus, shape, closed):
    assert wraparound(torus, shape) == closed


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 12))
def test_every_chip_has_its_own_place_and_neighbours_differ_in_one_dimension(a, b, c):
    chips = 2 * a * 2 * b * c  # which at least the shape 2a x 2b x c has
    shape = slice_shape(V5P, chips)
    assert math.prod(shape) == chips
    assert all(wraparound(V5P, shape)) or sum(shape) <= 2 * a + 2 * b + c
    assert all(size <= most for size, most in zip(shape, V5P.shape, strict=True))
    places = [coordinates(V5P, shape, d) for d in range(chips)]
    assert len(set(places)) == chips
    closed = wraparound(V5P, shape)
    for a, b in torus_links(V5P, shape):
        steps = [(i, abs(p - q)) for i, (p, q) in enumerate(zip(places[a], places[b], strict=True))]
        moved = [(i, step) for i, step in steps if step]
        assert len(moved) == 1
        dim, step = moved[0]
        assert step == 1 or (closed[dim] and step == shape[dim] - 1)
