"""The category of each buffer, from the operations that write and read it.

argument                     parameters, optimiser state or input, by the argument's name
backward -> optimizer        gradients, with what they are summed from, array by array: over
                             microbatches, over devices, in another order or format
forward, remat -> backward   activations
gathered or exchanged        communication
else                         temporary
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from scaling.program.ir import (
    Block,
    Buffer,
    Category,
    Collective,
    Kernel,
    Operation,
    Phase,
    Program,
    bodies,
)

WORD = re.compile(r"\w+")
# Words of an argument's path, as optax, Flax and jax's examples have them; the first kind wins.
OPTIMIZER_WORDS = "optimizer optimizer_state opt_state opt mu nu momentum ema".split()
PARAMETER_WORDS = ("params", "parameters", "weights", "model")
INPUT_WORDS = ("tokens", "batch", "inputs", "targets", "labels", "images", "data", "x", "y")
MOVED = ("all-gather", "all-to-all", "permute", "broadcast")
BACKWARD: tuple[Phase, ...] = ("backward", "remat")


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
    operations = list(_leaf_operations(program.schedule))
    for operation in operations:
        for index in operation.reads:
            uses[index].read.add(operation.origin.phase)
        for index in operation.writes:
            uses[index].written.add(operation.origin.phase)
            uses[index].moved |= isinstance(operation, Collective) and operation.kind in MOVED
    gradients = _gradients(program.buffers, operations)

    def category(index: int, buffer: Buffer) -> Category:
        if buffer.category == "pinned_host":
            return buffer.category
        if index in arguments:
            return category_of_argument(arguments[index])
        if index in gradients:
            return "gradients"
        use = uses[index]
        again = "remat" in use.written and "backward" in use.read
        if again or ("forward" in use.written and use.read.intersection(BACKWARD)):
            return "activations"
        return "communication" if use.moved else "temporary"

    found = (replace(b, category=category(i, b)) for i, b in enumerate(program.buffers))
    return replace(program, buffers=tuple(found))


def category_of_argument(path: str) -> Category:
    """The category of an argument, by the words of its path."""
    words = WORD.findall(path.lower())
    if any(word in OPTIMIZER_WORDS for word in words):
        return "optimizer_state"
    is_input = any(word in INPUT_WORDS for word in words)
    return "activations" if is_input and not set(words) & set(PARAMETER_WORDS) else "parameters"


def _gradients(buffers: Sequence[Buffer], operations: Sequence[Operation]) -> set[int]:
    """Buffers on a way from the backward pass to the optimizer.

    The way goes through operations that keep the size of an array, or change it with its format,
    and that multiply no matrices.
    """
    made = {i for step in operations if step.origin.phase in BACKWARD for i in step.writes}
    used = {i for step in operations if step.origin.phase == "optimizer" for i in step.reads}
    links = [
        (source, target)
        for step in operations
        if step.origin.phase in ("", *BACKWARD)
        and not (isinstance(step, Kernel) and bool(np.any(step.flops)))
        for target in step.writes
        for source in step.reads
        if _are_alike(buffers[source], buffers[target])
    ]
    return _reached(made, links) & _reached(used, [(b, a) for a, b in links])


def _are_alike(first: Buffer, second: Buffer) -> bool:
    """True for as many numbers in one format, or in formats of 16 and 32 bits."""
    small, large = sorted((float(np.max(first.bytes)), float(np.max(second.bytes))))
    return small > 0 and large in (small, 2 * small)


def _reached(start: set[int], links: Sequence[tuple[int, int]]) -> set[int]:
    """The buffers of `start`, and those that links (from, to) lead to from them."""
    targets: dict[int, list[int]] = {}
    for source, target in links:
        targets.setdefault(source, []).append(target)
    found, waiting = set(start), list(start)
    for index in waiting:
        fresh = [target for target in targets.get(index, ()) if target not in found]
        found.update(fresh)
        waiting += fresh
    return found


def _leaf_operations(block: Block) -> Iterable[Operation]:
    """Every operation but loops and branches: their bodies touch what they touch."""
    for operation in block:
        inner = list(bodies(operation))
        if not inner:
            yield operation
        for body in inner:
            yield from _leaf_operations(body)
