"""The timetable of a pipeline, which lesson 9 draws."""

from itertools import pairwise

import pytest

from scaling.models.pipeline.schedule import PipelineSchedule, slot_count
from scaling.pictures.pipeline import held, idle_share, timetable

CASES = [
    ("gpipe", 4, 8, 1),
    ("gpipe", 1, 3, 1),
    ("1f1b", 4, 8, 1),
    ("1f1b", 8, 4, 1),  # fewer microbatches than stages
    ("interleaved", 4, 8, 2),
    ("interleaved", 3, 6, 3),
    ("interleaved", 4, 4, 4),
]


@pytest.mark.parametrize(("schedule", "stages", "microbatches", "parts"), CASES)
def test_a_microbatch_goes_through_all_parts_and_back_in_order(
    schedule, stages, microbatches, parts
):
    passes = timetable(schedule, stages, microbatches, parts)
    at = {(one.microbatch, one.part * stages + one.stage, one.forward): one for one in passes}
    assert len(at) == len(passes) == 2 * stages * microbatches * parts
    for microbatch in range(microbatches):
        way = [at[microbatch, place, True] for place in range(stages * parts)]
        way += [at[microbatch, place, False] for place in reversed(range(stages * parts))]
        assert all(first.end <= then.begin for first, then in pairwise(way))


@pytest.mark.parametrize(("schedule", "stages", "microbatches", "parts"), CASES)
def test_a_stage_does_one_thing_at_a_time_and_is_idle_as_long_as_stated(
    schedule, stages, microbatches, parts
):
    passes = timetable(schedule, stages, microbatches, parts)
    for stage in range(stages):
        row = sorted((one.begin, one.end) for one in passes if one.stage == stage)
        assert all(first[1] <= then[0] for first, then in pairwise(row))
    overhead = PipelineSchedule(stages, parts, microbatches).overhead
    assert idle_share(passes) == pytest.approx(1 - 1 / overhead)


def test_one_forward_one_backward_keeps_as_many_as_the_trainer_has_slots_for():
    assert held(timetable("1f1b", 4, 32)) == slot_count(4, 32)
    assert held(timetable("gpipe", 4, 32)) == 32
