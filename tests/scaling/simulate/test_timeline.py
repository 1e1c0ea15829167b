"""The replay of schedules, held against a longest path through their dependencies.

Random programs have kernels, collectives (asynchronous ones with waits), copies, loops, branches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, product
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.profiles.profile import Evidence, InterferenceFit
from scaling.program.ir import (
    Block,
    Branch,
    Collective,
    Kernel,
    Loop,
    Operation,
    Origin,
    Program,
    Wait,
)
from scaling.simulate import side_by_side, timeline
from scaling.simulate.side_by_side import COMMUNICATION, STREAMS, stream_of
from scaling.simulate.timeline import Timeline, run_schedule

PARTS = ("compute", "optimizer", "exposed_communication", "bubble", "host")
SAME = 1e-9  # relative
LOSSES = st.sampled_from([0.0, 0.25, 0.6])
HELD_UP = st.sampled_from([0.0, 2.5])
SECONDS = st.sampled_from([0.0, 1e-6, 1e-3, 0.5, 1.0, 1.5, 2.0]) | st.floats(1e-6, 10.0)


def program(*schedule: Operation) -> Program:
    return Program("p", "compiled", {"fsdp": 2}, schedule)


def run(times: Mapping[str, float], *schedule: Operation, **options) -> Timeline:
    return run_schedule(program(*schedule), times, **options)


def kernel(name: str, phase="forward") -> Kernel:
    return Kernel(name, Origin(phase))


def sync(name: str) -> Collective:
    return Collective(name, asynchronous=False)


# By hand


def test_communication_beside_compute_is_hidden() -> None:
    line = run({"g": 3.0, "k": 2.0}, Collective("g"), kernel("k"), Wait("g"))
    assert (line.total, line.exposed_communication, line.hidden_communication) == (3.0, 1.0, 2.0)
    assert line.exposed_by_name == {"g": 1.0}


def test_waiting_in_the_queue_is_charged_to_the_one_that_is_waited_for() -> None:
    """So a row's exposed time can exceed its time; all rows sum to what is exposed."""
    steps = (Collective("long"), Collective("short"), Wait("short"), kernel("k"), Wait("long"))
    line = run({"long": 9.0, "short": 1.0, "k": 1.0}, *steps)
    assert line.by_name["short"] == 1.0 and line.exposed_by_name == {"short": 10.0, "long": 0.0}
    assert sum(line.exposed_by_name.values()) == line.exposed_communication


def test_a_kernel_takes_longer_beside_a_collective() -> None:
    """The first from start to end, the second in its first of 4 1/3 s, the third not at all."""
    steps = (Collective("g"), kernel("a"), kernel("b"), Wait("g"), kernel("c"))
    line = run({"g": 4.0, "a": 2.0, "b": 4.0, "c": 1.0}, *steps, lost={"g": 1 / 3})
    assert line.by_name == pytest.approx({"g": 4.0, "a": 3.0, "b": 4 + 1 / 3, "c": 1.0})
    assert line.exposed_communication == 0.0


def test_each_collective_beside_a_kernel_takes_its_own_share_of_it() -> None:
    """Half of two seconds beside g and a quarter of two beside h leave 0.5 s of three alone."""
    steps = (Collective("g"), Collective("h"), kernel("k"), Wait("g"), Wait("h"))
    line = run({"g": 2.0, "h": 2.0, "k": 3.0}, *steps, lost={"g": 0.5, "h": 0.25})
    assert line.by_name["k"] == line.total == pytest.approx(4.5)


def test_beside_two_collectives_a_kernel_loses_what_it_loses_beside_one_of_them() -> None:
    """Half of its rate for two seconds of both, a quarter for the third, alone from then on."""
    steps = (Collective("g"), Collective("p", kind="permute"), kernel("k"), Wait("g"), Wait("p"))
    line = run({"g": 2.0, "p": 3.0, "k": 3.0}, *steps, lost={"g": 0.5, "p": 0.25})
    assert line.by_name["k"] == pytest.approx(3 + 2 * 0.5 + 0.25)


