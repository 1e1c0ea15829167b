"""When the hosts of a job are compared, and what is said of them."""

import jax
import numpy as np
import pytest

from scaling.training.monitor import hosts
from scaling.training.monitor.hosts import LOOKS, SHARE, STEPS, Hosts

NAMES = ["process 0 (a)", "process 1 (b)"]
WORK = 0.03  # s


@pytest.fixture
def job(monkeypatch):
    """Makes the Hosts of process 0 of two; `slowdown[0]` is how much slower the other one is."""
    slowdown = [1.0]

    def gather(own):
        work, *others = own
        return np.array([own, [slowdown[0] * work, *others]])

    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(hosts, "same_work", lambda: lambda: WORK)
    monkeypatch.setattr(hosts, "gather", gather)
    return Hosts(100, NAMES), slowdown


def looked(job, count, step_time):
    """The steps of `count` looks, and what they said."""
    steps, said, step = [], [], 100
    while len(steps) < count:
        step += 1
        job.step(step_time, 0.0)
        if job.is_due(step, last=False):
            steps.append(step)
            said.append(job.look(step)[1])
    return steps, said


@pytest.mark.parametrize("step_time", [1e-3, 0.1, 10.0])
def test_the_work_takes_its_share_of_the_time_and_no_more(job, step_time):
    steps, _ = looked(job[0], 4, step_time)
    assert steps[0] == 100 + STEPS
    for between in np.diff(steps):
        assert between >= STEPS and WORK <= SHARE * between * step_time
        assert between == STEPS or WORK > SHARE * (between - 1) * step_time


def test_a_slow_host_is_named_once_until_it_was_well(job):
    comparison, slowdown = job
    slowdown[0] = 2.0
    _, said = looked(comparison, LOOKS + 3, 1.0)
    named = [index for index, messages in enumerate(said) if messages]
    assert named == [LOOKS - 1] and said[named[0]][0].startswith("slow host: process 1 (b) ")
    slowdown[0] = 1.0
    assert not any(looked(comparison, LOOKS, 1.0)[1])
    slowdown[0] = 2.0
    assert sum(map(len, looked(comparison, LOOKS, 1.0)[1])) == 1


def test_the_slowest_process_of_each_look_is_said(job):
    comparison, slowdown = job
    for slower, slowest, lag in ((1.5, 1, 0.5), (0.5, 0, 1.0)):
        slowdown[0] = slower
        comparison.step(1.0, 0.0)
        figures, _ = comparison.look(101)
        assert (figures["slowest_process"], figures["slowest"]) == (slowest, NAMES[slowest])
        assert figures["slowest_lag"] == pytest.approx(lag)


def test_the_last_step_is_followed_by_a_look(job):
    assert job[0].is_due(101, last=True)


def test_a_process_alone_looks_at_nobody_and_keeps_nothing():
    alone = Hosts(0, ["process 0 (a)"])
    alone.step(1.0, 0.0)
    assert not alone.is_due(1000, last=True) and not alone._steps
