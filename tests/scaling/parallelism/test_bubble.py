"""Closed forms of the bubble, held against pipelines that run event by event (`tests.oracle`)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.parallelism.pipeline import bubble_time
from scaling.program.ir import Collective, Kernel, Loop, Program
from scaling.simulate.pipeline_bubble import mark_bubbles
from scaling.simulate.timeline import run_schedule
from tests.oracle.pipelines import (
    Pipeline,
    gpipe,
    interleaved,
    one_forward_one_backward,
    run_in_order,
    run_ticks,
    run_zero_bubble,
)

STAGES, GROUPS, PARTS = st.integers(1, 6), st.integers(1, 4), st.integers(2, 4)
SECONDS = st.floats(0.1, 10)
NEAR = 1e-9


def closed_form(schedule: str, p: Pipeline) -> float:
    backward = p.backward + p.weights
    return bubble_time(schedule, p.stages, p.virtual_stages, p.forward, backward, p.weights)


def assert_as(p: Pipeline, found: tuple[float, float], bubble: float) -> None:
    """The step lasts as long as all work of a stage and its bubble, which stage 0 waits."""
    busy = p.microbatches * (p.forward + p.backward + p.weights)
    assert found == pytest.approx((busy + bubble, bubble), rel=NEAR, abs=NEAR)


@given(STAGES, st.integers(1, 16), SECONDS, SECONDS)
def test_gpipe_waits_for_the_stages_before_and_behind(stages, microbatches, forward, backward):
    p = Pipeline(stages, microbatches, 1, forward, backward)
    assert_as(p, run_in_order(p, gpipe), closed_form("gpipe", p))


@given(STAGES, st.integers(1, 16), SECONDS, SECONDS)
def test_one_forward_one_backward_waits_as_long(stages, microbatches, forward, backward):
    p = Pipeline(stages, microbatches, 1, forward, backward)
    assert_as(p, run_in_order(p, one_forward_one_backward), closed_form("1f1b", p))


@given(STAGES, GROUPS, PARTS, SECONDS, SECONDS)
def test_virtual_stages_shorten_the_wait(stages, groups, parts, forward, backward):
    p = Pipeline(stages, groups * stages, parts, forward, backward)
    assert_as(p, run_in_order(p, interleaved), closed_form("interleaved", p))


@given(STAGES, GROUPS, SECONDS)
def test_weight_gradients_fill_the_wait(stages, groups, seconds):
    """Exactly for passes of one length, for which the schedule was made."""
    p = Pipeline(stages, groups * stages, 1, seconds, seconds, seconds)
    assert_as(p, run_zero_bubble(p), closed_form("zero_bubble", p))


@given(STAGES, st.integers(2, 4), st.floats(0.9, 1.1), st.floats(0.9, 1.1))
def test_for_passes_of_similar_length_the_wait_is_near(stages, groups, forward, weights):
    p = Pipeline(stages, groups * stages, 1, forward, 1.0, weights)
    total, _ = run_zero_bubble(p)
    busy = p.microbatches * (p.forward + p.backward + p.weights)
    assert total == pytest.approx(busy + closed_form("zero_bubble", p), rel=0.05)


@given(st.integers(2, 6), GROUPS, st.integers(1, 4), SECONDS, st.floats(0, 0.1))
def test_ticks_of_the_trainer_are_its_program_and_its_closed_form(
    stages, groups, parts, seconds, hop
):
    """Forward passes in lockstep, each after a hop: event by event, in the loop of the Program, and
    in closed form."""
    schedule = PipelineSchedule(stages, parts, groups * stages)
    p = Pipeline(stages, schedule.microbatches, parts, seconds)
    total, idle = run_ticks(p, schedule, hop)
    send = Collective("hop", kind="permute", axes=("stage",), bytes=1.0, asynchronous=False)
    ticks = Loop("ticks", body=(send, Kernel("part")), trips=schedule.iterations)
    program = mark_bubbles(Program("p", "compiled", {"stage": stages}, (ticks,)), schedule)
    line = run_schedule(program, {"part": p.seconds("F"), "hop": hop})
    assert total == pytest.approx(line.total, rel=NEAR)
    assert idle == pytest.approx(line.bubble, rel=NEAR)
    closed = bubble_time("circular", stages, parts, seconds, 0.0, 0.0)
    assert idle == pytest.approx(closed, rel=NEAR)