def test_a_collective_takes_longer_beside_a_kernel() -> None:
    """In the kernel's two seconds half of the rate: three of its four seconds are left."""
    steps = (Collective("g"), kernel("k"), Wait("g"))
    line = run({"g": 4.0, "k": 2.0}, *steps, held_up=1.0, record=True)
    assert [(e.start, e.end) for e in line.events] == [(0.0, 5.0), (0.0, 2.0)]
    assert (line.exposed_communication, line.hidden_communication) == (3.0, 2.0)
    assert line.by_name == {"g": 5.0, "k": 2.0}
    assert run({"g": 0.5, "k": 2.0}, *steps, held_up=1.0).total == 2.0


@given(SECONDS, SECONDS, st.floats(0.1, 0.9))
def test_at_worst_a_kernel_and_a_collective_take_as_long_as_one_after_the_other(k, g, most) -> None:
    held_up = InterferenceFit(0.1, most, Evidence("", "", "calibrated")).held_up
    steps = (Collective("g"), kernel("k"), Wait("g"))
    line = run({"g": g, "k": k}, *steps, lost={"g": most}, held_up=held_up)
    assert line.total == pytest.approx(g + k)


@given(SECONDS, SECONDS, st.floats(0, 0.9), st.floats(0, 0.9))
def test_a_loss_costs_at_most_its_share_of_the_collective_and_never_less_than_none(k, g, one, more):
    steps = (Collective("g"), kernel("k"), Wait("g"))
    total = lambda lost: run({"g": g, "k": k}, *steps, lost={"g": lost}).total
    less, larger = sorted((one, more))
    assert max(g, k) * (1 - SAME) <= total(less) <= total(larger) * (1 + SAME)
    assert total(larger) <= (max(g, k) + larger * min(g, k)) * (1 + SAME)
    assert total(larger) == pytest.approx(max(g, k + larger * min(g, k / (1 - larger))))


def test_one_collective_runs_at_a_time_in_the_order_of_issue() -> None:
    steps = (Collective("a"), Collective("b"), kernel("k"), Wait("b"), Wait("a"))
    line = run({"a": 5.0, "b": 1.0, "k": 2.0}, *steps, record=True)
    assert [(e.operation.name, e.start, e.end) for e in line.events] == [
        ("a", 0.0, 5.0),
        ("b", 5.0, 6.0),
        ("k", 0.0, 2.0),
    ]
    assert line.exposed_by_name == {"b": 4.0, "a": 0.0}


def test_a_collective_that_does_nothing_waits_for_none_before_it() -> None:
    """As in a program without it: another configuration of the same program may run it."""
    steps = (Collective("g"), Collective("x"), Wait("x"), kernel("k"), Wait("g"))
    both = run({"g": 3.0, "x": np.array([0.0, 1.0]), "k": 2.0}, *steps)
    assert both.total.tolist() == [3.0, 6.0]
    assert both.exposed_communication.tolist() == [1.0, 4.0]


def test_a_permute_runs_beside_another_collective_and_their_union_counts() -> None:
    """Sent from 0 to 5 and from 2 to 6: six seconds, of which the first two are hidden."""
    steps = (Collective("g"), kernel("k"), Collective("p", kind="permute"), Wait("p"), Wait("g"))
    line = run({"g": 5.0, "k": 2.0, "p": 4.0}, *steps, record=True)
    assert [(e.stream, e.start, e.end) for e in line.events] == [
        ("communication", 0.0, 5.0),
        ("compute", 0.0, 2.0),
        ("permute", 2.0, 6.0),
    ]
    assert (line.total, line.exposed_communication, line.hidden_communication) == (6.0, 4.0, 2.0)


def test_a_permute_and_another_collective_share_the_links_that_both_want() -> None:
    """Both want all of the NICs: of five and four seconds from second 2, none ends before 9."""
    steps = (Collective("g"), kernel("k"), Collective("p", kind="permute"), Wait("p"), Wait("g"))
    nics, nvlink = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    times = {"g": 5.0, "k": 2.0, "p": 4.0}
    ends = lambda **busy: [e.end for e in run(times, *steps, record=True, busy=busy).events]
    assert ends(g=nics, p=nics) == [8.0, 2.0, 9.0]  # half the rate until g is over, which lacks 3 s
    assert ends(g=nics, p=nvlink) == [5.0, 2.0, 6.0]
    assert ends(g=0.75 * nics, p=0.75 * nics) == [6.5, 2.0, 7.5]  # 1.5 times as long
    assert ends(g=nics, p=None) == [8.0, 2.0, 9.0]
    line = run(times, *steps, busy={"g": nics, "p": nics})
    assert (line.total, line.exposed_communication, line.hidden_communication) == (9.0, 7.0, 2.0)
    assert line.by_name == {"g": 8.0, "k": 2.0, "p": 7.0}


