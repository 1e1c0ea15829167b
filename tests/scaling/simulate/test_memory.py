"""The fullest moment of a step, held against liveness in the same step, its loops written out."""

from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.program.ir import CATEGORIES, Block, Branch, Buffer, Kernel, Loop, Operation, Program
from scaling.simulate.memory import ON_DEVICE, memory_over_time, memory_use
from scaling.simulate.timeline import run_schedule


def program(buffers: list[Buffer], *schedule: Operation) -> Program:
    return Program("p", "compiled", {"fsdp": 2}, schedule, tuple(buffers))


def sized(*sizes: int) -> list[Buffer]:
    return [Buffer(f"b{i}", size, "temporary") for i, size in enumerate(sizes)]


def peak(buffers: list[Buffer], *schedule: Operation) -> float:
    return memory_use(program(buffers, *schedule)).peak


# By hand


def test_a_buffer_lives_from_its_first_write_to_its_last_use() -> None:
    chain = [Kernel("a", writes=(0,)), Kernel("b", reads=(0,), writes=(1,))]
    assert peak(sized(3, 5, 7), *chain, Kernel("c", reads=(1,), writes=(2,))) == 5 + 7
    assert peak(sized(3, 5, 7), *chain, Kernel("c", reads=(0, 1), writes=(2,))) == 3 + 5 + 7


def test_arguments_and_results_are_there_all_the_time() -> None:
    buffers = [Buffer("w", 100, "parameters", persistent=True), *sized(3)]
    use = memory_use(program(buffers, Kernel("a", writes=(1,))))
    assert (use.peak, use.by_category["parameters"], use.by_category["temporary"]) == (103, 100, 3)
    assert use.at == "a"
    assert memory_use(program(buffers)).at == "arguments"


def test_a_dying_buffer_gives_its_place_to_one_of_its_size() -> None:
    make, end = Kernel("a", writes=(0,)), Kernel("z", reads=(1,))
    over = Kernel("b", reads=(0,), writes=(1,), over=(0,))
    assert peak(sized(5, 5), make, over, end) == 5
    assert peak(sized(5, 4), make, over, end) == 9
    assert peak(sized(5, 5), make, over, Kernel("z", reads=(0, 1))) == 10  # not dying
    twice = Kernel("b", reads=(0,), writes=(1, 2), over=(0,))
    assert peak(sized(5, 5, 5), make, twice, Kernel("z", reads=(1, 2))) == 10  # and only once


def test_what_a_loop_carries_needs_no_memory_until_it_is_made_anew() -> None:
    """The carried 0 is used by a and made by c: b, which needs 1 and 2, runs without it."""
    a = Kernel("a", reads=(0,), writes=(1,))
    b = Kernel("b", reads=(1,), writes=(2,))
    c = Kernel("c", reads=(2,), writes=(0,))
    start, end = Kernel("s", writes=(0,)), Kernel("e", reads=(0,))
    loop = lambda *body: Loop("l", reads=(0,), writes=(0,), body=body, trips=3)
    assert peak(sized(10, 5, 7), start, loop(a, b, c), end) == 17
    beside = Kernel("b", reads=(0, 1), writes=(2,))  # 0 is in use until c
    assert peak(sized(10, 5, 7), start, loop(a, beside, c), end) == 22
    in_place = Kernel("c", reads=(0, 2), writes=(0,))
    assert peak(sized(10, 5, 7), start, loop(a, b, in_place), end) == 22
    kept = [Buffer("b0", 10, "temporary", persistent=True), *sized(5, 7)]
    assert peak(kept, start, loop(a, b, c), end) == 22  # a result has memory of its own
    unused = Kernel("a", writes=(1,))
    assert peak(sized(10, 5, 7), start, loop(unused, b, c), end) == 17


def test_memory_over_time_follows_the_iterations_of_a_loop() -> None:
    buffers = [Buffer("w", 100, "parameters", True), Buffer("x", 7, "activations")]
    body = (Kernel("a", writes=(1,)), Kernel("b", reads=(1,)), Kernel("c", reads=(0,)))
    made = program(buffers, Loop("l", body=body, trips=2))
    line = run_schedule(made, {"a": 1.0, "b": 2.0, "c": 4.0}, record=True)
    times, sizes = memory_over_time(memory_use(made), line.events)
    assert times.tolist() == [0.0, 3.0, 7.0, 10.0]
    assert sizes[:, ON_DEVICE.index("activations")].tolist() == [7, 0, 7, 0]
    assert sizes[:, ON_DEVICE.index("parameters")].tolist() == [100] * 4


# Random programs

SIZES = st.integers(0, 4) | st.integers(0, 10**9)


@dataclass
class _Making:
    """Buffers of one random program, as they are made, and the number of its steps."""

    buffers: list[Buffer] = field(default_factory=list)
    steps: int = 0

    def name(self) -> str:
        self.steps += 1
        return f"s{self.steps}"

    def new(self, size: int, owner: str, lasting: bool = False) -> int:
        self.buffers.append(Buffer(f"b{len(self.buffers)}", size, owner, lasting))
        return len(self.buffers) - 1


@st.composite
def blocks(draw, making: _Making, around: tuple[int, ...], depth: int = 2) -> Block:
    """Steps that read what is there, and write new buffers or once more those that are there."""
    block: list[Operation] = []
    here: list[int] = []

    def some(of: list[int] | tuple[int, ...]) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.sampled_from(of), max_size=3, unique=True))) if of else ()

    for _ in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["kernel"] * 3 + ["loop", "branch"] * (depth > 0)))
        reads, name = some((*around, *here)), making.name()
        if kind == "kernel":
            new = [making.new(draw(SIZES), draw(st.sampled_from(CATEGORIES)))]
            over = some([i for i in here if i in reads])[:1]
            block.append(
                Kernel(name, reads=reads, writes=(*new, *some((*around, *here))), over=over)
            )
            here += new
        elif kind == "loop":
            body = draw(blocks(making, reads, depth - 1))
            block.append(Loop(name, reads=reads, writes=reads, body=body, trips=2))
        else:
            inner = tuple(draw(blocks(making, reads, depth - 1)) for _ in range(2))
            block.append(Branch(name, reads=reads, branches=inner))
    return tuple(block)


