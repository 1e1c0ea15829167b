"""The category of each buffer, from the operations that write and read it.

argument                 parameters, optimiser state or input, by the argument's name
backward -> optimizer    gradients
forward -> backward      activations
gathered or exchanged    communication
else                     temporary
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from scaling.program.ir import (
    Block,
    Buffer,
    Category,
    Collective,
    Operation,
    Phase,
    Program,
    bodies,
)

WORD = re.compile(r"\w+")
# Words of an argument's path, as optax, Flax and jax's examples have them; the first kind wins.
OPTIMIZER_WORDS = ("optimizer", "optimizer_state", "opt_state", "opt", "mu", "nu", "momentum")
PARAMETER_WORDS = ("params", "parameters", "weights", "model")
INPUT_WORDS = ("tokens", "batch", "inputs", "targets", "labels", "images", "data", "x", "y")
MOVED = ("all-gather", "all-to-all", "permute", "broadcast")


@dataclass
class _Uses:
    """Phases in which a buffer is written and read, and whether a collective fills it."""

    written: set[Phase] = field(default_factory=set)
    read: set[Phase] = field(default_factory=set)
    moved: bool = False


def with_categories(program: Program, arguments: Mapping[int, str]) -> Program:
    """The program with a category for every buffer.

    `arguments`: buffer -> path of the argument that it holds, such as state.params.head.
    """
    uses: dict[int, _Uses] = {i: _Uses() for i in range(len(program.buffers))}
    for operation in _leaf_operations(program.schedule):
        for index in operation.reads:
            uses[index].read.add(operation.origin.phase)
        for index in operation.writes:
            uses[index].written.add(operation.origin.phase)
            uses[index].moved |= isinstance(operation, Collective) and operation.kind in MOVED
    buffers = enumerate(program.buffers)
    found = tuple(_with_category(buffer, uses[i], arguments.get(i)) for i, buffer in buffers)
    return replace(program, buffers=found)


def category_of_argument(path: str) -> Category:
    """The category of an argument, by the words of its path."""
    words = WORD.findall(path.lower())
    if any(word in OPTIMIZER_WORDS for word in words):
        return "optimizer_state"
    is_input = any(word in INPUT_WORDS for word in words)
    return "activations" if is_input and not set(words) & set(PARAMETER_WORDS) else "parameters"


def _with_category(buffer: Buffer, uses: _Uses, argument: str | None) -> Buffer:
    if buffer.category == "pinned_host":
        return buffer
    category = category_of_argument(argument) if argument is not None else _by_use(uses)
    return replace(buffer, category=category)


def _by_use(uses: _Uses) -> Category:
    backward: set[Phase] = {"backward", "remat"}
    if "backward" in uses.written and "optimizer" in uses.read:
        return "gradients"
    if "forward" in uses.written and uses.read & backward:
        return "activations"
    return "communication" if uses.moved else "temporary"


def _leaf_operations(block: Block) -> Iterable[Operation]:
    """Every operation but loops and branches: their bodies touch what they touch."""
    for operation in block:
        inner = list(bodies(operation))
        if not inner:
            yield operation
        for body in inner:
            yield from _leaf_operations(body)
