"""Temporaries that live in the memory of results, which is taken from the start of a program.

    time ->   0 ................ 40 ......... 90
    result    [free              ][its value ...     a result that is not donated
    donated   [argument ][free   ][its value ...     its argument is needed no longer
    temporary       [10 .. 35]                       takes no memory of its own

XLA gives every result memory of its own, the largest first, and then puts into it each temporary,
the largest first, that fits and whose life lies in a gap; it takes the smallest that will do. Among
equal ones `post_order` decides. The others it packs into a heap (openxla/xla, xla/
service/buffer_assignment.cc: AssignSingleHloBuffer, MaybeAssignBuffer). Lives meet at one
instruction only where the one may be written over the other.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from scaling.hlo.parse import NAME, Computation, Instruction, Module
from scaling.hlo.shapes import Path

Value = tuple[Instruction, Path]  # and the index in its shape
START, END = -1, 2**62  # before the first instruction, after the last
CONTROL = "control-predecessors"


@dataclass(frozen=True)
class LiveRange:
    """From which instruction to which some memory is in use, by their places in the schedule."""

    first: int
    last: int


@dataclass(frozen=True)
class FreeSpan:
    """A time in which the memory of a result is free, and what uses it before and after."""

    first: int
    last: int
    bytes: int
    before: Value
    after: Value


def schedule_places(module: Module) -> dict[Instruction, LiveRange]:
    """The first and the last time that each instruction stands in the schedule of all that runs.

    A loop stands after its body; a computation that is called twice stands there twice.
    """
    places: dict[Instruction, LiveRange] = {}
    _number(module.entry, 0, places)
    return places


def _number(computation: Computation, at: int, places: dict[Instruction, LiveRange]) -> int:
    for instruction in computation:
        for block in instruction.blocks:
            at = _number(block, at, places)
        before = places.get(instruction)
        places[instruction] = LiveRange(before.first if before else at, at)
        at += 1
    return at


def life_of(value: Value, places: Mapping[Instruction, LiveRange]) -> LiveRange:
    """From the instruction that makes a value to the last that takes it."""
    instruction, path = value
    made, takers = places[instruction], instruction.computation.takers
    users = [u for part in {(), path[:1]} for u in takers.get((instruction.name, part), ())]
    return LiveRange(made.first, max([made.last, *(places[user].last for user in users)]))


def gaps(lives: Iterable[LiveRange], group: Value, size: int) -> list[FreeSpan]:
    """The times between the lives of the values of one result, and before them."""
    found, busy = [], START
    for life in sorted(lives, key=lambda life: life.first):
        if life.first > busy:
            found.append(FreeSpan(busy, life.first, size, group, group))
        busy = max(busy, life.last)
    return found


def placed(
    free: Sequence[FreeSpan],
    temporaries: Sequence[tuple[Value, LiveRange, int]],
    may_follow: Callable[[Value, Value, int], bool],
) -> set[Value]:
    """The temporaries (name, life, bytes) that fit into the gaps of results.

    Args:
        free: smaller results first, of equal ones the last in post-order.
        temporaries: larger ones first, of equal ones the first in post-order.
        may_follow: (one, next, place): if the instruction there may write `next` over `one`.
    """
    spaces, found = _FreeSpans(free), set()
    for name, life, size in temporaries:
        for number in spaces.around(life, size):
            gap = spaces.gaps[number]
            follows = gap.first < life.first or may_follow(gap.before, name, life.first)
            precedes = life.last < gap.last or may_follow(name, gap.after, life.last)
            if follows and precedes:
                spaces.fill(number, name, life)
                found.add(name)
                break
    return found


class _FreeSpans:
    """The gaps that are left, with their numbers as arrays: there may be thousands."""

    def __init__(self, free: Sequence[FreeSpan]):
        self.gaps = list(free)
        self.numbers = np.array([[g.first, g.last, g.bytes] for g in free], dtype=np.int64)

    def around(self, life: LiveRange, size: int) -> list[int]:
        """The gaps that hold a life and a size."""
        if not self.gaps:
            return []
        first, last, room = self.numbers.T
        return np.flatnonzero((first <= life.first) & (life.last <= last) & (size <= room)).tolist()

    def fill(self, number: int, name: Value, life: LiveRange) -> None:
        """Leave of a gap what lies before and after a life."""
        gap = self.gaps[number]
        rest = [
            replace(gap, last=life.first, after=name),
            replace(gap, first=life.last, before=name),
        ]
        self.gaps[number : number + 1] = rest
        rows = [[g.first, g.last, g.bytes] for g in rest]
        self.numbers = np.concatenate([self.numbers[:number], rows, self.numbers[number + 1 :]])


def post_order(module: Module) -> dict[Instruction, int]:
    """Position of each instruction of all computations that the schedule runs.

    In this order XLA gives out the memory of results that are equally large. Operands stand before
    what takes them, the first operand first, from the root down; a computation stands before those
    that it runs, and of these the last first (openxla/xla, xla/hlo/ir/hlo_computation.cc:
    MakeInstructionPostOrder; xla/service/buffer_assignment.cc: AssignBuffersForComputations).
    """
    order: list[Computation] = []
    _callees_first(module.entry, order, set())
    places = (i for computation in reversed(order) for i in _in_post_order(computation))
    return {instruction: number for number, instruction in enumerate(places)}


def _callees_first(
    computation: Computation, order: list[Computation], seen: set[Computation]
) -> None:
    seen.add(computation)
    for instruction in computation:
        for block in instruction.blocks:
            if block not in seen:
                _callees_first(block, order, seen)
    order.append(computation)


def _in_post_order(computation: Computation) -> list[Instruction]:
    """The instructions, operands first."""
    ordered: dict[Instruction, None] = {}
    entered: set[Instruction] = set()
    for root in computation:
        waiting = [] if root.users else [root]
        while waiting:
            instruction = waiting[-1]
            if instruction in entered:
                ordered.setdefault(waiting.pop())
                continue
            entered.add(instruction)
            names = NAME.findall(instruction.attribute(CONTROL) or "")
            before = (computation.instructions[name] for name in names)
            todo = (*reversed(instruction.operands), *before)
            waiting += [other for other in todo if other not in ordered]
    return list(ordered)
