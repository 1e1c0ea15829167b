"""Rows that a gather reads, and a scatter adds to, at places that only the run tells.

    result = gather(table, indices)             table   [ 0 | 1 | 2 | 3 | 4 | 5 ]
                                                rows      2   0   2   2           four accesses

The table's rows are counted once, as long as the accesses last (`scaling.hlo.fusions`): that much
moves however the indices lie. What moves more is kept apart, because the indices decide it:

    again    rows that are taken several times, and the rest of the sectors that short rows lie in:
             nothing if all of it is found in a cache, all if nothing is
    spread   the bytes of the table, for a cache holds its own size of it
    clashes  updates that wait for one another if all of them add to one row

GPUs of NVIDIA move sectors of 32 bytes between memory and L2 cache (NVIDIA CUPTI documentation,
CUpti_ActivityGlobalAccess3: "32 bytes transactions"). Rows may straddle two sectors: not counted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from scaling.hlo.elementwise import ARITHMETIC, TRANSCENDENTAL
from scaling.hlo.parse import Instruction
from scaling.hlo.shapes import BITS, Array, arrays

SECTOR = 32  # bytes
# Clocks from one update of an address to the next. An addition is made by the L2 cache, one per
# clock (NVIDIA, Kepler GK110 whitepaper, 2012, "Atomic Operations"). Another function is a loop of
# compare and swap, each a trip to memory (CUDA C Programming Guide 8: 400 to 800 clocks).
ADDING, SWAPPING = 1.0, 800.0
SAME_PLACES = ARITHMETIC | TRANSCENDENTAL | {"bitcast", "copy", "reshape", "transpose"}
SET = "set"


@dataclass(frozen=True)
class RandomAccess:
    """What a kernel moves beyond touching each place once; see the top of this file."""

    again: float = 0.0
    spread: float = 0.0
    clashes: float = 0.0  # clocks

    def __add__(self, other: "RandomAccess") -> "RandomAccess":
        spread = max(self.spread, other.spread)
        return RandomAccess(self.again + other.again, spread, self.clashes + other.clashes)


@dataclass(frozen=True)
class Rows:
    """The rows of a table that a gather or scatter reaches."""

    accesses: float  # number of rows
    elements: int  # of one row
    run: int  # of them, those that lie beside each other
    is_sorted: bool  # equal rows follow each other

    def beyond(self, stored: Array) -> RandomAccess:
        """Bytes of all accesses, by whole sectors, beyond each row once; `stored`: in memory.

        Equal rows that follow each other are found in the cache.
        """
        width = BITS[stored.dtype] / 8
        once = min(float(stored.bytes), self.accesses * self.elements * width)
        runs = self.accesses * self.elements / self.run
        accessed = runs * SECTOR * math.ceil(self.run * width / SECTOR)
        again = (min(accessed, stored.bytes) if self.is_sorted else accessed) - once
        return RandomAccess(again, stored.bytes) if again > 0 else RandomAccess()


def random_access(instruction: Instruction, share: float, is_fused: bool) -> RandomAccess:
    """The random access of an instruction, of whose result this share is needed.

    It stands in a fusion, or is a kernel of its own.
    """
    found: list[RandomAccess] = []
    if instruction.opcode == "gather":
        table, made = arrays(instruction.operands[0].shape)[0], arrays(instruction.shape)[0]
        window = instruction.numbers("slice_sizes")
        rows = _rows(instruction, table, window, made.elements * share)
        found = [rows.beyond(array) for array in _sources(instruction, is_fused)]
    elif instruction.opcode == "scatter":
        table, update = (arrays(instruction.operands[i].shape)[0] for i in (0, -1))
        names = ("inserted_window_dims", "input_batching_dims")
        single = {dim for name in names for dim in instruction.numbers(name)}
        sizes = iter([update.dims[dim] for dim in instruction.numbers("update_window_dims")])
        window = tuple(1 if d in single else next(sizes, 1) for d in range(len(table.dims)))
        rows = _rows(instruction, table, window, update.elements)
        function = _function(instruction)
        ways = 1 if function == SET else 2  # written, and read before
        found = ways * [rows.beyond(array) for array in arrays(instruction.shape)]
        if function != SET and instruction.attribute("unique_indices") != "true":
            clashes = rows.accesses * (ADDING if function == "add" else SWAPPING)
            found.append(RandomAccess(clashes=clashes))
    return sum(found, RandomAccess())


def replaces(scatter: Instruction) -> bool:
    """Return True if a scatter replaces what was there, and so does not read it."""
    return _function(scatter) == SET


def _function(scatter: Instruction) -> str:
    """The operation that a scatter joins old and new by, or SET: `to_apply` returns the new."""
    (function,) = scatter.called("to_apply")
    root = function.root
    if root.opcode != "parameter":
        return root.opcode
    return SET if 2 * root.parameter_number >= len(function.parameters) else root.opcode


def _rows(instruction: Instruction, table: Array, window: tuple[int, ...], moved: float) -> Rows:
    """As many rows of this window as have `moved` elements."""
    elements, run = max(1, math.prod(window)), 1
    for dim in table.layout or reversed(range(len(window))):  # from the fastest
        run *= max(1, window[dim])
        if window[dim] < table.dims[dim]:
            break
    is_sorted = instruction.attribute("indices_are_sorted") == "true"
    return Rows(moved / elements, elements, run, is_sorted)


def _sources(gather: Instruction, is_fused: bool) -> Iterator[Array]:
    """The arrays in the device's memory that rows come from.

    A fusion may compute the rows, element by element, from those of its parameters.
    """
    todo, seen = [gather.operands[0]], {gather.operands[0]}
    while todo:
        source = todo.pop()
        if source.opcode == "parameter" or not is_fused:
            yield from (array for array in arrays(source.shape) if not array.is_on_host)
        elif source.opcode in SAME_PLACES:
            count = arrays(source.shape)[0].elements
            same = [o for o in source.operands if arrays(o.shape)[0].elements == count]
            todo += [operand for operand in same if operand not in seen]
            seen.update(same)
