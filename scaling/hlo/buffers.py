"""The buffer of each value of a module: values that share memory get one buffer.

    passed on or updated in place (`aliasing`)   the operand's
    while       argument, body's and condition's parameter, body's result and result are one
    call        parameters are the arguments, the result is that of what is called
    conditional each branch's parameter is its argument, their results are one

Read from the same scheduled module that XLA assigned its buffers for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from scaling.hlo.aliasing import source_of
from scaling.hlo.parse import Computation, Instruction, Module, UnknownHlo
from scaling.hlo.shapes import Array, Path, leaves
from scaling.program.ir import Buffer, Category

Value = tuple[str, str, Path]  # computation, instruction, index in its shape


@dataclass
class Assignment:
    """Buffers, and the one in which each value lives."""

    buffers: list[Buffer] = field(default_factory=list)
    values: dict[Value, int] = field(default_factory=dict)

    def of(self, computation: Computation, instruction: Instruction) -> tuple[int, ...]:
        """Buffers of all arrays of a result, without repeats."""
        paths = (path for path, _ in leaves(instruction.shape))
        found = (self.values[computation.name, instruction.name, path] for path in paths)
        return tuple(dict.fromkeys(found))


def assign(module: Module) -> Assignment:
    """The buffers of a scheduled module."""
    names = _Names(module)
    names.visit(module.entry, None)
    for output, (number, index) in module.aliases.items():
        argument = module.entry.parameters[number].name
        if isinstance(module.entry.root.shape, Array) or output:
            names.join((module.entry.name, argument, index), names.root(module.entry, output))
    return names.assignment()


class _Names:
    """Union-find over values while the module is walked."""

    def __init__(self, module: Module):
        self.module = module
        self.parent: dict[Value, Value] = {}
        self.arrays: dict[Value, Array] = {}

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
        result = Assignment()
        for number, (first, values) in enumerate(members.items()):
            result.buffers.append(self._buffer(first, values, first in kept))
            result.values |= dict.fromkeys(values, number)
        return result

    def _buffer(self, first: Value, values: list[Value], persistent: bool) -> Buffer:
        """Constants lie in the executable, not in the planned memory; the category comes later."""
        where, name, _ = first
        constant = self.module.computations[where].instructions[name].opcode == "constant"
        largest = max(self.arrays[value].bytes for value in values)
        category: Category = "pinned_host" if self.arrays[first].is_on_host else "temporary"
        return Buffer(name, largest if persistent or not constant else 0, category, persistent)
