"""Every stage is idle as long as the bubble that the prediction counts, and where schedules say."""

import pytest

import scaling as sc
from scaling.api.pricing import price_program
from scaling.models.pipeline.schedule import PipelineSchedule
from scaling.simulate.pipeline_bubble import Tick, stage_spans

STAGES, MICROBATCHES = 4, 8


def priced(schedule: str):
    settings = {"batch.global_batch": 128, "batch.microbatches": MICROBATCHES}
    settings |= {"remat": "selective", "pipeline.schedule": schedule}
    where = ("llama3-1b", "dgx-h100", 1, f"stage={STAGES},fsdp=2")
    p = sc.predict(*where, set=settings, source="analytic")
    return p, price_program(p.pricing, record=True)


def test_in_gpipe_every_stage_is_idle_for_the_bubble():
    """All ticks take as long, so every stage idles as long as the program's own bubble."""
    p, step = priced("gpipe")
    for spans in stage_spans(step):
        idle = sum(span.end - span.start for span in spans if span.what == "bubble")
        assert idle == pytest.approx(p.time.bubble, rel=0.05)  # the bubble also counts copies


def test_in_1f1b_no_stage_begins_before_the_one_ahead_of_it():
    _, step = priced("1f1b")
    starts = [
        min(s.start for s in spans if s.what == "forward" and s.stream == "compute")
        for spans in stage_spans(step)
    ]
    assert starts == sorted(starts) and starts[0] < starts[1]
    ends = [
        max(s.end for s in spans if s.what in ("backward", "remat") and s.stream == "compute")
        for spans in stage_spans(step)
    ]
    assert ends == sorted(ends, reverse=True)


@pytest.mark.parametrize("stage", range(STAGES))
def test_in_1f1b_a_stage_passes_every_microbatch_once_forward_and_once_backward(stage):
    fill = [Tick("fill", t, STAGES - 1) for t in range(STAGES - 1)]
    steady = [Tick("steady", t, MICROBATCHES) for t in range(MICROBATCHES)]
    drain = [Tick("drain", t, STAGES - 1) for t in range(STAGES - 1)]
    forward = [t for t in fill + steady if t.is_busy(stage, STAGES, "forward")]
    backward = [t for t in steady + drain if t.is_busy(stage, STAGES, "backward")]
    assert len(forward) == len(backward) == MICROBATCHES


def test_a_pass_is_that_of_the_trainers_schedule():
    schedule = PipelineSchedule(STAGES, 2, MICROBATCHES)
    for iteration in range(schedule.iterations):
        tick = Tick("forward", iteration, schedule.iterations)
        for stage in range(STAGES):
            busy = bool(schedule.is_busy(iteration, stage))
            assert tick.is_busy(stage, STAGES, "forward") == busy


def test_without_a_pipeline_there_is_one_row(hand_priced):
    (spans,) = stage_spans(hand_priced)
    assert {span.stream for span in spans} == {"compute", "communication"}
    assert "bubble" not in {span.what for span in spans}
