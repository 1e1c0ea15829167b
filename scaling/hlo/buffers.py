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
    Key,
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

    def of(self, computation: Computation, instruction: Instruction) -> tuple[int, ...]:
        """Buffers of all arrays of a result, without repeats."""
        paths = (path for path, _ in leaves(instruction.shape))
        found = (self.values[computation.name, instruction.name, path] for path in paths)
        return tuple(dict.fromkeys(found))

    def written(self, computation: Computation, instruction: Instruction) -> tuple[int, ...]:
        """Likewise, without the operands that an asynchronous start has in its result."""
        paths = (path for path, _ in leaves(instruction.shape))
        own = (path for path in paths if not is_operand(instruction, path, computation))
        found = (self.values[computation.name, instruction.name, path] for path in own)
        return tuple(dict.fromkeys(found))

    def replaced(
        self, computation: Computation, instruction: Instruction, module: Module
    ) -> tuple[int, ...]:
        """Buffers in the heap whose place a result may take when nobody needs them any more.

        One value was made in each, by the operand itself, and one will be made in that of the
        result (openxla/xla, xla/service/heap_simulator/heap_simulator.cc: RunComputation).
        """
        if not self.single.intersection(self.of(computation, instruction)):
            return ()
        operands = computation.operands(instruction)
        found = may_write_over(instruction, computation, module)
        made = [operands[i] for i, _ in found if makes(operands[i], (), computation)]
        buffers = (self.values[computation.name, operand.name, ()] for operand in made)
        return tuple(dict.fromkeys(n for n in buffers if n in self.single))


