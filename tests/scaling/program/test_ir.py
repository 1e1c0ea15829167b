"""What is asked of a Program: every step with its calls, and how much of it has no known origin."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.program.ir import (
    Branch,
    Collective,
    Kernel,
    Loop,
    Operation,
    Origin,
    Program,
    Wait,
    as_float,
    collectives,
    kernels,
    operations,
    unattributed,
)


def program(*schedule: Operation) -> Program:
    return Program("p", "analytic", {"data": 2}, schedule)


def test_loops_multiply_and_all_branches_are_walked() -> None:
    inner = Loop("inner", body=(Kernel("k"), Collective("g"), Wait("g")), trips=3)
    branch = Branch("either", branches=((Kernel("a"),), (Kernel("b"), inner)))
    found = program(Loop("outer", body=(inner, branch), trips=4), Kernel("last"))
    calls = [(step.name, times) for step, times in operations(found.schedule)]
    assert calls[:3] == [("k", 12), ("g", 12), ("g", 12)]
    assert calls[3:] == [("a", 4), ("b", 4), ("k", 12), ("g", 12), ("g", 12), ("last", 1)]
    assert [k.name for k, _ in kernels(found)] == ["k", "a", "b", "k", "last"]
    assert list(collectives(found)) == [(Collective("g"), 12)] * 2


def test_the_share_without_origin_counts_bytes_times_calls() -> None:
    known = Kernel("a", Origin("forward"), bytes=30.0)
    found = program(known, Loop("l", body=(Kernel("b", bytes=5.0),), trips=2))
    assert unattributed(found) == pytest.approx(0.25)


@pytest.mark.parametrize("schedule", [(), (Kernel("a"),), (Collective("g", bytes=8.0),)])
def test_where_kernels_move_nothing_nothing_is_without_origin(schedule) -> None:
    assert unattributed(program(*schedule)) == 0.0


def test_the_share_without_origin_is_one_per_configuration() -> None:
    known = Kernel("a", Origin("", "mlp"), bytes=np.array([1.0, 3.0, 0.0]))
    share = unattributed(program(known, Kernel("b", bytes=np.array([1.0, 1.0, 0.0]))))
    assert list(np.asarray(share)) == [0.5, 0.25, 0.0]


moved = st.lists(st.tuples(st.floats(0, 1e12), st.sampled_from(["", "forward"])), max_size=9)


@given(moved)
def test_the_share_without_origin_is_a_share(found) -> None:
    made = [Kernel(f"k{i}", Origin(phase), bytes=n) for i, (n, phase) in enumerate(found)]
    share = unattributed(program(*made))
    assert isinstance(share, float) and 0 <= share <= 1
    named = [Kernel(k.name, Origin("forward"), bytes=k.bytes) for k in made]
    assert unattributed(program(*named)) == 0.0


@pytest.mark.parametrize("value", [3, 3.0, np.float64(3), np.int32(3), np.array(3.0)])
def test_single_values_are_pythons_own_numbers(value) -> None:
    assert type(as_float(value)) is float and as_float(value) == 3.0