def test_what_queues_behind_a_lengthened_permute_begins_later() -> None:
    steps = [Collective(name, kind="permute") for name in ("p", "q")]
    waits = [Wait(name) for name in ("p", "q", "g")]
    shares = dict.fromkeys("pqg", np.ones(1))
    line = run(
        {"p": 1.0, "q": 2.0, "g": 2.0}, *steps, Collective("g"), *waits, record=True, busy=shares
    )
    assert [(e.start, e.end) for e in line.events] == [(0.0, 2.0), (2.0, 5.0), (0.0, 4.0)]


def test_which_branch_takes_longest_depends_on_what_is_under_way() -> None:
    """Alone the kernel takes longer; behind a collective of ten seconds the other does."""
    branch = Branch("b", branches=((kernel("k"),), (sync("s"),)))
    times = {"g": 10.0, "k": 2.0, "s": 1.0}
    assert run(times, branch).total == 2.0
    assert run(times, Collective("g"), branch, Wait("g")).total == 11.0


def test_a_gather_may_run_into_the_next_iteration() -> None:
    """The first gather hides behind nothing, the others behind the kernel of the layer before."""
    body = (Wait("g"), Collective("g"), kernel("k"))
    steps = (Collective("g"), Loop("l", body=body, trips=80), Wait("g"))
    for gather, total in ((1.0, 1 + 80 * 2.0), (3.0, 81 * 3.0)):
        for record in (False, True):
            line = run({"g": gather, "k": 2.0}, *steps, record=record)
            assert line.total == pytest.approx(total)


def test_a_backlog_of_communication_is_worked_off_before_iterations_are_counted() -> None:
    """A hundred seconds are under way; iterations add 0.1 s, compute catches up after a while."""
    body = (Wait("g"), kernel("k"), Collective("g"))
    steps = (Collective("long"), Collective("g"), Loop("l", body=body, trips=300), Wait("g"))
    times = {"long": 100.0, "g": 0.1, "k": 1.0}
    quick, full = (run(times, *steps, Wait("long"), record=r) for r in (False, True))
    assert quick.total == pytest.approx(full.total, rel=SAME)


def test_the_one_configuration_that_needs_more_iterations_runs_apart(monkeypatch) -> None:
    """One works a backlog off, the others are counted after an iteration or two."""
    monkeypatch.setattr(timeline, "FEW", 0)
    body = (Wait("g"), kernel("k"), Collective("g"))
    steps = (Collective("long"), Collective("g"), Loop("l", body=body, trips=300), Wait("g"))
    times = {"long": np.array([0.0, 100.0, 0.0]), "g": 0.1, "k": np.array([1.0, 1.0, 2.0])}
    how = {"lost": {"g": 0.25}, "busy": {"long": None, "g": None}}
    together = run(times, *steps, Wait("long"), **how)
    for i in range(3):
        alone = run({name: at(t, i) for name, t in times.items()}, *steps, Wait("long"), **how)
        for name in (*PARTS, "hidden_communication", "total"):
            assert at(getattr(together, name), i) == near(getattr(alone, name))


def test_looped_time_is_independent_of_how_often_the_loop_runs() -> None:
    """A loop of a million iterations is not replayed."""
    body = (Collective("g"), kernel("k"), Wait("g"))
    line = run({"g": 3e-6, "k": 1e-6}, Loop("l", body=body, trips=10**6))
    assert line.total == pytest.approx(3.0)
    assert line.by_name["k"] == pytest.approx(1.0)


def test_a_long_collective_does_not_keep_iterations_beside_it_from_being_counted() -> None:
    """Ten million hops of a ring, of which a gather lies beside a part and shares its links."""
    ring = Collective("p", kind="permute"), kernel("k"), Wait("p")
    steps = (Collective("g"), Loop("l", body=ring, trips=10**7), Wait("g"))
    for gather, total in ((4e6, 8e6 + 6e6), (3e7, 4e7)):  # beside it a hop takes 2 s
        line = run({"g": gather, "p": 1.0, "k": 0.5}, *steps, busy={"g": None, "p": None})
        assert line.total == pytest.approx(total)