def assign(module: Module) -> Assignment:
    """The buffers of a scheduled module."""
    names = _SharedValues(module)
    names.visit(module.entry, None)
    for output, (number, index) in module.aliases.items():
        argument = module.entry.parameters[number].name
        if isinstance(module.entry.root.shape, Array) or output:
            names.join((module.entry.name, argument, index), names.root(module.entry, output))
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

    def root(self, computation: Computation, path: Path) -> Value:
        return (computation.name, computation.root.name, path)

    def visit(self, computation: Computation, arguments: Sequence[Value] | None) -> None:
        """Name every value; `arguments` are the values that the parameters stand for.

        A computation that is called twice has its values once.
        """
        for instruction in computation:
            for path, array in leaves(instruction.shape):
                value = (computation.name, instruction.name, path)
                self.arrays[value] = array
                self.parent.setdefault(value, value)
                source = self._source(computation, instruction, path, arguments)
                if source is not None and source not in self.parent:
                    raise UnknownHlo(f"what it passes on: {instruction.excerpt}")
                if source is not None:
                    self.join(source, value)
                is_name = source is not None and not makes(instruction, path, computation)
                self.origin[value] = self.origin[source] if source and is_name else value
                self.last_names[self.origin[value]] = value
            self._enter(computation, instruction)

    def _source(
        self,
        computation: Computation,
        instruction: Instruction,
        path: Path,
        arguments: Sequence[Value] | None,
    ) -> Value | None:
        """The value whose memory this one is; None: memory of its own."""
        if instruction.opcode == "parameter":
            if arguments is None:
                return None
            where, name, prefix = arguments[instruction.parameter_number]
            return (where, name, (*prefix, *path))
        found = source_of(instruction, path, computation, self.module)
        if found is None:
            return None
        number, index = found
        return (computation.name, instruction.operands[number], index)

    def _enter(self, computation: Computation, instruction: Instruction) -> None:
        """Walk the computations that an instruction runs, and join what they pass on."""
        here: list[Value] = [(computation.name, name, ()) for name in instruction.operands]
        result = (computation.name, instruction.name)
        if instruction.opcode == "conditional":
            for argument, name in zip(here[1:], instruction.blocks, strict=True):
                self.visit(self.module.computations[name], [argument])
                self._join_root(result, instruction, name)
        elif instruction.blocks:  # of a loop body and condition, of a call one
            for name in instruction.blocks:
                self.visit(self.module.computations[name], here)
            self._join_root(result, instruction, instruction.blocks[0])

    def _join_root(self, result: tuple[str, str], instruction: Instruction, called: str) -> None:
        for path, _ in leaves(instruction.shape):
            self.join((*result, path), self.root(self.module.computations[called], path))

    def assignment(self) -> Assignment:
        """Number the buffers; the largest array that lives in a buffer is its size."""
        entry = self.module.entry
        kept = {self.find((entry.name, entry.root.name, p)) for p, _ in leaves(entry.root.shape)}
        for parameter in entry.parameters:
            kept |= {self.find((entry.name, parameter.name, p)) for p, _ in leaves(parameter.shape)}
        members: dict[Value, list[Value]] = {}
        for value in self.parent:
            members.setdefault(self.find(value), []).append(value)
        inside = self._inside_results(members, kept)
        result = Assignment()
        for number, (first, values) in enumerate(members.items()):
            category: Category = "pinned_host" if self.arrays[first].is_on_host else "temporary"
            # What lies in the memory of a result is counted there; constants are one buffer below.
            is_counted = first in kept or not (first in inside or self._is_constant(first))
            size = self._size(values) if is_counted else 0
            result.buffers.append(Buffer(first[1], size, category, first in kept))
            result.values |= dict.fromkeys(values, number)
            if sum(map(self._is_made, values)) == 1:
                result.single.add(number)
        constants = sum(
            self._size(values)
            for first, values in members.items()
            if first not in kept and self._is_constant(first)
        )
        if constants:
            result.buffers.append(Buffer(CONSTANTS, constants, "temporary", True))
        return result

    def _is_constant(self, value: Value) -> bool:
        where, name, _ = value
        return self.module.computations[where].instructions[name].opcode == "constant"

    def _is_made(self, value: Value) -> bool:
        where, name, path = value
        computation = self.module.computations[where]
        return makes(computation.instructions[name], path, computation)

    def _size(self, values: list[Value]) -> int:
        return max(self.arrays[value].bytes for value in values)

    def _inside_results(self, members: dict[Value, list[Value]], kept: set[Value]) -> set[Value]:
        """Groups of values that take no memory of their own: they lie in that of results."""
        entry, places = self.module.entry, schedule_places(self.module)
        out = {self.find((entry.name, entry.root.name, p)) for p, _ in leaves(entry.root.shape)}
        lives = {first: self._lives(values, places) for first, values in members.items()}
        sizes = {first: self._size(values) for first, values in members.items()}
        begins = {first: min(life.first for life in found) for first, found in lives.items()}
        order = post_order(self.module)
        turns = {first: min(order[v[:2]] for v in values) for first, values in members.items()}
        results = sorted(out, key=lambda first: (sizes[first], -turns[first]))
        free = [g for first in results for g in gaps(lives[first], first, sizes[first])]
        others = [
            (first, LiveRange(begins[first], max(life.last for life in lives[first])), n)
            for first, n in sorted(sizes.items(), key=lambda each: (-each[1], turns[each[0]]))
            if first not in kept
            and n
            and not self._is_constant(first)
            and not self.arrays[first].is_on_host
        ]
        over = self._writes_over(places)
        return placed(free, others, lambda one, then, at: (one, then) in over.get(at, ()))

    def _lives(self, values: list[Value], places: Mapping[Key, LiveRange]) -> list[LiveRange]:
        """When each of some values is needed: arguments from the start, results to the end."""
        found, entry = [], self.module.entry
        for where, name, path in values:
            computation = self.module.computations[where]
            life = life_of(computation, computation.instructions[name], path, places)
            if computation is entry and computation.instructions[name].opcode == "parameter":
                life = LiveRange(START, life.last)
            if computation is entry and name == entry.root.name:
                life = LiveRange(life.first, END)
            found.append(life)
        return found

    def _writes_over(self, places: Mapping[Key, LiveRange]) -> dict[int, set[tuple[Value, Value]]]:
        """Place of an instruction -> the pairs (old, new) of groups that it may write over.

        It must take the old value by the last of its names (xla/hlo/utils/hlo_live_range.cc:
        GetLastPosition).
        """
        found: dict[int, set[tuple[Value, Value]]] = {}
        last = set(self.last_names.values())
        for where, name in places:
            computation = self.module.computations[where]
            instruction = computation.instructions[name]
            for number, path in may_write_over(instruction, computation, self.module):
                old, new = (where, instruction.operands[number], ()), (where, name, path)
                if old in last and self.arrays[old].bytes == self.arrays[new].bytes:
                    pair = self.find(old), self.find(new)
                    found.setdefault(places[where, name].first, set()).add(pair)
        return found
