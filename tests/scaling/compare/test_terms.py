"""Recorded events to the terms of a prediction."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.compare.recorded import RecordedEvent
from scaling.compare.terms import TERMS, read_recording
from scaling.meshes.errors import InputError

NAMES = ("dot.1", "gather.1", "norm.1", "sum.1", "adam.1")
MODULE = "jit_step"


def event(name, start, duration, device=0, run=1, stream="1"):
    return RecordedEvent(device, stream, name, MODULE, start, duration, run)


def one_step(device=0, run=1, at=0.0):
    """dot 0 to 4, gather beside it 1 to 3, norm 5 to 6, sum 6 to 8, adam 8 to 9."""
    return [
        event("dot.1", at + 0.0, 4.0, device, run),
        event("gather.1", at + 1.0, 2.0, device, run, "2"),
        event("norm.1", at + 5.0, 1.0, device, run),
        event("sum.1", at + 6.0, 2.0, device, run),
        event("adam.1", at + 8.0, 1.0, device, run),
    ]


def test_a_step_is_parted_into_its_terms(hand_step):
    terms = read_recording(one_step(), hand_step, 1).terms
    assert terms == {
        "compute": 5.0,
        "optimizer": 1.0,
        "exposed_communication": 2.0,
        "bubble": 0.0,
        "host": 1.0,
        "hidden_communication": 2.0,
    }


def test_an_asynchronous_collective_is_communication(hand_step):
    """Its Wait has the same name, and must not take its place."""
    found = read_recording(one_step(), hand_step, 1)
    assert found.instructions["gather.1"].seconds == 2.0
    assert found.terms["hidden_communication"] == 2.0


def test_terms_are_the_mean_over_steps_and_devices(hand_step):
    events = [e for d in (0, 1) for r in (1, 2) for e in one_step(d, r, at=20.0 * r)]
    slow = [replace(e, duration=2.0) if e.name == "adam.1" and e.device else e for e in events]
    terms = read_recording(slow, hand_step, 2).terms
    assert terms["optimizer"] == pytest.approx(1.5)
    assert terms["compute"] == pytest.approx(5.0)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0, 9), st.floats(0.01, 9)), min_size=1))
def test_the_five_terms_sum_to_the_span(hand_step, drawn):
    events = [event(*parts) for parts in drawn]
    terms = read_recording(events, hand_step, 1).terms
    five = sum(terms[name] for name in TERMS[:5])
    span = max(e.end for e in events) - min(e.start for e in events)
    assert five == pytest.approx(span)
    assert all(seconds >= -1e-9 for seconds in terms.values())


def test_a_recording_of_another_program_is_refused(hand_step):
    others = [event(f"other.{i}", float(i), 1.0) for i in range(20)]
    with pytest.raises(InputError, match="the profile is of another program"):
        read_recording([*one_step(), *others], hand_step, 1)


def test_fewer_steps_than_asked_for_are_refused(hand_step):
    with pytest.raises(InputError, match="holds 1 steps of the program, not 3"):
        read_recording(one_step(), hand_step, 3)
