"""After which steps a checkpoint is saved, with a clock that the test moves."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.run import Train
from scaling.train.checkpoint import schedule as module
from scaling.train.checkpoint.schedule import INTERVAL, LOOK, CheckpointSchedule


def saves(schedule, durations, monkeypatch, first=0):
    """Steps after which it is due and the times then, where each step takes as long as given."""
    now, due = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    schedule = schedule()
    for step, duration in enumerate(durations, first + 1):
        now[0] += duration
        if schedule.is_due(step):
            due.append((step, now[0]))
    return due


@pytest.mark.parametrize(("every", "steps"), [(3, [3, 6, 9]), (1, [*range(1, 11)]), (0, [])])
def test_is_due_follows_a_number_of_steps_and_never_at_0(every, steps, monkeypatch):
    due = saves(lambda: CheckpointSchedule(every, 0), [1e3] * 10, monkeypatch)
    assert [step for step, _ in due] == steps


def test_a_run_that_sets_nothing_saves_every_ten_minutes():
    assert Train().checkpoint_every is None and INTERVAL == 600.0


@given(duration=st.floats(0.05, 900), first=st.integers(0, 10**6))
def test_by_time_the_gap_is_the_interval_to_within_a_few_steps(duration, first):
    count = min(20_000, int(3 * INTERVAL / duration) + 4)
    with pytest.MonkeyPatch.context() as patch:
        found = saves(lambda: CheckpointSchedule(None, first), [duration] * count, patch, first)
    due = [now for _, now in found]
    gaps = [b - a for a, b in zip([0.0, *due], due, strict=False)]
    assert len(due) >= min(1, int(count * duration / (INTERVAL + 2 * duration)))
    assert all(INTERVAL <= gap <= INTERVAL + 2 * duration for gap in gaps)


def test_steps_that_become_slower_do_not_pass_the_interval_by_much(monkeypatch):
    durations = [0.1] * 1000 + [2.0] * 1000
    ((_, first), *_) = saves(lambda: CheckpointSchedule(None, 0), durations, monkeypatch)
    assert INTERVAL <= first <= INTERVAL + 20 * LOOK


def test_by_time_few_looks_are_taken_and_process_0_decides(monkeypatch):
    looks = []

    def of_process_0(wait):
        looks.append(wait)
        return wait

    monkeypatch.setattr(module, "broadcast_from_first", of_process_0)
    ((step, _),) = saves(lambda: CheckpointSchedule(None, 0), [0.1] * 6100, monkeypatch)
    assert step >= 6000 and len(looks) < 40
    monkeypatch.setattr(module, "broadcast_from_first", lambda wait: 0)
    assert saves(lambda: CheckpointSchedule(None, 0), [0.1] * 2, monkeypatch)[0][0] == 2