@st.composite
def programs(draw) -> Program:
    making = _Making()
    owners = st.sampled_from(CATEGORIES)
    kept = [making.new(draw(SIZES), draw(owners), True) for _ in range(draw(st.integers(0, 2)))]
    schedule = draw(blocks(making, tuple(kept)))
    return program(making.buffers, *schedule)


Touch = tuple[set, set, set]  # instances of buffers that a step reads, writes, may write over


def written_out(block: Block, number: dict[int, str], iteration: str) -> list[list[Touch]]:
    """Every way to run a block, loops written out: each iteration has its own instances.

    A loop or branch touches what it reads before and after its body, so that this lives throughout.
    """
    inside = {i for step in block for i in step.writes} - number.keys()
    number = number | {i: f"{i}{iteration}" for i in inside}

    def instances(step: Operation) -> Touch:
        return tuple({number[i] for i in each} for each in (step.reads, step.writes, step.over))

    ways: list[list[list[Touch]]] = []
    for at, step in enumerate(block):
        here, place = instances(step), f"{iteration}/{at}"
        if isinstance(step, Loop):
            turns = [written_out(step.body, number, f"{place}.{n}") for n in range(step.trips)]
            ways.append([[here, *sum(turn, []), here] for turn in product(*turns)])
        elif isinstance(step, Branch):
            either = [written_out(b, number, f"{place}.{n}") for n, b in enumerate(step.branches)]
            ways.append([[here, *way, here] for each in either for way in each])
        else:
            ways.append([[here]])
    return [sum(way, []) for way in product(*ways)]


def liveness_peak(way: list[Touch], buffers: tuple[Buffer, ...], on_host: bool) -> int:
    """Most bytes at any step, from the first and last place where each instance is touched."""

    def buffer(instance: str) -> Buffer:
        return buffers[int(instance.split("/")[0])]

    places: dict[str, list[int]] = {}
    for at, (reads, writes, _) in enumerate(way):
        for instance in reads | writes:
            places.setdefault(instance, []).append(at)
    always = sum(
        b.bytes for b in buffers if b.persistent and (b.category == "pinned_host") == on_host
    )
    most = always
    for at, (_, writes, over) in enumerate(way):
        alive = {i for i, uses in places.items() if uses[0] <= at <= uses[-1]}
        for old in over:
            new = [i for i in writes if places[i][0] == at and buffer(i).bytes == buffer(old).bytes]
            if new and places[old][-1] == at and places[old][0] < at:
                alive.remove(old)
        chosen = [buffer(i) for i in alive]
        wanted = [
            b for b in chosen if not b.persistent and (b.category == "pinned_host") == on_host
        ]
        most = max(most, always + sum(b.bytes for b in wanted))
    return most


@given(programs())
def test_the_walk_is_liveness_with_every_loop_written_out(made: Program) -> None:
    ways = written_out(
        made.schedule, {i: f"{i}" for i, b in enumerate(made.buffers) if b.persistent}, ""
    )
    use = memory_use(made)
    assert use.peak == max(liveness_peak(way, made.buffers, False) for way in ways)
    assert use.pinned_host == max(liveness_peak(way, made.buffers, True) for way in ways)


@given(programs())
def test_owners_sum_to_the_peak_which_holds_all_that_lasts(made: Program) -> None:
    use = memory_use(made)
    assert list(use.by_category) == list(ON_DEVICE)
    assert sum(use.by_category.values()) == use.peak
    assert all(n >= 0 for n in use.by_category.values())
    for owner in ON_DEVICE:
        kept = sum(b.bytes for b in made.buffers if b.persistent and b.category == owner)
        assert use.by_category[owner] >= kept
    assert use.peak <= sum(b.bytes for b in made.buffers if b.category != "pinned_host")
    there = [made.buffers[i] for i in use.buffers]
    assert use.peak == sum(b.bytes for b in there if b.category != "pinned_host")
    moments = [sum(sizes) - sizes[CATEGORIES.index("pinned_host")] for sizes in use.during.values()]
    assert max(moments) == use.peak


@given(programs(), st.lists(st.integers(1, 5), min_size=2, max_size=2))
def test_configurations_side_by_side_are_as_one_by_one(made: Program, factors: list[int]) -> None:
    def with_bytes(factor) -> Program:
        scaled = [Buffer(b.name, b.bytes * factor, b.category, b.persistent) for b in made.buffers]
        return program(scaled, *made.schedule)

    together = memory_use(with_bytes(np.array(factors)))
    for i, factor in enumerate(factors):
        alone = memory_use(with_bytes(factor))
        assert np.broadcast_to(together.peak, 2)[i] == alone.peak
        for owner, size in alone.by_category.items():
            assert np.broadcast_to(together.by_category[owner], 2)[i] == size


def test_configurations_may_be_fullest_at_different_steps() -> None:
    first = Buffer("a", np.array([8, 1]), "activations")
    second = Buffer("b", np.array([1, 9]), "gradients")
    use = memory_use(program([first, second], Kernel("a", writes=(0,)), Kernel("b", writes=(1,))))
    assert use.peak == pytest.approx([8, 9])
    assert use.by_category["activations"] == pytest.approx([8, 0])
    assert use.by_category["gradients"] == pytest.approx([0, 9])
