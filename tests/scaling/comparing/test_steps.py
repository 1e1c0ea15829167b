"""From recorded events to one step: unions of intervals, whole steps, terms, another program."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pytest import approx

from scaling.comparing.executions import complete_steps
from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent
from scaling.comparing.steps import (
    CONTAINER,
    per_step,
    union,
)
from scaling.meshes.errors import InputError
from scaling.simulate.prediction import TERMS


def event(name, start, duration, device=0, module="jit_step", run=None):
    return RecordedEvent(device, "stream", name, module, float(start), float(duration), run)


def a_step(start, device=0, run=None):
    """dot 0..4, gather 2..7, dot 6..8: 8 long, 6 of compute, 5 of communication, 2 exposed."""
    events = [event("dot", 0, 4), event("gather", 2, 5), event("dot", 6, 2)]
    return [replace(e, start=start + e.start, device=device, run=run) for e in events]


KNOWN = {"dot", "gather"}
whole = st.integers(0, 60)
intervals = st.lists(st.tuples(whole, whole), max_size=12)


@given(intervals)
def test_the_union_is_the_number_of_covered_instants(spans):
    covered = {t for start, length in spans for t in range(start, start + length)}
    assert union([event("x", *span) for span in spans]) == len(covered)


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


@pytest.mark.parametrize("name", ["convert.3", "while_fusion", "callee.1", "condense.2"])
def test_an_instruction_that_only_sounds_like_a_loop_is_none(name):
    assert not CONTAINER.match(name)


# --- terms of the hand-made step ----------------------------------------------------------------

NAMES = ("dot.1", "gather.1", "norm.1", "sum.1", "adam.1")


def one_step(device=0, run=1, at=0.0):
    """dot 0 to 4, gather beside it 1 to 3, norm 5 to 6, sum 6 to 8, adam 8 to 9."""
    spans = zip(NAMES, (0, 1, 5, 6, 8), (4, 2, 1, 2, 1), strict=True)
    return [event(name, at + start, long, device, run=run) for name, start, long in spans]


def test_a_step_is_parted_into_its_terms(hand_step):
    """The Wait of an asynchronous collective has the same name, and does not take its place."""
    found = match_recording(one_step(), hand_step, 1)
    assert found.instructions["gather.1"].seconds == 2.0
    assert found.terms == {
        "compute": 5.0,
        "optimizer": 1.0,
        "exposed_communication": 2.0,
        "bubble": 0.0,
        "host": 1.0,
        "hidden_communication": 2.0,
    }


def test_loops_and_branches_do_not_count_beside_what_they_run(hand_step):
    around = [event("while.3", 0, 900), event("cond.0.clone", 0, 9), event("call.1", 0, 9)]
    assert match_recording(one_step() + around, hand_step, 1).terms["host"] == 1.0


def test_a_profile_of_another_program_says_how_much_of_it_is_in_this_one(hand_step):
    """The rest counts as what its names tell; more than half of it is another program."""
    found = match_recording([*one_step(), event("new", 20, 10, run=1)], hand_step, 1)
    assert (found.others, found.terms["compute"]) == ({"custom": 10.0}, 15.0)
    with pytest.raises(InputError, match=r"another program: it has jit_step \(48% of its time"):
        match_recording([*one_step(), event("fusion.77", 20, 11, run=1)], hand_step, 1)


def test_terms_are_the_mean_over_steps_and_devices(hand_step):
    events = [e for d in (0, 1) for r in (1, 2) for e in one_step(d, r, at=20.0 * r)]
    slow = [replace(e, duration=2.0) if e.name == "adam.1" and e.device else e for e in events]
    found = match_recording(slow, hand_step, 2)
    assert found.terms["optimizer"] == approx(1.5) and found.devices == 2
    assert found.terms["compute"] == approx(5.0)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0, 9), st.floats(0.01, 9)), min_size=1))
def test_the_five_terms_sum_to_the_span(hand_step, drawn):
    events = [event(*parts, run=1) for parts in drawn]
    terms = match_recording(events, hand_step, 1).terms
    span = max(e.end for e in events) - min(e.start for e in events)
    assert sum(terms[name] for name in TERMS[:5]) == approx(span)
    assert all(seconds >= -1e-9 for seconds in terms.values())


@pytest.mark.parametrize("run", [None, 1])
def test_fewer_steps_than_asked_for_are_refused(hand_step, run):
    with pytest.raises(InputError, match="holds 1 steps of the program, not 3"):
        match_recording(one_step(run=run), hand_step, 3)
