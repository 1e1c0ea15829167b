"""From recorded events to one step: unions of intervals, whole steps, another program."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from scaling.compare.recorded import RecordedEvent
from scaling.compare.steps import (
    CONTAINER,
    complete_steps,
    events_of_program,
    per_step,
    totals,
    union,
)
from scaling.meshes.errors import InputError


def event(name, start, duration, device=0, module="jit_step", run=None):
    return RecordedEvent(device, "stream", name, module, float(start), float(duration), run)


def a_step(start, device=0, run=None):
    """dot 0..4, gather 2..7, dot 6..8: 8 long, 6 of compute, 5 of communication, 2 exposed."""
    events = [event("dot", 0, 4), event("gather", 2, 5), event("dot", 6, 2)]
    return [replace(e, start=start + e.start, device=device, run=run) for e in events]


whole = st.integers(0, 60)
intervals = st.lists(st.tuples(whole, whole), max_size=12)


@given(intervals)
def test_the_union_is_the_number_of_covered_instants(spans):
    covered = {t for start, length in spans for t in range(start, start + length)}
    assert union([event("x", *span) for span in spans]) == len(covered)


@given(intervals, intervals)
def test_compute_and_exposed_communication_fill_the_busy_time(compute, communication):
    events = [event("c", *s) for s in compute] + [event("n", *s) for s in communication]
    result = totals(events, 1, {"n"})
    covered = {t for start, length in compute for t in range(start, start + length)}
    exposed = {t for s, n in communication for t in range(s, s + n)} - covered
    assert result.exposed_communication == len(exposed)
    assert result.compute + result.exposed_communication == result.busy <= result.span


def test_totals_are_of_one_step_and_the_mean_over_devices():
    events = a_step(0) + a_step(10) + [event("dot", 0, 2, device=1)]
    result = totals(events, 2, {"gather"})
    assert (result.compute, result.communication) == (approx((12 + 2) / 4), approx(10 / 4))
    assert result.exposed_communication == approx(4 / 4)
    assert result.span == approx((18 + 2) / 4)


def test_no_events_are_no_time():
    assert totals([], 3, {"gather"}).busy == 0


def test_seconds_of_an_instruction_add_up_over_calls_and_are_the_mean_over_devices():
    events = a_step(0) + a_step(10) + a_step(0, device=1) + a_step(10, device=1)
    slow = [replace(e, duration=3 * e.duration) if e.device else e for e in events]
    assert per_step(events, 2)["dot"].calls == 2
    assert per_step(events, 2)["dot"].seconds == 6
    assert per_step(slow, 2)["dot"].seconds == 12


def test_numbered_executions_keep_the_last_ones():
    events = a_step(0, run=-5)[1:] + a_step(10, run=-4) + a_step(20, run=-3)
    kept = complete_steps(events, 2)
    assert {e.run for e in kept} == {-4, -3}
    assert len(kept) == 6


@pytest.mark.parametrize("tail", [0, 1, 2])
def test_what_was_recorded_of_an_earlier_step_is_cut_at_its_last_instruction(tail):
    last = [event("adam", 8, 1), event("adam", 9, 1)]  # two kernels
    one = a_step(0) + last
    shifted = [[replace(e, start=e.start + 20 * n) for e in one] for n in (1, 2, 3)]
    events = (one[-tail - 2 :] if tail else []) + [e for step in shifted for e in step]
    kept = complete_steps(events, 3)
    assert len(kept) == 3 * len(one)
    assert per_step(kept, 3)["dot"].calls == 2


@pytest.mark.parametrize("run", [None, 4])
def test_fewer_recorded_steps_than_asked_for_say_the_numbers(run):
    with pytest.raises(InputError, match="holds 1 steps of the program, not 2"):
        complete_steps([event("dot", 0, 1, run=run)], 2)


def test_the_program_is_the_module_that_spends_most_time_in_known_instructions():
    other = [replace(e, module="jit_eval") for e in a_step(50)]
    found = events_of_program(a_step(0) + a_step(10) + other, {"dot", "gather"})
    assert {e.module for e in found} == {"jit_step"}


def test_loops_and_branches_do_not_count_beside_what_they_run():
    around = [event("while.3", 0, 900), event("cond.0.clone", 0, 9), event("call.1", 0, 9)]
    found = events_of_program(a_step(0) + around, {"dot", "gather", "while.3"})
    assert {e.name for e in found} == {"dot", "gather"}


@pytest.mark.parametrize("name", ["convert.3", "while_fusion", "callee.1", "condense.2"])
def test_an_instruction_that_only_sounds_like_a_loop_is_none(name):
    assert not CONTAINER.match(name)


def test_a_few_unknown_instructions_are_left_out():
    found = events_of_program([*a_step(0), event("new_fusion.1", 20, 10)], {"dot", "gather"})
    assert "new_fusion.1" not in {e.name for e in found}


def test_a_profile_of_another_program_says_what_it_spends_its_time_in():
    events = [*a_step(0), event("fusion.77", 20, 12)]
    with pytest.raises(InputError, match=r"another program: .* jit_step, 48% .* fusion\.77"):
        events_of_program(events, {"dot", "gather"})
    with pytest.raises(InputError, match="0% is spent in the 1 instructions"):
        events_of_program(events, {"nothing"})