def test_no_more_events_are_kept_than_a_trace_can_show(monkeypatch) -> None:
    monkeypatch.setattr(side_by_side, "MOST_EVENTS", 7)
    line = run({"k": 1.0}, Loop("l", body=(kernel("k"),), trips=10**12), record=True)
    assert (line.total, len(line.events)) == (1e12, 7)


def hosted(name: str, issue: float) -> Kernel:
    return Kernel(name, Origin("forward"), issue=issue)


def test_the_host_runs_ahead_of_a_slow_kernel_into_quick_ones() -> None:
    """Three quick kernels are issued beside a slow one; the fourth waits for the host."""
    quick = [hosted(f"q{i}", 2.0) for i in range(4)]
    times = {"slow": 6.0} | {step.name: 0.5 for step in quick}
    line = run(times, hosted("slow", 1.0), *quick)
    assert line.total == 9.5  # issued at 1, 3, 5, 7 and 9
    assert (line.compute, line.host) == (8.0, 1.5)


def test_a_collective_is_issued_by_the_host_and_the_kernel_after_it_too() -> None:
    steps = (Collective("g", issue=2.0), hosted("k", 3.0), Wait("g"))
    line = run({"g": 4.0, "k": 1.0}, *steps)
    assert (line.total, line.host, line.exposed_communication) == (6.0, 5.0, 0.0)


def test_a_loop_takes_the_longer_of_host_and_device_and_a_lead_is_used_up_first() -> None:
    """The host is 96 s ahead after the slow kernel, and falls back 1 s in each iteration."""
    loop = Loop("l", body=(hosted("k", 3.0),), trips=10**6)
    line = run({"slow": 100.0, "k": 2.0}, hosted("slow", 1.0), loop)
    assert line.total == pytest.approx(1.0 + 3e6 + 2.0)
    assert line.host == pytest.approx(line.total - 100.0 - 2e6)
    assert run({"k": 5.0}, loop).total == pytest.approx(3.0 + 5e6)


# Random programs


@dataclass
class _Names:
    """Numbers the steps of one program."""

    hosted: bool = False  # the host takes time to issue steps; then there are no branches
    count: int = 0

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"


@st.composite
def blocks(draw, names: _Names, depth: int = 2) -> Block:
    """Steps in a random order; every asynchronous one is waited for somewhere after its start."""
    block: list[Operation] = []
    for _ in range(draw(st.integers(0, 4))):
        kinds = ["kernel", "optimizer", "gather", "gather", "weights", "permute", "sync", "copy"]
        nested = ["loop", "loop" if names.hosted else "branch"]
        kind = draw(st.sampled_from(kinds + nested * (depth > 0)))
        if kind == "loop":
            body = draw(blocks(names, depth - 1))
            block.append(Loop(names.new("l"), body=body, trips=draw(st.integers(0, 6))))
        elif kind == "branch":
            inner = tuple(draw(blocks(names, depth - 1)) for _ in range(2))
            block.append(Branch(names.new("b"), branches=inner))
        elif kind == "gather":
            block.append(Collective(names.new("g")))
        elif kind == "weights":
            block.append(Collective(names.new("w"), apart=True))
        elif kind == "permute":
            block.append(Collective(names.new("p"), kind="permute"))
        elif kind == "sync":
            block.append(sync(names.new("s")))
        elif kind == "copy":
            block.append(Kernel(names.new("c"), asynchronous=True))
        else:
            block.append(kernel(names.new("k"), kind if kind == "optimizer" else "forward"))
    if names.hosted:
        issued = lambda s: isinstance(s, Kernel | Collective)
        block = [replace(s, issue=draw(SECONDS)) if issued(s) else s for s in block]
        late = lambda s: isinstance(s, Kernel) and s.name.startswith("k") and draw(st.booleans())
        block = [replace(s, late=True) if late(s) else s for s in block]
    for step in [s for s in block if isinstance(s, Kernel | Collective) and s.asynchronous]:
        after = block.index(step) + 1
        block.insert(draw(st.integers(after, len(block))), Wait(step.name))
    return tuple(block)


