"""The schedule of a pipeline: every microbatch meets every part of the layers, in order, once."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.pipeline.schedule import PipelineSchedule, layer_order, slot_count

SCHEDULES = st.builds(
    lambda stages, virtual_stages, groups, rest: PipelineSchedule(
        stages, virtual_stages, groups * stages if virtual_stages > 1 else groups + rest
    ),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
)


def passes(schedule: PipelineSchedule) -> dict[int, list[tuple[int, int, int, bool]]]:
    """microbatch -> (iteration, stage, part, forward?) of all of its passes, in order of time."""
    done: dict[int, list[tuple[int, int, int, bool]]] = {
        m: [] for m in range(schedule.microbatches)
    }
    for iteration, stage in itertools.product(range(schedule.turns), range(schedule.stages)):
        ahead, back = iteration - stage, iteration - schedule.turns + schedule.passes + stage
        for index, forward in ((np.int64(ahead), True), (np.int64(back), False)):
            if schedule.is_busy(index):
                index = index if forward else schedule.forward_of(index)
                part = int(schedule.virtual_stage_of(index)) * schedule.stages + stage
                which = int(schedule.microbatch_of(index))
                done[which].append((iteration, stage, part, forward))
    return {m: sorted(every, key=lambda one: (one[0], not one[3])) for m, every in done.items()}


@given(SCHEDULES)
def test_every_microbatch_passes_all_parts_and_back_in_consecutive_iterations(schedule) -> None:
    """From the last part it turns around in the same iteration."""
    for done in passes(schedule).values():
        ahead = list(range(schedule.lap))
        assert [part for _, _, part, _ in done] == ahead + ahead[::-1]
        assert [forward for *_, forward in done] == [True] * schedule.lap + [False] * schedule.lap
        first = done[0][0]
        turn = first + schedule.lap - 1
        times = [*range(first, turn + 1), *range(turn, turn + schedule.lap)]
        assert [iteration for iteration, *_ in done] == times


@given(SCHEDULES)
def test_a_stage_is_idle_in_stages_minus_one_iterations_each_way(schedule) -> None:
    every = [one for done in passes(schedule).values() for one in done]
    for forward in (True, False):
        busy = [(at, stage) for at, stage, _, way in every if way == forward]
        assert len(set(busy)) == len(busy)
        times = [at for at, _ in busy]
        assert max(times) - min(times) + 1 == schedule.iterations
        for stage in range(schedule.stages):
            own = sum(s == stage for _, s in busy)
            assert own == schedule.passes == schedule.iterations - (schedule.stages - 1)
    assert schedule.overhead == pytest.approx(schedule.iterations / schedule.passes)


@given(SCHEDULES)
def test_a_slot_is_read_before_another_pass_takes_it(schedule) -> None:
    """A pass of index i writes slot i of as many as there are, in a ring; idle ones after the last
    pass that of its number."""
    count = slot_count(schedule.lap, schedule.passes)
    for stage in range(schedule.stages):
        for back in range(schedule.passes):
            index = int(schedule.forward_of(back))
            read = back + schedule.turns - schedule.passes - stage
            written = index + stage
            assert written <= read
            assert index + count > schedule.passes or read < written + count


@given(st.integers(1, 6), st.integers(1, 4), st.integers(1, 4))
def test_part_r_of_stage_s_is_the_r_times_stages_plus_s_th(stages, virtual_stages, layers) -> None:
    order = layer_order(stages * virtual_stages * layers, stages, virtual_stages)
    rows = order.reshape(stages, virtual_stages, layers)
    for s in range(stages):
        for r in range(virtual_stages):
            first = (r * stages + s) * layers
            assert rows[s, r].tolist() == list(range(first, first + layers))
    assert sorted(order) == list(range(len(order)))


def test_one_round_keeps_the_order_of_the_layers() -> None:
    assert np.array_equal(layer_order(12, 4, 1), np.arange(12))
    assert layer_order(8, 2, 2).tolist() == [0, 1, 4, 5, 2, 3, 6, 7]


def test_the_tables_of_the_docstring() -> None:
    assert PipelineSchedule(3, 1, 4).iterations == 6
    schedule, index = PipelineSchedule(2, 2, 4), np.arange(8)
    assert (schedule.iterations, schedule.turns) == (9, 12)
    assert schedule.microbatch_of(index).tolist() == [0, 1, 0, 1, 2, 3, 2, 3]
    assert schedule.virtual_stage_of(index).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
