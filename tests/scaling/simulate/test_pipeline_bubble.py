"""A pipeline's idle ticks: marked where the program hands on, and told as bubble."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent
from scaling.meshes import catalog
from scaling.models.pipeline.schedule import FILL, PipelineSchedule
from scaling.profiles.io import ideal
from scaling.program.ir import Buffer, Collective, Kernel, Loop, Operation, Origin, Program
from scaling.program.serialization import program_dict, read_program_dict
from scaling.simulate.memory import memory_use
from scaling.simulate.pipeline_bubble import bubble_shares, mark_bubbles
from scaling.simulate.step import price
from scaling.simulate.summary import summarize, time_shares
from scaling.simulate.timeline import run_schedule

SCHEDULE = PipelineSchedule(4, 1, 8)  # eleven ticks, three of them idle
HOP = Collective("hop", kind="permute", axes=("stage",), bytes=2**20, asynchronous=False)
LAYERS = Loop(
    "layers", body=(Kernel("dot", kind="matmul", flops=1e12, bytes=1e6, dtype="bf16"),), trips=2
)
TIMES = {"dot": 2.0, "hop": 1.0, "head": 5.0}


def program(*schedule: Operation) -> Program:
    return Program("deep", "compiled", {"stage": 4}, schedule)


def pipeline(trips: int = SCHEDULE.iterations) -> Program:
    return program(Loop("ticks", body=(HOP, LAYERS), trips=trips), Kernel("head"))


def test_the_loop_that_hands_on_in_each_tick_is_marked():
    (ticks, head) = mark_bubbles(pipeline(), SCHEDULE).schedule
    assert (ticks.bubble_trips, ticks.trips, ticks.body) == (3, 11, (HOP, LAYERS))
    assert head == Kernel("head")


@pytest.mark.parametrize(
    "other",
    [
        pipeline(trips=10),
        program(Loop("ticks", body=(LAYERS,), trips=11)),
        program(Loop("ticks", body=(replace(HOP, axes=("context",)), LAYERS), trips=11)),
        program(Loop("ticks", body=(replace(HOP, kind="all-gather"), LAYERS), trips=11)),
    ],
)
def test_other_loops_are_not(other):
    assert mark_bubbles(other, SCHEDULE) == other


def test_without_stages_nothing_is():
    alone = PipelineSchedule(1, 1, 11)
    assert mark_bubbles(pipeline(), alone) == pipeline()


def test_a_loop_inside_another_is_found():
    inside = program(Loop("outer", body=pipeline().schedule, trips=2))
    (outer,) = mark_bubbles(inside, SCHEDULE).schedule
    assert outer.bubble_trips == 0 and outer.body[0].bubble_trips == 3
    assert run_schedule(mark_bubbles(inside, SCHEDULE), TIMES).bubble == pytest.approx(2 * 3 * 4.0)


def test_what_idle_ticks_compute_is_bubble_and_hops_stay_communication():
    line = run_schedule(mark_bubbles(pipeline(), SCHEDULE), TIMES)
    assert line.bubble == pytest.approx(3 * 2 * 2.0)
    assert line.compute == pytest.approx(8 * 2 * 2.0 + 5.0)
    assert line.exposed_communication == pytest.approx(11.0)
    assert line.total == pytest.approx(run_schedule(pipeline(), TIMES).total)


@given(st.integers(2, 8), st.integers(1, 16), st.floats(0.1, 10))
def test_the_bubble_is_the_closed_forms_share_of_the_ticks(stages, microbatches, seconds):
    """(S - 1) / (M + S - 1), as in arXiv 1811.06965, section 2.3."""
    schedule = PipelineSchedule(stages, 1, microbatches)
    marked = mark_bubbles(pipeline(schedule.iterations), schedule)
    line = run_schedule(marked, {"dot": seconds, "hop": 0.0, "head": 0.0})
    share = (stages - 1) / (microbatches + stages - 1)
    assert line.bubble == pytest.approx(share * line.total)


def test_a_mark_leaves_buffers_where_they_were():
    """What a kernel of the filling ticks makes is kept until it is read."""
    fill = Origin("forward", f"{FILL}/layer")
    make, use = Kernel("make", fill, writes=(0,)), Kernel("use", writes=(1,))
    over = Kernel("over", fill, reads=(1,), writes=(2,), over=(1,))
    end = Kernel("end", reads=(0, 2))
    buffers = (Buffer("kept", 5, "temporary"), *(Buffer("b", 3, "temporary"),) * 2)
    plain = replace(program(make, use, over, end), buffers=buffers)
    marked = mark_bubbles(plain, SCHEDULE)
    assert [type(step) for step in marked.schedule] == [Loop, Kernel, Loop, Kernel]
    assert memory_use(marked).peak == memory_use(plain).peak == 5 + 3


def test_the_mark_is_kept_in_a_file():
    marked = mark_bubbles(pipeline(), SCHEDULE)
    assert read_program_dict(program_dict(marked), "here") == marked


def test_steps_of_marked_loops_have_their_share():
    found = bubble_shares(mark_bubbles(pipeline(), SCHEDULE))
    assert found == {"hop": 3 / 11, "dot": 3 / 11}
    assert bubble_shares(pipeline()) == {}


def test_a_prediction_names_the_bubble_and_its_terms_still_sum_to_the_step():
    priced = price(
        mark_bubbles(pipeline(), PipelineSchedule(4, 1, 8)), catalog.load("dgx-h100"), ideal()
    )
    found = summarize(priced)
    parts = found.time
    assert parts.bubble == pytest.approx(3 / 8 * parts.compute, rel=0.05)  # the head is small
    five = parts.compute + parts.optimizer + parts.exposed_communication + parts.bubble + parts.host
    assert five == pytest.approx(found.step_time)
    assert sum(time_shares(priced).values()) == pytest.approx(1)
    assert time_shares(priced)["bubble"] == pytest.approx(parts.bubble / found.step_time)


def test_where_most_ticks_are_idle_the_bubble_is_the_bottleneck():
    priced = price(
        mark_bubbles(pipeline(4), PipelineSchedule(4, 1, 1)), catalog.load("dgx-h100"), ideal()
    )
    assert summarize(priced).bottleneck.startswith("bubble: pipeline stages without work take 7")


def test_a_recording_is_parted_by_the_same_share():
    """Eleven ticks of one kernel of 2 s and a hop of 1 s, then the head for 5 s."""
    marked = mark_bubbles(
        program(Loop("t", body=(HOP, Kernel("dot")), trips=11), Kernel("head")), SCHEDULE
    )
    events = []
    for tick in range(11):
        events += [("hop", 3.0 * tick, 1.0), ("dot", 3.0 * tick + 1, 2.0)]
    events.append(("head", 33.0, 5.0))
    recorded = [RecordedEvent(0, "1", name, "jit_step", at, took, 1) for name, at, took in events]
    terms = match_recording(recorded, marked, 1).terms
    assert terms["bubble"] == pytest.approx(11 * 2.0 * 3 / 11)
    assert terms["compute"] == pytest.approx(11 * 2.0 * 8 / 11 + 5.0)
    assert terms["exposed_communication"] == pytest.approx(11.0)