@st.composite
def programs(draw) -> Program:
    return program(*draw(blocks(_Names(hosted=draw(st.booleans())))))


@st.composite
def shares(draw, made: Program) -> dict[str, np.ndarray | None]:
    """Of its time that each of two pools of links is busy with a collective, or is all of it."""
    pools = st.lists(st.sampled_from([0.0, 0.25, 0.6, 1.0]), min_size=2, max_size=2).map(np.array)
    return {name: draw(st.none() | pools) for name in timed_names(made.schedule)}


def busy(made: Program):
    return st.none() | shares(made)


def losses(made: Program):
    """Share of its rate that a kernel loses beside each collective, as if all steps were some."""
    return st.fixed_dictionaries({name: LOSSES for name in timed_names(made.schedule)})


@st.composite
def beside(draw, made: Program) -> dict[str, object]:
    """What steps cost each other side by side; at worst all collectives lose and cost the same."""
    if draw(st.booleans()):
        return {"lost": draw(losses(made)), "busy": draw(busy(made))}
    same = draw(LOSSES)
    lost = dict.fromkeys(timed_names(made.schedule), same) if same else None
    return {"lost": lost, "busy": draw(busy(made)), "held_up": draw(HELD_UP)}


@st.composite
def timed(draw) -> tuple[Program, dict[str, float]]:
    """A program and the seconds of its steps."""
    made = draw(programs())
    return made, {name: draw(SECONDS) for name in timed_names(made.schedule)}


def timed_names(block: Block) -> list[str]:
    names = []
    for step in block:
        if isinstance(step, Kernel | Collective):
            names.append(step.name)
        for inner in inside(step):
            names += timed_names(inner)
    return names


def inside(step: Operation) -> tuple[Block, ...]:
    return (step.body,) if isinstance(step, Loop) else getattr(step, "branches", ())


def expansions(block: Block) -> Iterator[tuple[Operation, ...]]:
    """Every way in which a block can run, as a list of steps without loops and branches."""
    ways = []
    for step in block:
        if isinstance(step, Loop):
            once = list(expansions(step.body))
            several = product(once, repeat=step.trips) if len(once) > 1 else [once * step.trips]
            ways.append([sum(each, ()) for each in several])
        elif isinstance(step, Branch):
            ways.append([way for inner in step.branches for way in expansions(inner)])
        else:
            ways.append([(step,)])
    return (sum(way, ()) for way in product(*ways))


def longest_path(steps: tuple[Operation, ...], times: Mapping[str, float]) -> dict[str, float]:
    """Parts of the time of a list of steps, from when each of them can be over at the earliest, and
    the union of the intervals in which something is sent.

    A step follows the one before it on its stream and, where it is issued, the one before it on the
    compute stream; a wait follows what it waits for. Before each step the host is a step of the
    compute stream that follows all it has issued.
    """
    issued = 0.0
    over: list[float] = []  # by step
    last: dict[str, int] = {}  # stream -> number of its latest step
    started: dict[str, int] = {}
    parts = dict.fromkeys(PARTS, 0.0)
    sent: list[tuple[float, float]] = []

    def finish(stream: str, seconds: float, *behind: int | None) -> float:
        if stream != "compute" and not seconds:  # it does not wait for its stream
            over.append(over[last["compute"]] if "compute" in last else 0.0)
            return over[-1]
        before = [over[i] for i in (last.get("compute"), *behind) if i is not None]
        over.append(max(before, default=0.0) + seconds)
        last[stream] = len(over) - 1
        return over[-1]

    for step in steps:
        now = over[last["compute"]] if "compute" in last else 0.0
        if isinstance(step, Kernel | Collective):
            if isinstance(step, Kernel) and step.late and step.issue and times[step.name]:
                issued = max(issued, now)
            issued += step.issue * bool(times[step.name])
            over.append(max(now, issued))
            last["compute"] = len(over) - 1
            parts["host"] += over[-1] - now
            now = over[-1]
        seconds = times.get(step.name, 0.0)
        if isinstance(step, Collective):
            stream = stream_of(step)
            over_at = finish(stream, seconds, last.get(stream))
            sent.append((over_at - seconds, over_at))
        elif isinstance(step, Kernel) and step.asynchronous:
            finish("copy", seconds, last.get("copy"))
        elif isinstance(step, Kernel):
            finish("compute", seconds)
            parts["optimizer" if step.origin.phase == "optimizer" else "compute"] += seconds
        if isinstance(step, Collective | Kernel):
            started[step.name] = len(over) - 1
        if isinstance(step, Wait) or (isinstance(step, Collective) and not step.asynchronous):
            part = "host" if step.name.startswith("c") else "exposed_communication"
            parts[part] += finish("compute", 0.0, started[step.name]) - now
    return parts | {"communication": union(sent)}


