"""The schedule of a pipeline: every microbatch meets every part of the layers, in order, once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.models.pipeline.schedule import PipelineSchedule, layer_order

SCHEDULES = st.builds(
    lambda stages, virtual_stages, groups, rest: PipelineSchedule(
        stages, virtual_stages, groups * stages if virtual_stages > 1 else groups + rest
    ),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(0, 5),
)


def replayed(schedule: PipelineSchedule) -> dict[int, list[tuple[int, int, int]]]:
    """microbatch -> (tick, stage, round) of all that is done for it, by handing on only."""
    done: dict[int, list[tuple[int, int, int]]] = {m: [] for m in range(schedule.microbatches)}
    entering = {int(tick): m for m, tick in enumerate(schedule.entries)}
    made: list[int | None] = [None] * schedule.stages
    for tick in range(schedule.iterations):
        arrived = [made[-1] if schedule.virtual_stages > 1 else None, *made[:-1]]
        made = [entering[tick] if schedule.enters[tick] else arrived[0], *arrived[1:]]
        for stage, microbatch in enumerate(made):
            if microbatch is not None and (
                len(done[microbatch]) < schedule.virtual_stages * schedule.stages
            ):  # afterwards it goes around unseen
                done[microbatch].append((tick, stage, int(schedule.virtual_stage_at(tick, stage))))
    return done


@given(SCHEDULES)
def test_every_microbatch_passes_all_parts_in_order_in_consecutive_ticks(
    schedule: PipelineSchedule,
) -> None:
    parts = [(r, s) for r in range(schedule.virtual_stages) for s in range(schedule.stages)]
    for microbatch, done in replayed(schedule).items():
        assert [(round_, stage) for _, stage, round_ in done] == parts
        times = [tick for tick, _, _ in done]
        assert times == list(range(times[0], times[0] + len(parts)))
        assert times[0] == schedule.entries[microbatch]


@given(SCHEDULES)
def test_a_stage_is_idle_in_stages_minus_one_ticks(schedule: PipelineSchedule) -> None:
    busy = [(tick, stage) for done in replayed(schedule).values() for tick, stage, _ in done]
    every = [(t, s) for t in range(schedule.iterations) for s in range(schedule.stages)]
    assert sorted(busy) == [(t, s) for t, s in every if schedule.is_busy(t, s)]
    assert len(set(busy)) == len(busy)
    for stage in range(schedule.stages):
        assert sum(s == stage for _, s in busy) == schedule.iterations - (schedule.stages - 1)
    assert schedule.overhead == pytest.approx(
        schedule.iterations / (schedule.iterations - schedule.stages + 1)
    )


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
    gpipe, circular = PipelineSchedule(3, 1, 4), PipelineSchedule(2, 2, 4)
    assert (gpipe.iterations, gpipe.entries.tolist()) == (6, [0, 1, 2, 3])
    assert (circular.iterations, circular.entries.tolist()) == (9, [0, 1, 4, 5])
    assert circular.virtual_stage_at(np.arange(1, 9), 1).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
