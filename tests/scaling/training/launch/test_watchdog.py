"""Watchdogs of a job, all in this process, by a clock of the test."""

import os
import threading

import jax
import pytest

from scaling.training.launch import heartbeats, watchdog
from scaling.training.launch.heartbeats import BEAT, LEARN, LONG, SILENT
from scaling.training.launch.supervisor import BEGAN, STUCK
from scaling.training.launch.watchdog import Watchdog

LIMIT = 60.0  # s
FIRST = LEARN + 1


class Shared(dict):
    """In place of jax's coordinator."""

    set = dict.__setitem__

    def below(self, folder):
        return {k.rpartition("/")[2]: v for k, v in self.items() if k.startswith(f"{folder}/")}


@pytest.fixture(autouse=True)
def ending(monkeypatch):
    """No waiting for others at the end, and an end that this process survives."""
    monkeypatch.setattr(watchdog, "ENDING", threading.Event())
    monkeypatch.setattr(watchdog.time, "sleep", lambda seconds: None)
    monkeypatch.delenv(BEGAN, raising=False)


@pytest.fixture
def job(tmp_path):
    """Three processes that have made their first steps, and the codes that they end with."""
    store, codes = Shared(), {}
    dogs = [
        Watchdog(tmp_path, LIMIT / 60, 0, i, 3, store, lambda code, i=i: codes.setdefault(i, code))
        for i in range(3)
    ]
    for step in range(1, FIRST + 1):
        passed(dogs, step)
    return dogs, codes


def passed(dogs, step):
    for dog in dogs:
        dog.mark("data", step)
        dog.mark("step")
        dog.tick(0.0)


def time_goes_by(dogs, seconds):
    for _ in range(int(seconds / BEAT)):
        for dog in dogs:
            dog.tick(BEAT)
            dog.exchange(BEAT)


def test_who_does_not_come_to_the_step_is_named_and_all_end(job, tmp_path, capsys):
    dogs, codes = job
    (tmp_path / "checkpoints" / "step_00000002").mkdir(parents=True)
    saved = []
    dogs[0].finish = saved.append
    for dog in dogs:
        dog.mark("data", FIRST + 1)
    for dog in (dogs[0], dogs[2]):
        dog.mark("step")
    time_goes_by(dogs, LIMIT - BEAT)
    assert not codes and not watchdog.ENDING.is_set()
    time_goes_by(dogs, 8 * BEAT)
    assert codes == {0: STUCK, 1: STUCK, 2: STUCK} and saved and watchdog.ENDING.is_set()
    said = capsys.readouterr().err
    assert "stuck: process 1 (" in said and "waiting for the batch of step 5" in said
    assert "test_watchdog.py" in said  # the stack
    assert "2 processes, 0 first: in step 5" in said
    assert "the checkpoint of step 2 is the last" in said


def test_a_job_that_goes_on_is_left_alone(job):
    dogs, codes = job
    for step in range(5, 10):
        passed(dogs, step)
        time_goes_by(dogs, LIMIT - BEAT)
        for dog in dogs:
            dog.mark("checkpoints")
        time_goes_by(dogs, LONG / 10)
    assert not codes


def test_a_first_process_that_says_nothing_is_judged_by_the_others(job, capsys):
    dogs, codes = job
    passed(dogs, FIRST + 1)
    time_goes_by(dogs, BEAT)
    time_goes_by(dogs[1:], LIMIT + (SILENT + 8) * BEAT)
    assert codes == {1: STUCK, 2: STUCK}
    said = capsys.readouterr().err
    assert said.count("stuck: process 0 (") == 2 and "does not answer" in said


def test_a_process_that_is_never_heard_of_is_named(tmp_path, capsys):
    store, codes = Shared(), []
    dog = Watchdog(tmp_path, None, 0, 0, 2, store, codes.append)
    time_goes_by([dog], LONG + 8 * BEAT)
    assert codes == [STUCK]
    assert "stuck: process 1 (not heard of yet)" in capsys.readouterr().err


def test_a_coordinator_that_is_gone_is_left_to_jax(job):
    dogs, codes = job

    def gone(*_):
        raise jax.errors.JaxRuntimeError("UNAVAILABLE")

    dogs[0]._store.set = gone
    time_goes_by(dogs, 2 * LIMIT)
    assert not codes


@pytest.mark.parametrize("supervised", [True, False])
def test_a_process_alone_says_so_and_ends_if_it_is_started_again(
    tmp_path, capsys, monkeypatch, supervised
):
    if supervised:
        monkeypatch.setenv(BEGAN, "1.0")
    codes = []
    dog = Watchdog(tmp_path, LIMIT / 60, leave=codes.append)
    for step in range(1, LEARN + 2):
        passed([dog], step)
    for _ in range(100):
        dog.tick(1.0)
    assert codes == [STUCK] * supervised
    assert capsys.readouterr().err.count("stuck: process 0") == 1


def test_seconds_of_steps_lengthen_the_limit(tmp_path):
    codes, dog = [], Watchdog(tmp_path)
    for step in range(1, 10):
        passed([dog], step)
        dog.tick(100.0)
    passed([dog], 10)
    dog.tick(900.0)
    assert not codes and dog._verdict == ""
    dog.tick(200.0)
    assert "its limit is 1000 s" in dog._verdict


@pytest.mark.parametrize("minutes", [0, None])
def test_threads_begin_and_end_with_the_run_and_tell_the_supervisor(tmp_path, monkeypatch, minutes):
    heard, told = os.pipe()
    monkeypatch.setattr(heartbeats, "supervisor_pipe", lambda: told)
    threads = threading.active_count()
    with Watchdog(tmp_path, minutes):
        assert threading.active_count() == threads + (minutes is None)
    assert threading.active_count() == threads
    os.close(told)
    with open(heard) as beats:
        assert len(beats.readlines()) == (minutes is None)
