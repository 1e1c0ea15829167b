"""What a run says where the buffers of experts overflow."""

from types import SimpleNamespace

import pytest

from scaling.models.config import Moe
from scaling.training.monitor import report
from scaling.training.monitor.report import Clock, StepReport

METRICS, LOAD = (
    {"loss": 2.0, "skew": 1.9},
    [[1.0] * 8, [1.9, 1.3408, 0.9, 0.9, 0.4592, 0.5, 1.0, 1.0]],
)


@pytest.fixture
def said(monkeypatch) -> list[str]:
    monkeypatch.setattr(report, "peak_memory", lambda mesh: None)
    return []


def steps(said: list[str], moe: Moe, dropped: tuple[float, ...]) -> StepReport:
    log = SimpleNamespace(write=lambda *args, **values: None)
    line = SimpleNamespace(note=said.append, update=lambda *args: None)
    mesh = SimpleNamespace(shape={"expert": 4})
    hosts = SimpleNamespace(step=lambda *args: None)
    made = StepReport(mesh, None, log, line, Clock(0.0), hosts, moe=moe)
    for step, share in enumerate(dropped, 1):
        made.step(step, METRICS | {"dropped": share}, {"expert_load": LOAD}, 1.0, 0.0)
    return made


@pytest.mark.parametrize(
    ("moe", "words"),
    [
        (Moe(8, 2, 64, device_capacity_factor=1.25), "device_capacity_factor=1.25"),
        (Moe(8, 2, 64, capacity_factor=1.0), "at least 1.9"),
    ],
)
def test_the_first_overflow_and_the_worst_one_name_a_factor_that_has_room(said, moe, words):
    made = steps(said, moe, (0.0, 0.031, 0.05))
    assert len(said) == 1 and said[0].startswith("step 2: up to 3.10%") and words in said[0]
    made.tell_overflow("in 3 steps")
    assert said[1].startswith("in 3 steps: up to 5.00%")
    if moe.capacity_factor is None:
        assert said[1].endswith("at least 1.63")  # rounded up: 1.62 would not do


def test_nothing_is_said_where_all_have_room(said):
    made = steps(said, Moe(8, 2, 64), (0.0, 0.0))
    made.tell_overflow("in 2 steps")
    assert not said
