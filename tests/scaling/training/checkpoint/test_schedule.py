"""After which steps a checkpoint is saved, with a clock that the test moves."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.run import Train
from scaling.training.checkpoint import schedule as module
from scaling.training.checkpoint.schedule import INTERVAL, LOOK, SHARE, CheckpointSchedule


def saves(schedule, durations, monkeypatch, first=0, cost=0.0):
    """Steps after which it is due and the times then, where each step takes as long as given, and
    each save stops them for `cost` seconds."""
    now, due = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    schedule = schedule()
    for step, duration in enumerate(durations, first + 1):
        now[0] += duration
        if schedule.is_due(step):
            due.append((step, now[0]))
            now[0] += cost
            schedule.saved(cost)
    return due


@pytest.mark.parametrize(
    ("every", "minutes", "seconds", "steps"),
    [
        (3, None, 1.0, [3, 6, 9]),
        (1, None, 1e3, [*range(1, 11)]),
        (0, None, 1e3, []),  # at the end only
        (3, 0, 1e3, [3, 6, 9]),
        (None, 0, 1e3, []),
        (7, None, 250.0, [3, 6, 7, 10]),  # by steps as well as by time
        (0, 5, 100.0, [3, 6, 9]),
        (None, 5, 100.0, [3, 6, 9]),
    ],
)
def test_saves_follow_a_number_of_steps_and_the_time(every, minutes, seconds, steps, monkeypatch):
    due = saves(lambda: CheckpointSchedule(every, minutes, 0), [seconds] * 10, monkeypatch)
    assert [step for step, _ in due] == steps


def test_a_run_that_sets_nothing_saves_every_ten_minutes():
    train = Train()
    assert (train.checkpoint_every, train.checkpoint_minutes, INTERVAL) == (None, None, 600.0)


@pytest.mark.parametrize("cost", [1.0, 30.0, 45.0, 300.0])
def test_saves_by_time_take_a_twentieth_of_it_at_most_unless_asked_for(cost, monkeypatch):
    """The first one does not know what it will take."""

    def times(minutes):
        schedule = lambda: CheckpointSchedule(None, minutes, 0)
        return [now for _, now in saves(schedule, [1.0] * 20_000, monkeypatch, cost=cost)]

    by_default, asked = times(None), times(10)
    assert by_default[0] == asked[0] <= INTERVAL + 2
    gaps, asked_gaps = ([b - a for a, b in pairwise(each)] for each in (by_default, asked))
    assert all(cost / gap <= SHARE for gap in gaps) and len(gaps) >= 2
    assert max(gaps) <= max(INTERVAL, cost / SHARE) + 2
    assert all(INTERVAL <= gap <= INTERVAL + 2 for gap in asked_gaps)


def test_a_user_hears_once_that_saves_became_rarer():
    schedule = CheckpointSchedule(None, None, 0)
    said = [schedule.saved(seconds) for seconds in (2.0, 45.0, 50.0)]
    assert said[::2] == ["", ""] and "stops the steps for 45 s: saved every 15 minutes" in said[1]
    assert CheckpointSchedule(None, 10, 0).saved(45.0) == ""
    assert CheckpointSchedule(0, None, 0).saved(45.0) == ""


@given(duration=st.floats(0.05, 900), first=st.integers(0, 10**6))
def test_by_time_the_gap_is_the_interval_to_within_a_few_steps(duration, first):
    count = min(20_000, int(3 * INTERVAL / duration) + 4)
    with pytest.MonkeyPatch.context() as patch:
        found = saves(
            lambda: CheckpointSchedule(None, None, first), [duration] * count, patch, first
        )
    due = [now for _, now in found]
    gaps = [b - a for a, b in zip([0.0, *due], due, strict=False)]
    assert len(due) >= min(1, int(count * duration / (INTERVAL + 2 * duration)))
    assert all(INTERVAL <= gap <= INTERVAL + 2 * duration for gap in gaps)


def test_steps_that_become_slower_do_not_pass_the_interval_by_much(monkeypatch):
    durations = [0.1] * 1000 + [2.0] * 1000
    ((_, first), *_) = saves(lambda: CheckpointSchedule(None, None, 0), durations, monkeypatch)
    assert INTERVAL <= first <= INTERVAL + 20 * LOOK


def test_by_time_few_looks_are_taken_and_process_0_decides(monkeypatch):
    looks = []

    def of_process_0(wait):
        looks.append(wait)
        return wait

    monkeypatch.setattr(module, "broadcast_from_first", of_process_0)
    ((step, _),) = saves(lambda: CheckpointSchedule(None, None, 0), [0.1] * 6100, monkeypatch)
    assert step >= 6000 and len(looks) < 40
    monkeypatch.setattr(module, "broadcast_from_first", lambda wait: 0)
    assert saves(lambda: CheckpointSchedule(None, None, 0), [0.1] * 2, monkeypatch)[0][0] == 2