def union(intervals: list[tuple[float, float]]) -> float:
    """Length of what at least one interval covers."""
    covered, reached = 0.0, 0.0
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered


def total(parts: Mapping[str, float]) -> float:
    return sum(parts[name] for name in PARTS)


def near(value: float):
    return pytest.approx(value, rel=SAME, abs=1e-12)


@given(timed(), st.booleans())
def test_the_replay_is_the_longest_path_through_the_dearest_or_cheapest_branches(case, cheap):
    made, times = case
    ways = [way for way, _ in zip(expansions(made.schedule), range(300), strict=False)]
    line = run_schedule(made, times, shortest=cheap)
    found = [longest_path(way, times) for way in ways]
    chosen = (min if cheap else max)(map(total, found))
    if len(ways) == 300:  # not all of them
        assert line.total <= chosen * (1 + SAME) if cheap else line.total >= chosen * (1 - SAME)
        return
    assert line.total == near(chosen)
    alike = [
        parts
        for parts in found
        if all(getattr(line, name) == near(parts[name]) for name in PARTS)
        and line.hidden_communication
        == near(parts["communication"] - parts["exposed_communication"])
    ]
    assert alike


@given(timed(), st.data())
def test_counting_iterations_is_as_good_as_replaying_all(case, data) -> None:
    more = data.draw(beside(case[0]))
    quick, full = (run_schedule(*case, record=r, **more) for r in (False, True))
    for name in (*PARTS, "hidden_communication"):
        assert getattr(quick, name) == near(getattr(full, name))
    for name, seconds in full.by_name.items():
        assert quick.by_name[name] == near(seconds)
    for name, seconds in full.exposed_by_name.items():
        assert quick.exposed_by_name[name] == near(seconds)


@given(timed(), st.data())
def test_a_kernel_does_its_work_at_the_speed_that_the_worst_of_what_runs_beside_leaves(
    case, data
) -> None:
    made, times = case
    how = data.draw(beside(made))
    line, lost = run_schedule(made, times, record=True, **how), how["lost"] or {}
    sent = [e for e in line.events if e.stream in COMMUNICATION]
    for e in line.events:
        if e.stream == "compute":
            cuts = {e.start, e.end, *(t for o in sent for t in (o.start, o.end))}
            done = 0.0
            for start, end in pairwise(sorted(t for t in cuts if e.start <= t <= e.end)):
                run_by = [o.operation.name for o in sent if o.start <= start and end <= o.end]
                done += (end - start) * (1 - max((lost.get(n, 0.0) for n in run_by), default=0.0))
            assert done == pytest.approx(times[e.operation.name], rel=1e-6, abs=1e-9)


@given(timed(), st.data())
def test_events_of_one_stream_do_not_overlap_and_sum_to_the_time_of_their_steps(case, data) -> None:
    how = data.draw(beside(case[0]))
    line = run_schedule(*case, record=True, **how)
    for stream in STREAMS:
        events = [e for e in line.events if e.stream == stream and e.end > e.start]
        for one, next_one in zip(events, events[1:], strict=False):
            assert one.end <= next_one.start * (1 + SAME)
    for name, seconds in line.by_name.items():
        assert sum(e.end - e.start for e in line.events if e.operation.name == name) == near(
            seconds
        )
    assert all(e.end <= line.total * (1 + SAME) for e in line.events)


