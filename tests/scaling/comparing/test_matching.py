"""A recording joined by names: whole steps wherever it is cut, modules, kernels without names."""

from dataclasses import replace

import pytest
from pytest import approx

from scaling.comparing.executions import count_steps
from scaling.comparing.matching import match_recording
from scaling.comparing.recorded import RecordedEvent
from scaling.meshes.errors import InputError

STEPS = 3


@pytest.fixture(scope="module")
def one(hand_priced):
    """The events of one step of the program written by hand."""
    return [
        RecordedEvent(0, e.stream, e.operation.name, "jit_step", e.start, e.end - e.start)
        for e in hand_priced.timeline.events
    ]


@pytest.fixture(scope="module")
def length(hand_priced):
    return float(hand_priced.timeline.events[-1].end)


def shifted(events, by, **changes):
    return [replace(event, start=event.start + by, **changes) for event in events]


def steps_of(one, length, before=0, after=0):
    """Three steps, with the last events of the step before and the first of the step after."""
    events = [e for n in range(STEPS) for e in shifted(one, n * length)]
    lead = shifted(one[len(one) - before :], -length)
    return [*lead, *events, *shifted(one[:after], STEPS * length)]


def test_a_step_is_whole_wherever_the_recording_began_and_ended(hand_priced, one, length):
    """Steps of another phase are steps, too; where both cuts leave one, as if it were whole."""
    calls = {"gather.1": 3, "dot.1": 3, "norm.1": 3, "sum.1": 1, "adam.1": 1}
    for before in range(len(one)):
        for after in range(len(one)):
            found = match_recording(steps_of(one, length, before, after), hand_priced.program)
            assert found.steps in (STEPS - 1, STEPS, STEPS + 1)
            assert {name: seen.calls for name, seen in found.instructions.items()} == calls
            whole = before + after == len(one)
            assert sum(list(found.terms.values())[:5]) == approx(
                length, rel=0.05 if whole else 1e-9
            )


def test_a_complete_recording_is_used_whole(hand_priced, one, length):
    assert match_recording(steps_of(one, length), hand_priced.program).steps == STEPS
    assert match_recording(one, hand_priced.program).steps == 1


@pytest.mark.parametrize("before", range(9))
def test_steps_are_counted_where_only_a_loop_was_recorded(hand_priced, one, length, before):
    """Its instructions run three times in a step."""
    looped = [e for e in one if e.name not in ("sum.1", "adam.1")]
    events = steps_of(looped, length, before, before)
    found = match_recording(events, hand_priced.program)
    assert found.instructions["dot.1"].calls == 3
    assert 0 <= len(events) / len(looped) - found.steps < 2


def test_an_event_that_stands_there_twice_is_no_step(hand_priced, one):
    twice = [event for event in one if event.name == "sum.1"]
    found = match_recording([*one, *twice], hand_priced.program)
    assert found.steps == 1 and found.instructions["sum.1"].calls == 2


def test_what_never_runs_counts_no_steps(hand_step, one, length):
    """A loop that the caller says to run not once."""
    (loop, *rest) = hand_step.schedule
    program = replace(hand_step, schedule=(replace(loop, trips=0), *rest))
    found = match_recording(steps_of(one, length), program)
    assert found.steps == STEPS and "dot.1" in found.match.recorded_only


def test_a_lost_event_costs_a_step_and_no_figure(hand_priced, one, length):
    """As AMD's profiler loses some: the others are still those of whole steps."""
    events = [e for d in range(8) for e in shifted(steps_of(one, length), 0.0, device=d)]
    found = match_recording(events[1:], hand_priced.program)
    assert (found.steps, found.devices) == (STEPS - 1, 8)
    assert found.instructions["dot.1"].calls == 3
    assert found.match.counted == STEPS


def test_instructions_tell_the_number_of_steps():
    """Half of them run four times in a step; one event was lost, and one comes of a step before."""
    calls = {f"i.{n}": 4.0 if n % 2 else 1.0 for n in range(20)}
    event = RecordedEvent(0, "s", "", "m", 0.0, 1.0)
    events = [replace(event, name=name) for name, n in calls.items() for _ in range(int(7 * n))]
    assert count_steps(events, calls) == 7
    assert count_steps([*events[1:], replace(event, name="i.2")], calls) == 7
    assert count_steps(events, {}) is None
    assert count_steps([replace(e, run=e.start) for e in events], {}) == 1


