"""The buffer of each value of a module: values that share memory get one buffer.

    passed on or updated in place (`aliasing`)   the operand's
    while       argument, body's and condition's parameter, body's result and result are one
    call        parameters are the arguments, the result is that of what is called
    conditional each branch's parameter is its argument, their results are one

Read from the same scheduled module that XLA assigned its buffers for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scaling.hlo.aliasing import is_operand, makes, may_write_over, source_of
from scaling.hlo.parse import Computation, Instruction, Module, UnknownHlo
from scaling.hlo.result_reuse import (
    END,
    START,
    LiveRange,
    Value,
    gaps,
    life_of,
    placed,
    post_order,
    schedule_places,
)
from scaling.hlo.shapes import Array, Path, leaves
from scaling.program.ir import CONSTANTS, Buffer, Category


@dataclass
class Assignment:
    """Buffers, and the one in which each value lives."""

    buffers: list[Buffer] = field(default_factory=list)
    values: dict[Value, int] = field(default_factory=dict)
    single: set[int] = field(default_factory=set)  # buffers in which one value is ever made

    def of(self, instruction: Instruction) -> tuple[int, ...]:
        """Buffers of all arrays of a result, without repeats."""
        values = (self.values[instruction, path] for path, _ in leaves(instruction.shape))
        return tuple(dict.fromkeys(values))

    def written(self, instruction: Instruction) -> tuple[int, ...]:
        """Likewise, without the operands that an asynchronous start has in its result."""
        paths = (p for p, _ in leaves(instruction.shape) if not is_operand(instruction, p))
        return tuple(dict.fromkeys(self.values[instruction, path] for path in paths))

    def replaced(self, instruction: Instruction) -> tuple[int, ...]:
        """Buffers in the heap whose place a result may take when nobody needs them any more.

        One value was made in each, by the operand itself, and one will be made in that of the
        result (openxla/xla, xla/service/heap_simulator/heap_simulator.cc: RunComputation).
        """
        if not self.single.intersection(self.of(instruction)):
            return ()
        operands = (instruction.operands[i] for i, _ in may_write_over(instruction))
        buffers = (self.values[operand, ()] for operand in operands if makes(operand, ()))
        return tuple(dict.fromkeys(n for n in buffers if n in self.single))


def assign(module: Module) -> Assignment:
    """The buffers of a scheduled module."""
    names = _SharedValues(module)
    names.visit(module.entry, None)
    for output, (number, index) in module.aliases.items():
        root = module.entry.root
        if isinstance(root.shape, Array) or output:
            names.join((module.entry.parameters[number], index), (root, output))
    return names.assignment()


class _SharedValues:
    """Union-find over values while the module is walked."""

    def __init__(self, module: Module):
        self.module = module
        self.parent: dict[Value, Value] = {}
        self.arrays: dict[Value, Array] = {}
        self.origin: dict[Value, Value] = {}  # a name of a value -> the first one of it
        self.last_names: dict[Value, Value] = {}  # the first name of a value -> its last one

    def find(self, value: Value) -> Value:
        root = value
        while self.parent[root] != root:
            root = self.parent[root]
        self.parent[value] = root
        return root

    def join(self, first: Value, second: Value) -> None:
        self.parent[self.find(second)] = self.find(first)

    def visit(self, computation: Computation, arguments: Sequence[Value] | None) -> None:
        """Name every value; `arguments` are the values that the parameters stand for.

        A computation that is called twice has its values once.
        """
        for instruction in computation:
            for path, array in leaves(instruction.shape):
                value = instruction, path
                self.arrays[value] = array
                self.parent.setdefault(value, value)
                source = self._source(instruction, path, arguments)
                if source is not None and source not in self.parent:
                    raise UnknownHlo(f"what it passes on: {instruction.excerpt}")
                if source is not None:
                    self.join(source, value)
                is_name = source is not None and not makes(instruction, path)
                self.origin[value] = self.origin[source] if source and is_name else value
                self.last_names[self.origin[value]] = value
            self._enter(instruction)

    def _source(
        self, instruction: Instruction, path: Path, arguments: Sequence[Value] | None
    ) -> Value | None:
        """The value whose memory this one is; None: memory of its own."""
        if instruction.opcode == "parameter":
            if arguments is None:
                return None
            passed, prefix = arguments[instruction.parameter_number]
            return passed, (*prefix, *path)
        source = source_of(instruction, path)
        return None if source is None else (instruction.operands[source[0]], source[1])

    def _enter(self, instruction: Instruction) -> None:
        """Walk the computations that an instruction runs, and join what they pass on."""
        arguments: list[Value] = [(operand, ()) for operand in instruction.operands]
        blocks = instruction.blocks
        if instruction.opcode == "conditional":
            for argument, block in zip(arguments[1:], blocks, strict=True):
                self.visit(block, [argument])
        else:  # a loop's body and condition, or what is called
            for block in blocks:
                self.visit(block, arguments)
        for block in blocks if instruction.opcode == "conditional" else blocks[:1]:
            for path, _ in leaves(instruction.shape):
                self.join((instruction, path), (block.root, path))

    def assignment(self) -> Assignment:
        """Number the buffers; the largest array that lives in a buffer is its size."""
        entry = self.module.entry
        ends = (entry.root, *entry.parameters)
        kept = {self.find((end, path)) for end in ends for path, _ in leaves(end.shape)}
        members: dict[Value, list[Value]] = {}
        for value in self.parent:
            members.setdefault(self.find(value), []).append(value)
        inside = self._inside_results(members, kept)
        result = Assignment()
        for number, (first, values) in enumerate(members.items()):
            category: Category = "pinned_host" if self.arrays[first].is_on_host else "temporary"
            # What lies in the memory of a result is counted there; constants are one buffer below.
            is_counted = first in kept or not (first in inside or _is_constant(first))
            size = self._size(values) if is_counted else 0
            result.buffers.append(Buffer(first[0].name, size, category, first in kept))
            result.values |= dict.fromkeys(values, number)
            if sum(makes(*value) for value in values) == 1:
                result.single.add(number)
        constants = sum(
            self._size(values)
            for first, values in members.items()
            if first not in kept and _is_constant(first)
        )
        if constants:
            result.buffers.append(Buffer(CONSTANTS, constants, "temporary", True))
        return result

    def _size(self, values: list[Value]) -> int:
        return max(self.arrays[value].bytes for value in values)

    def _inside_results(self, members: dict[Value, list[Value]], kept: set[Value]) -> set[Value]:
        """Groups of values that take no memory of their own: they lie in that of results."""
        entry, places = self.module.entry, schedule_places(self.module)
        root = ((self.find((entry.root, p)), a.is_on_host) for p, a in leaves(entry.root.shape))
        out = {first for first, is_on_host in root if not is_on_host}
        lives = {first: self._lives(values, places) for first, values in members.items()}
        sizes = {first: self._size(values) for first, values in members.items()}
        begins = {first: min(life.first for life in found) for first, found in lives.items()}
        order = post_order(self.module)
        turns = {first: min(order[i] for i, _ in values) for first, values in members.items()}
        results = sorted(out, key=lambda first: (sizes[first], -turns[first]))
        free = [g for first in results for g in gaps(lives[first], first, sizes[first])]
        others = [
            (first, LiveRange(begins[first], max(life.last for life in lives[first])), n)
            for first, n in sorted(sizes.items(), key=lambda each: (-each[1], turns[each[0]]))
            if first not in kept
            and n
            and not _is_constant(first)
            and not self.arrays[first].is_on_host
        ]
        over = self._writes_over(places)
        return placed(free, others, lambda one, then, at: (one, then) in over.get(at, ()))

    def _lives(
        self, values: list[Value], places: Mapping[Instruction, LiveRange]
    ) -> list[LiveRange]:
        """When each of some values is needed: arguments from the start, results to the end."""
        lives, entry = [], self.module.entry
        for value in values:
            instruction, life = value[0], life_of(value, places)
            if instruction.computation is entry and instruction.opcode == "parameter":
                life = LiveRange(START, life.last)
            if instruction is entry.root:
                life = LiveRange(life.first, END)
            lives.append(life)
        return lives

    def _writes_over(
        self, places: Mapping[Instruction, LiveRange]
    ) -> dict[int, set[tuple[Value, Value]]]:
        """Place of an instruction -> the pairs (old, new) of groups that it may write over.

        It must take the old value by the last of its names (xla/hlo/utils/hlo_live_range.cc:
        GetLastPosition).
        """
        pairs: dict[int, set[tuple[Value, Value]]] = {}
        last = set(self.last_names.values())
        for instruction, place in places.items():
            for number, path in may_write_over(instruction):
                old, new = (instruction.operands[number], ()), (instruction, path)
                if old in last and self.arrays[old].bytes == self.arrays[new].bytes:
                    pairs.setdefault(place.first, set()).add((self.find(old), self.find(new)))
        return pairs


def _is_constant(value: Value) -> bool:
    return value[0].opcode == "constant"
