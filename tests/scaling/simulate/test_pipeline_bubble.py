"""A pipeline's idle ticks: marked where the program hands on, and told as bubble."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent
from scaling.meshes import catalog
from scaling.models.pipeline.schedule import DRAIN, FILL
from scaling.profiles.io import ideal
from scaling.program.ir import Buffer, Collective, Kernel, Loop, Operation, Origin, Program
from scaling.program.serialization import program_dict, read_program_dict
from scaling.simulate.memory import memory_use
from scaling.simulate.pipeline_bubble import bubble_shares, mark_bubbles
from scaling.simulate.step import price
from scaling.simulate.summary import summarize, time_shares
from scaling.simulate.timeline import run_schedule

HOP = Collective("hop", kind="permute", axes=("stage",), bytes=2**20, asynchronous=False)
DOT = Kernel("dot", kind="matmul", flops=1e12, bytes=1e6, dtype="bf16")
TIMES = {"dot": 2.0, "hop": 1.0, "fill dot": 2.0, "fill hop": 1.0, "head": 5.0}


def program(*schedule: Operation) -> Program:
    return Program("deep", "compiled", {"stage": 4}, schedule)


def ticks(scope: str, trips: int) -> Loop:
    hop, dot = (
        replace(step, name=f"fill {step.name}" * (scope == FILL) or step.name)
        for step in (HOP, DOT)
    )
    layers = Loop(f"{scope} layers", body=(dot,), trips=2)
    return Loop(scope, Origin(layer=scope), body=(hop, layers), trips=trips)


def pipeline(microbatches: int = 8, stages: int = 4) -> Program:
    """Ticks of one way, of which the first or the last ones are idle on some stage."""
    return program(ticks(FILL, stages - 1), ticks("steady", microbatches), Kernel("head"))


def test_the_loops_of_the_fill_and_the_drain_are_marked():
    scopes = f"reference/{FILL}/layers", "reference/layers", f"{FILL}/layers", "steady", DRAIN
    marked = mark_bubbles(program(*(ticks(scope, 3) for scope in scopes))).schedule
    assert [loop.bubble_trips for loop in marked] == [3, 0, 3, 0, 3]


def test_without_stages_nothing_is():
    alone = replace(pipeline(), mesh={"data": 4})
    assert mark_bubbles(alone) == alone


def test_a_loop_inside_another_is_found():
    inside = program(Loop("outer", body=pipeline().schedule, trips=2))
    (outer,) = mark_bubbles(inside).schedule
    assert [loop.bubble_trips for loop in outer.body[:2]] == [3, 0] and not outer.bubble_trips
    assert run_schedule(mark_bubbles(inside), TIMES).bubble == pytest.approx(2 * 3 * 4.0)


def test_what_idle_ticks_compute_is_bubble_and_hops_stay_communication():
    line = run_schedule(mark_bubbles(pipeline()), TIMES)
    assert line.bubble == pytest.approx(3 * 2 * 2.0)
    assert line.compute == pytest.approx(8 * 2 * 2.0 + 5.0)
    assert line.exposed_communication == pytest.approx(11.0)
    assert line.total == pytest.approx(run_schedule(pipeline(), TIMES).total)


@given(st.integers(2, 8), st.integers(1, 16), st.floats(0.1, 10))
def test_the_bubble_is_the_closed_forms_share_of_the_ticks(stages, microbatches, seconds):
    """(S - 1) / (M + S - 1), as in arXiv 1811.06965, section 2.3."""
    marked = mark_bubbles(pipeline(microbatches, stages))
    line = run_schedule(
        marked,
        TIMES | {"dot": seconds, "fill dot": seconds, "hop": 0.0, "fill hop": 0.0, "head": 0.0},
    )
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
    marked = mark_bubbles(plain)
    assert [type(step) for step in marked.schedule] == [Loop, Kernel, Loop, Kernel]
    assert memory_use(marked).peak == memory_use(plain).peak == 5 + 3


def test_the_mark_is_kept_in_a_file():
    marked = mark_bubbles(pipeline())
    assert read_program_dict(program_dict(marked), "here") == marked


def test_steps_of_marked_loops_have_their_share():
    found = bubble_shares(mark_bubbles(pipeline()))
    assert found == {"fill hop": 1, "fill dot": 1}
    assert bubble_shares(pipeline()) == {}


def test_a_prediction_names_the_bubble_and_its_terms_still_sum_to_the_step():
    priced = price(mark_bubbles(pipeline()), catalog.load("dgx-h100"), ideal())
    found = summarize(priced)
    parts = found.time
    assert parts.bubble == pytest.approx(3 / 8 * parts.compute, rel=0.05)  # the head is small
    five = parts.compute + parts.optimizer + parts.exposed_communication + parts.bubble + parts.host
    assert five == pytest.approx(found.step_time)
    assert sum(time_shares(priced).values()) == pytest.approx(1)
    assert time_shares(priced)["bubble"] == pytest.approx(parts.bubble / found.step_time)


def test_where_most_ticks_are_idle_the_bubble_is_the_bottleneck():
    priced = price(mark_bubbles(pipeline(1)), catalog.load("dgx-h100"), ideal())
    assert summarize(priced).bottleneck.startswith("bubble: pipeline stages without work take 7")


def test_a_recording_is_parted_by_the_same_share():
    """Three ticks of one kernel of 2 s and a hop of 1 s, eight more, then the head for 5 s."""
    idle = replace(HOP, name="fill hop"), Kernel("fill dot")
    loops = (
        Loop(FILL, Origin(layer=FILL), body=idle, trips=3),
        Loop("steady", body=(HOP, Kernel("dot")), trips=8),
    )
    marked = mark_bubbles(program(*loops, Kernel("head")))
    events = []
    for tick in range(11):
        name = "fill " * (tick < 3)
        events += [(f"{name}hop", 3.0 * tick, 1.0), (f"{name}dot", 3.0 * tick + 1, 2.0)]
    events.append(("head", 33.0, 5.0))
    recorded = [RecordedEvent(0, "1", name, "jit_step", at, took, 1) for name, at, took in events]
    terms = match_recording(recorded, marked, 1).terms
    assert terms["bubble"] == pytest.approx(11 * 2.0 * 3 / 11)
    assert terms["compute"] == pytest.approx(11 * 2.0 * 8 / 11 + 5.0)
    assert terms["exposed_communication"] == pytest.approx(11.0)
