"""Closed forms of the bubble, held against pipelines that run event by event (`tests.oracle`)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.program import analytic_program
from scaling.analytic.saved import kept_passes
from scaling.analytic.software import traits_of
from scaling.analytic.step import step_sizes
from scaling.meshes.shape import MeshShape
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.program.ir import Collective, Kernel, collectives, kernels
from scaling.run import Batch, Overlap
from scaling.run import Pipeline as Schedule
from scaling.run.recipes import recipe
from scaling.simulate.timeline import run_schedule
from tests.oracle.pipelines import (
    Pipeline,
    gpipe,
    interleaved,
    one_forward_one_backward,
    run_dualpipe,
    run_in_order,
    run_iterations,
    run_pairs,
    run_zero_bubble,
)

STAGES, GROUPS, PARTS = st.integers(1, 6), st.integers(1, 4), st.integers(2, 4)
SECONDS, SHARES = st.floats(0.1, 10), st.floats(0, 1)
NEAR = 1e-9


def closed_form(schedule: str, p: Pipeline) -> float:
    """(S - 1) (F + B) / V (arXiv 2104.04473, section 2.2), B for gradients of inputs and weights.

    ZB-H1 computes those of weights, W, in it: B is less by twice W (arXiv 2401.10241, table 1).
    """
    backward = p.backward + p.weights - 2 * p.weights * (schedule == "zero_bubble")
    return (p.stages - 1) * (p.forward + backward) / p.virtual_stages


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


@pytest.mark.parametrize("virtual", [1, 2])
@pytest.mark.parametrize("stages", [2, 4])
def test_the_closed_form_of_other_software_has_the_bubble_of_its_pipeline(stages, virtual):
    """Of all kernels of layers, one second each: idle over busy seconds, event by event."""
    schedule = "interleaved" if virtual > 1 else "1f1b"
    run = replace(
        recipe("tiny"),
        software="megatron",
        batch=Batch(4 * stages, 32, 4 * stages),
        pipeline=Schedule(schedule, virtual),
    )
    run = replace(run, model=replace(run.model, n_layers=2 * stages * virtual))
    quick = replace(traits_of("megatron"), launch=0.0)
    program = analytic_program(run, MeshShape(stage=stages), traits=quick)
    times = {k.name: float(k.origin.layer.startswith("layers")) for k, _ in kernels(program)}
    line = run_schedule(program, times | {c.name: 0.0 for c, _ in collectives(program)})
    total, idle = run_in_order(Pipeline(stages, 4 * stages, virtual), interleaved)
    assert line.bubble / line.total == pytest.approx(idle / total, rel=NEAR)


@given(st.sampled_from([4, 6, 8, 16]), st.integers(2, 6), SECONDS, st.floats(0.7, 1.0))
def test_dualpipe_takes_its_bubble_and_what_few_microbatches_have_none_beside(
    stages, groups, seconds, share
):
    """(S / 2 - 1) (F&B + B - 3 W) (arXiv 2412.19437, table 2); S + 1 have their passes alone."""
    p = Pipeline(stages, groups * stages, 1, seconds, seconds, seconds)
    pair = 3 * seconds * share
    bubble = (stages / 2 - 1) * (pair + 2 * seconds - 3 * seconds)
    alone = (stages + 1) * (3 * seconds - pair)
    expected = p.microbatches * pair + bubble + alone
    assert run_dualpipe(p, pair) == pytest.approx(expected, rel=NEAR)


@pytest.mark.parametrize("exchange", [0.0, 2.0])
@pytest.mark.parametrize("stages", [4, 8])
def test_the_closed_form_of_dualpipe_takes_as_long_as_its_replay(stages, exchange):
    """Each product of a layer takes a second, each exchange of its experts so many more, which a
    pair hides."""
    run, count = recipe("tiny-moe"), 4 * stages
    run = replace(
        run,
        software="megatron",
        batch=Batch(2 * count, 32, count),
        pipeline=Schedule("dualpipe"),
        model=replace(run.model, n_layers=2 * stages + 1),  # so that the last stage has room
    )
    program = analytic_program(run, MeshShape(stage=stages, expert=2))
    times = {}
    for op, _ in program.operations:
        if isinstance(op, Kernel):
            times[op.name] = float(op.kind in ("matmul", "grouped") and "layers" in op.origin.layer)
        elif isinstance(op, Collective):
            times[op.name] = exchange * ("tokens of experts" in op.name)
    line = run_schedule(program, times)
    layers = -(-run.model.n_layers // stages)
    products = layers * sum(
        "forward" in k.name and "pair" not in k.name and times[k.name]
        for k in {k.name: k for k, _ in kernels(program)}.values()
    )
    alone = 2 * exchange * layers
    p = Pipeline(stages, count, 1, products + alone, products + alone, products)
    assert line.total == pytest.approx(run_dualpipe(p, 3 * products), rel=0.02)


@given(st.integers(1, 6), st.integers(2, 4), st.integers(1, 4), SECONDS, SECONDS, SHARES)
def test_pairs_of_1f1b_leave_as_many_microbatches_alone_as_there_are_stages(
    stages, groups, parts, forward, backward, share
):
    exchange = share * min(forward, backward)  # so that none alone is longer than a pair
    p = Pipeline(stages, groups * stages, parts, forward + exchange, backward + exchange)
    pair = forward + backward
    expected = (p.microbatches + (stages - 1) / parts) * pair + 2 * exchange * stages
    assert run_pairs(p, pair) == pytest.approx(expected, rel=NEAR)


@pytest.mark.parametrize(
    ("stages", "virtual", "groups"), [(1, 1, 4), (4, 1, 2), (3, 2, 3), (3, 2, 1)]
)
def test_the_closed_form_of_pairs_takes_as_long_as_their_replay(stages, virtual, groups):
    run, count = recipe("tiny-moe"), groups * stages
    run = replace(
        run,
        software="megatron",
        batch=Batch(2 * count, 32, count),
        pipeline=Schedule("interleaved" if virtual > 1 else "1f1b", virtual),
        overlap=Overlap(experts=True),
        model=replace(run.model, n_layers=2 * stages * virtual),
    )
    program = analytic_program(run, MeshShape(stage=stages, expert=2))
    times = {}
    for op, _ in program.operations:
        if isinstance(op, Kernel):
            times[op.name] = float(op.kind in ("matmul", "grouped") and "layers" in op.origin.layer)
        elif isinstance(op, Collective):
            times[op.name] = 2.0 * ("tokens of experts" in op.name)
    layers = 2 * virtual
    products = layers * sum(
        "forward" in k.name and "pair" not in k.name and times[k.name]
        for k in {k.name: k for k, _ in kernels(program)}.values()
    )
    alone = 2 * 2.0 * layers
    p = Pipeline(stages, count, virtual, products + alone, 2 * products + alone)
    total = run_schedule(program, times).total
    assert total == pytest.approx(run_pairs(p, 3 * products), rel=0.01)
    if virtual == 1:
        kept = kept_passes(step_sizes(run, MeshShape(stage=stages, expert=2)))
        assert kept == min(2 * stages - 1, count)


@given(st.integers(2, 6), GROUPS, st.integers(1, 4), SECONDS, SECONDS)
def test_iterations_of_the_trainer_take_its_closed_form(stages, groups, parts, forward, backward):
    """All stages begin an iteration together: event by event, each input has come in time."""
    schedule = PipelineSchedule(stages, parts, groups * stages)
    p = Pipeline(stages, schedule.microbatches, parts, forward, backward)
    assert_as(p, run_iterations(p, schedule), closed_form("interleaved", p))
