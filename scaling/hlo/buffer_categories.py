"""What each buffer is for, told by who writes it and who reads it.

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
    """The program with an owner for every buffer.

    Args:
        program: with buffers whose owner is "temporary" or "pinned_host".
        arguments: buffer -> path of the argument that it holds, such as state.params.head.
    """
    uses: dict[int, _Uses] = {i: _Uses() for i in range(len(program.buffers))}
    for step in _all_steps(program.schedule):
        for index in step.reads:
            uses[index].read.add(step.origin.phase)
        for index in step.writes:
            uses[index].written.add(step.origin.phase)
            uses[index].moved |= isinstance(step, Collective) and step.kind in MOVED
    buffers = [
        _with_category(buffer, uses[i], arguments.get(i))
        for i, buffer in enumerate(program.buffers)
    ]
    return replace(program, buffers=tuple(buffers))


def category_of_argument(path: str) -> Category:
    """Whose memory an argument is, by the words of its path."""
    words = WORD.findall(path.lower())
    if any(word in OPTIMIZER_WORDS for word in words):
        return "optimizer_state"
    is_input = any(word in INPUT_WORDS for word in words)
    return "activations" if is_input and not set(words) & set(PARAMETER_WORDS) else "parameters"


def _with_category(buffer: Buffer, uses: _Uses, argument: str | None) -> Buffer:
    if buffer.category == "pinned_host":
        return buffer
    owner = category_of_argument(argument) if argument is not None else _by_use(uses)
    return replace(buffer, category=owner)


def _by_use(uses: _Uses) -> Category:
    backward: set[Phase] = {"backward", "remat"}
    if "backward" in uses.written and "optimizer" in uses.read:
        return "gradients"
    if "forward" in uses.written and uses.read & backward:
        return "activations"
    return "communication" if uses.moved else "temporary"


def _all_steps(block: Block) -> Iterable[Operation]:
    """Every step, those that are loops or branches left out: what they touch, their bodies do."""
    for step in block:
        inner = list(bodies(step))
        if not inner:
            yield step
        for body in inner:
            yield from _all_steps(body)
