"""Learning rates by their formulas."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.run import Train
from scaling.run.optimizers import decay_steps
from scaling.training.optim.optimizer import schedule

PEAK = 3e-4
SCHEDULES = ["cosine", "linear", "constant", "wsd"]


def by_hand(train: Train, step: int) -> float:
    """The rate after `step` finished steps, from 0."""
    warmup = min(train.warmup_steps, train.steps)
    if step < warmup:
        return PEAK * (step + 1) / (warmup + 1)
    final = 0.1 if train.final_rate is None else train.final_rate
    if train.schedule == "cosine":
        angle = math.pi * (step - warmup) / (train.steps - warmup)
        return PEAK * (final + (1 - final) * (1 + math.cos(angle)) / 2)
    falls = {"linear": train.steps - warmup, "wsd": decay_steps(train), "constant": 0}
    done = step - (train.steps - falls[train.schedule])
    if done <= 0:
        return PEAK
    return PEAK * (1 - (1 - final) * done / falls[train.schedule])


@given(st.sampled_from(SCHEDULES), st.integers(1, 300), st.integers(0, 300), st.data())
def test_the_rate_is_the_schedules_formula(name: str, steps: int, warmup: int, data) -> None:
    train = Train(steps=steps, warmup_steps=warmup, learning_rate=PEAK, schedule=name)
    step = data.draw(st.integers(0, steps - 1))
    assert float(schedule(train)(step)) == pytest.approx(by_hand(train, step), rel=1e-4)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("steps", "warmup"), [(100, 10), (100, 0), (10, 10), (1, 5), (1, 0)])
def test_the_rate_is_never_zero_and_never_above_its_peak(
    name: str, steps: int, warmup: int
) -> None:
    rate = schedule(Train(steps=steps, warmup_steps=warmup, learning_rate=PEAK, schedule=name))
    assert all(0 < float(rate(step)) <= PEAK * (1 + 1e-6) for step in range(steps))


@pytest.mark.parametrize("name", ["cosine", "linear", "wsd"])
@pytest.mark.parametrize("final", [0.0, 0.1, 0.5])
def test_after_the_last_step_the_rate_stays_at_its_end(name: str, final: float) -> None:
    rate = schedule(
        Train(steps=50, warmup_steps=5, learning_rate=PEAK, schedule=name, final_rate=final)
    )
    assert float(rate(50)) == float(rate(500)) == pytest.approx(PEAK * final)


def test_warm_up_stable_decay_falls_in_its_last_steps_only() -> None:
    train = Train(steps=100, warmup_steps=10, learning_rate=1.0, schedule="wsd", decay_steps=20)
    rate = schedule(train)
    assert [float(rate(step)) for step in (10, 50, 80)] == [1.0, 1.0, 1.0]
    assert float(rate(90)) == pytest.approx(0.55)