@given(timed(), st.data())
def test_no_link_carries_more_in_an_interval_than_it_can(case, data) -> None:
    """Whatever begins and ends within an interval keeps no pool of links busy for longer.

    Both streams together; and nothing is faster than alone, or slower than after the other.
    """
    made, times = case
    wants = data.draw(shares(made))
    line = run_schedule(made, times, record=True, busy=wants)
    sent = [e for e in line.events if e.stream in COMMUNICATION and e.end > e.start]
    off = SAME * (1 + line.total)  # of sums of floats
    for start in {e.start for e in sent}:
        for end in {e.end for e in sent}:
            within = [e.operation.name for e in sent if start <= e.start and e.end <= end]
            wanted = [times[n] * (np.ones(2) if wants[n] is None else wants[n]) for n in within]
            assert (np.sum(wanted, axis=0) <= end - start + off).all() or not within
    for e in sent:
        others = [o for o in sent if o.stream != e.stream]
        beside = union([(max(o.start, e.start), max(e.start, min(o.end, e.end))) for o in others])
        least, most = times[e.operation.name], times[e.operation.name] + beside / 2
        assert least - off <= e.end - e.start <= most + off


@given(timed(), st.data())
def test_a_slower_step_never_makes_the_whole_faster(case, data) -> None:
    made, times = case
    run = partial(run_schedule, made, lost=data.draw(losses(made)))
    if times:
        slower = data.draw(st.sampled_from(sorted(times)))
        more = times | {slower: times[slower] + data.draw(SECONDS)}
        assert run(more).total >= run(times).total * (1 - SAME)


@given(timed(), st.data())
def test_kernels_and_loops_of_them_joined_take_as_long(case, data) -> None:
    """Where nothing is summed by name."""
    how = data.draw(beside(case[0]))
    quick, full = (run_schedule(*case, named=named, **how) for named in (False, True))
    for name in (*PARTS, "hidden_communication"):
        assert getattr(quick, name) == near(getattr(full, name))


@given(programs(), st.data())
def test_configurations_side_by_side_are_as_one_by_one(made, data) -> None:
    """Some steps differ between three configurations, others have one time for all."""
    times = {}
    for name in timed_names(made.schedule):
        differs = data.draw(st.booleans())
        three = st.lists(SECONDS, min_size=3, max_size=3).map(np.array)
        times[name] = data.draw(three if differs else SECONDS)
    how = data.draw(beside(made))
    run = partial(run_schedule, made, **how)
    together = run(times)
    for i in range(3):
        alone = run({name: at(seconds, i) for name, seconds in times.items()})
        for name in (*PARTS, "hidden_communication", "total"):
            assert at(getattr(together, name), i) == near(getattr(alone, name))
        for name, seconds in together.by_name.items():
            assert at(seconds, i) == near(alone.by_name.get(name, 0.0))


@given(programs(), st.data())
def test_configurations_may_differ_in_their_trips(made, data) -> None:
    """Each loop runs as often as it does alone, the last iterations of one in arrays of its own."""
    three_times = SECONDS | st.lists(SECONDS, min_size=3, max_size=3).map(np.array)
    times = {name: data.draw(three_times) for name in timed_names(made.schedule)}
    how = data.draw(beside(made))
    trips: dict[str, list[int]] = {}

    def varied(block: Block, i: int | None) -> Block:
        """The block with three numbers of trips in each loop, or with number `i` of them."""
        found: list[Operation] = []
        for step in block:
            if isinstance(step, Loop):
                three = st.lists(st.integers(0, 6), min_size=3, max_size=3)
                counts = trips.get(step.name) or trips.setdefault(step.name, data.draw(three))
                n = np.array(counts, float) if i is None else counts[i]
                step = replace(step, trips=n, body=varied(step.body, i))
            elif isinstance(step, Branch):
                step = replace(step, branches=tuple(varied(b, i) for b in step.branches))
            found.append(step)
        return tuple(found)

    with mock.patch.object(timeline, "FEW", data.draw(st.sampled_from([0, timeline.FEW]))):
        together = run_schedule(program(*varied(made.schedule, None)), times, **how)
    for i in range(3):
        own = {name: at(seconds, i) for name, seconds in times.items()}
        alone = run_schedule(program(*varied(made.schedule, i)), own, **how)
        for name in (*PARTS, "hidden_communication", "total"):
            assert at(getattr(together, name), i) == near(getattr(alone, name))
        for name, seconds in together.by_name.items():
            assert at(seconds, i) == near(alone.by_name.get(name, 0.0))


def at(value, i: int) -> float:
    return float(value[i]) if isinstance(value, np.ndarray) else value
