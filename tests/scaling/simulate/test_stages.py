"""Every stage is idle as long as the bubble that the prediction counts, and where schedules say."""

import pytest

import scaling as sc
from scaling.api.pricing import price_program
from scaling.simulate.pipeline_bubble import Tick, stage_spans

STAGES, MICROBATCHES = 4, 8


def priced(schedule: str, parts: int = 1):
    settings = {"batch.global_batch": 128, "batch.microbatches": MICROBATCHES}
    settings |= {"remat": "selective", "pipeline.schedule": schedule}
    settings |= {"pipeline.virtual_stages": parts}
    where = ("llama3-1b", "dgx-h100", 1, f"stage={STAGES},fsdp=2")
    p = sc.predict(*where, set=settings, source="analytic")
    return p, price_program(p.pricing, record=True)


def test_in_1f1b_no_stage_begins_before_the_one_ahead_of_it():
    _, step = priced("1f1b", 1)
    starts = []
    for spans in stage_spans(step)[1:]:  # behind the first wait; all embed the first microbatch
        wait = min(s.start for s in spans if s.what == "bubble")
        works = [s.start for s in spans if s.what == "forward" and s.stream == "compute"]
        starts.append(min(start for start in works if start > wait))
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


@pytest.mark.parametrize(("schedule", "parts"), [("1f1b", 1), ("interleaved", 2)])
def test_every_stage_works_as_long_and_the_first_begins_and_ends(schedule, parts):
    """Idle is every stage for all ticks but those of its own passes."""
    _, step = priced(schedule, parts)
    rows = [[span for span in spans if span.stream == "compute"] for spans in stage_spans(step)]
    idle = [sum(s.end - s.start for s in row if s.what == "bubble") for row in rows]
    assert idle == pytest.approx([idle[0]] * STAGES, rel=0.25)  # streams are embedded as well
    assert idle[0] > 0
    first = [min(s.start for s in row if s.what == "forward") for row in rows]
    assert first[0] == min(first)


def test_without_a_pipeline_there_is_one_row(hand_priced):
    (spans,) = stage_spans(hand_priced)
    assert {span.stream for span in spans} == {"compute", "communication"}
    assert "bubble" not in {span.what for span in spans}
