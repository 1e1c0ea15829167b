"""A program on a mesh that nobody compiled, from programs of the same step on others."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.planning.rescaled import exponents, rescaled
from scaling.program.ir import Collective, Kernel, Loop, Program, collectives

SUM, GATHER = ("all-reduce", ("data",)), ("all-gather", ("model",))


def program(mesh, split):
    """A step whose bytes follow the sizes of the axes by known exponents."""
    bytes = lambda e: (
        2.0**30 * math.prod(float(n) ** -x for n, x in zip(mesh.values(), e, strict=True))
    )
    sums = Collective("sums", kind="all-reduce", axes=("data",), bytes=bytes(split[SUM]))
    gather = Collective("gather", kind="all-gather", axes=("model",), bytes=bytes(split[GATHER]))
    body = (Kernel("product", flops=1e12), gather)
    return Program("step", "compiled", mesh, (Loop("layers", body=body, trips=3), sums))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6))
def test_the_bytes_on_any_mesh_are_known_once_every_axis_has_changed(given):
    split = {SUM: given[:3], GATHER: given[3:]}
    sizes = [(4, 4, 4), (8, 4, 2), (8, 2, 4), (2, 4, 8), (1, 1, 64)]
    *seen, new = (dict(zip(("data", "model", "stage"), each, strict=True)) for each in sizes)
    found = exponents([program(mesh, split) for mesh in seen])
    moved = rescaled(program(seen[0], split), new, found)
    for (got, n), (wanted, m) in zip(
        collectives(moved), collectives(program(new, split)), strict=True
    ):
        # The product of all sizes is the same on every mesh: exponents are known up to a constant.
        assert (got.axes, n) == (wanted.axes, m)
        assert got.bytes == pytest.approx(wanted.bytes)


def test_one_program_gives_the_bound_split_over_all_other_axes():
    found = exponents([program({"data": 4, "model": 2}, {SUM: (0, 0), GATHER: (0, 0)})])
    assert np.array_equal(found[SUM], [0, 1]) and np.array_equal(found[GATHER], [1, 0])


def test_collectives_along_no_axes_are_left_out():
    made = program({"data": 4, "model": 2}, {SUM: (0, 0), GATHER: (0, 0)})
    odd = replace(made.schedule[1], axes=(), groups=((0, 3), (1, 2)))
    kept = rescaled(replace(made, schedule=(odd,)), {"data": 8, "model": 1}, {})
    assert (kept.schedule[0].groups, kept.schedule[0].axes) == ((), ())
