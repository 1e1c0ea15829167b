"""Temporaries in the memory of results: never two at once in one place, and those of XLA."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.reader import read_program
from scaling.hlo.result_reuse import (
    END,
    START,
    FreeSpan,
    LiveRange,
    gaps,
    placed,
    post_order,
    schedule_places,
)
from scaling.simulate.memory import memory_use
from tests.scaling.hlo.texts import ADD, module, text

MESH = {"data": 2}
X = "x = f32[64] parameter(0);"


def peak(main: str, **others: str) -> float:
    """Bytes at the peak, in arrays of 64 floats."""
    return float(memory_use(read_program(text(f"{X} {main}", **others), MESH, "m")).peak) / 256


def value(number: int) -> tuple:
    return ("main", f"v{number}", ())


LIVES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda ends: LiveRange(*sorted(ends)))


@given(
    results=st.lists(st.tuples(LIVES, st.integers(1, 4)), max_size=4),
    others=st.lists(st.tuples(LIVES, st.integers(1, 4)), max_size=8),
)
def test_what_is_placed_fits_and_never_overlaps(results: list, others: list) -> None:
    free = [
        gap
        for n, (life, size) in enumerate(results)
        for gap in gaps([LiveRange(life.first, END)], value(100 + n), size)
    ]
    named = [(value(n), life, size) for n, (life, size) in enumerate(others)]
    named.sort(key=lambda each: -each[2])
    found = placed(free, named, lambda one, then, at: False)
    lives = {name: (life, size) for name, life, size in named if name in found}
    for moment in range(21):  # at each, those alive match results whose value is not made yet
        alive = sorted(size for life, size in lives.values() if life.first <= moment <= life.last)
        room = sorted(size for life, size in results if moment < life.first)
        assert len(alive) <= len(room)
        pairs = zip(reversed(alive), reversed(room), strict=False)
        assert all(size <= space for size, space in pairs)


def test_the_memory_of_a_donated_argument_is_free_until_its_result_is_made() -> None:
    lives = [LiveRange(START, 3), LiveRange(9, 9), LiveRange(9, END)]
    assert gaps(lives, value(0), 8) == [FreeSpan(3, 9, 8, value(0), value(0))]


def test_a_loop_stands_after_its_body() -> None:
    main = f"{X} t = (f32[64]) tuple(%x); l = (f32[64]) while(%t), condition=%go, body=%body"
    go = "c = (f32[64]) parameter(0); g = pred[] constant(true)"
    found = schedule_places(module(main, body="p = (f32[64]) parameter(0)", go=go))
    places = {i.name: place for i, place in found.items()}
    assert places["t"].last < places["p"].first < places["l"].first


def test_a_temporary_lives_in_a_result_that_is_made_after_its_last_use() -> None:
    """x -> a -> b -> result: a takes the result's place, b ends where the result is made."""
    assert peak("a = f32[64] reverse(%x); b = f32[64] reverse(%a); r = f32[64] reverse(%b)") == 3
    assert peak("a = f32[64] reverse(%x); r = f32[64] reverse(%a)") == 3


def test_a_sum_over_devices_is_made_in_the_place_of_its_operand() -> None:
    groups = "replica_groups={{0,1}}, use_global_device_ids=true, channel_id=1, to_apply=%sum"
    start = f"a = f32[64] reverse(%x); s = f32[64] all-reduce-start(%a), {groups}"
    assert peak(f"{start}; r = f32[64] all-reduce-done(%s)", sum=ADD) == 2


def test_a_larger_temporary_does_not_fit_into_a_result() -> None:
    assert (
        peak("a = f32[256] pad(%x); b = f32[256] reverse(%a); r = f32[64] slice(%b)") == 1 + 8 + 1
    )


def test_a_fusion_that_scatters_adds_in_place() -> None:
    scatter = """t = f32[64] parameter(0); i = s32[8,1] parameter(1); u = f32[8] parameter(2)
        r = f32[64] scatter(%t, %i, %u), to_apply=%sum"""
    main = """z = f32[64] reverse(%x); i = s32[8,1] iota(); u = f32[8] slice(%x)
        s = f32[64] fusion(%z, %i, %u), kind={0}, calls=%body
        r = f32[2] slice(%s)"""
    in_place = peak(main.format("kInput"), body=scatter, sum=ADD)
    assert peak(main.format("kLoop"), body=scatter, sum=ADD) == in_place
    anew = scatter.replace("scatter(%t", "scatter(%c").replace("r =", "c = f32[64] copy(%t); r =")
    assert peak(main.format("kInput"), body=anew, sum=ADD) == in_place + 1


def test_what_has_another_name_by_then_is_not_written_over_in_a_result() -> None:
    """a lies in r, and n over it; not where a is b by then, so that n and m need memory at once."""
    main = """a = f32[64] reverse(%x); {0} n = f32[64] sine(%a); m = f32[64] reverse(%n)
        r = f32[64] reverse(%m)"""
    assert peak(main.format("")) == 3
    named = "b = f32[32,2] bitcast(%a); c = f32[2] slice(%b);"
    assert peak(main.format(named)) == pytest.approx(4, abs=0.1)


def test_equal_temporaries_are_placed_operands_first_whatever_the_schedule() -> None:
    """b is made before c, but r takes c first."""
    main = "b = f32[64] reverse(%x); c = f32[64] reverse(%x); r = f32[64] dot(%c, %b)"
    order = post_order(module(f"{X} {main}"))
    assert [i.name for i in order] == ["x", "c", "b", "r"]


def test_a_computation_stands_before_what_it_runs_and_the_last_call_first() -> None:
    main = f"{X} a = f32[64] call(%x), to_apply=%f; r = f32[64] call(%a), to_apply=%g"
    one = "p = f32[64] parameter(0); n = f32[64] negate(%p)"
    order = post_order(module(main, f=one, g=one))
    assert [(i.computation.name, i.name) for i in order if i.computation.name != "main"] == [
        ("g", "p"), ("g", "n"), ("f", "p"), ("f", "n"),
    ]  # fmt: skip


def test_what_must_run_before_is_before() -> None:
    main = f"{X} a = f32[2] slice(%x); r = f32[64] negate(%x), control-predecessors={{%a}}"
    assert [i.name for i in post_order(module(main))] == ["x", "a", "r"]