def test_the_programs_own_module_is_taken_however_short(hand_priced, one, length):
    """A second module of the same names, such as an evaluation, ran for longer."""
    program = replace(hand_priced.program, module="jit_step")
    other = shifted([replace(e, duration=9 * e.duration) for e in one], 9.0, module="jit_eval")
    found = match_recording([*steps_of(one, length), *other], program)
    assert (found.match.module, found.steps) == ("jit_step", STEPS)
    longest = match_recording([*steps_of(one, length), *other], hand_priced.program)
    assert longest.match.module == "jit_eval"


def test_kernels_of_no_module_are_adopted_where_their_names_tell(hand_priced, one, length):
    """Of command buffers: after the instruction, of a library, of nobody."""
    kernel = replace(one[-1], name="", module="", start=0.0, duration=1e-4)
    strays = [
        replace(kernel, kernel=name, start=n * length)
        for n in range(STEPS)
        for name in ("adam_1.kd", "void cutlass::Kernel<int>(x)", "__amd_rocclr_copyBuffer.kd")
    ]
    events = [e for e in steps_of(one, length) if e.name != "adam.1"] + strays
    found = match_recording(events, hand_priced.program)
    assert found.instructions["adam.1"].seconds == approx(1e-4)
    assert found.match.recorded_only == {"kernel cutlass::Kernel": approx(1e-4)}
    assert found.others == {"matmul": approx(1e-4)}
    assert found.match.without == approx(1e-4)
    assert found.match.share == 1.0  # of the time that is of instructions


@pytest.mark.parametrize("before", [0, 4, 9])
def test_collectives_of_other_names_are_joined_by_kind_and_order(hand_step, one, length, before):
    """Wherever the recording began; not where the program has more of the kind."""
    gathers = {"gather.1": "all-gather-start.8", "sum.1": "psum.3"}
    events = [
        replace(e, name=gathers.get(e.name, e.name)) for e in steps_of(one, length, before, before)
    ]
    found = match_recording(events, hand_step)
    assert found.match.by_order == {"all-gather-start.8": "gather.1", "psum.3": "sum.1"}
    assert found.instructions["gather.1"].calls == 3 and found.others == {}
    more = replace(
        hand_step, schedule=(*hand_step.schedule, replace(hand_step.schedule[1], name="s"))
    )
    assert match_recording(events, more).match.by_order == {"all-gather-start.8": "gather.1"}


def test_an_asynchronous_instruction_is_also_known_by_what_is_inside(hand_step, one):
    """XLA names a profile's collectives so, but for all-gathers and all-reduces."""
    (loop, *rest) = hand_step.schedule
    gather, *others = loop.body
    wrapped = replace(loop, body=(replace(gather, inside="all-gather.7.1"), *others))
    program = replace(hand_step, schedule=(wrapped, *rest))
    events = [replace(e, name={"gather.1": "all-gather.7.1"}.get(e.name, e.name)) for e in one]
    found = match_recording(events, program)
    assert found.instructions["gather.1"].calls == 3
    assert found.match.share == 1.0


def test_kernels_that_say_neither_module_nor_instruction_tell_how_to_record(hand_priced, one):
    stray = replace(one[0], name="", module="", kernel="sm90_xmma_gemm_bf16")
    with pytest.raises(InputError, match="xla_gpu_enable_command_buffer="):
        match_recording([stray], hand_priced.program)


def test_without_equal_names_steps_are_what_recurs(hand_priced, one, length):
    """A tenth of the names, or more, run once in a step; those in loops more often."""
    program = replace(hand_priced.program, module="jit_step")
    events = [replace(e, name=f"{e.name}_") for e in steps_of(one, length)]
    assert match_recording(events, program).steps == STEPS
    assert match_recording(events, program, 1).steps == 1
