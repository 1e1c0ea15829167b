"""How much a module runs once every call is written out, before any of it is read.

    a: 1 instruction    b: calls a twice, 4 in all    c: calls b twice, 10 in all    ...

A text of a few lines can stand for 2^60 instructions; what XLA compiles calls nothing twice but
small functions of reductions. The limits are chosen by this project; an instruction takes 0.1 to
0.4 ms and 5 KB (an AMD EPYC with much else to do, 2026-11).
"""

from scaling.hlo.parse import BLOCKS, Computation, Module
from scaling.meshes.errors import InputError

MOST_INSTRUCTIONS = 100_000  # twice those of the largest program of others that was read here
MOST_DEPTH = 60  # computations inside of one another; a scan of a scan in a branch has five
CALLING = ("calls", *BLOCKS)


def check_extent(module: Module) -> int:
    """The instructions that the entry of a module runs, all that it calls included, as often.

    Raises:
        InputError: more than MOST_INSTRUCTIONS, or calls deeper than MOST_DEPTH, perhaps in a ring.
    """
    return _extent(module.entry, {}, 1)[0]


def _extent(
    computation: Computation, known: dict[Computation, tuple[int, int]], depth: int
) -> tuple[int, int]:
    """Instructions of a computation with all that it calls, and how deep these are nested."""
    if computation in known:
        return known[computation]
    name, count, height = computation.name, len(computation.instructions), 1
    called = [inner for i in computation for key in CALLING for inner in i.called(key)]
    for inner in called if depth < MOST_DEPTH else ():
        more, below = _extent(inner, known, depth + 1)
        count, height = count + more, max(height, below + 1)
    if height > MOST_DEPTH or (called and depth == MOST_DEPTH):
        raise InputError(f"computations call each other more than {MOST_DEPTH} deep, as {name}")
    if count > MOST_INSTRUCTIONS:
        raise InputError(
            f"{name} runs {count:,} instructions, each counted as often as it is called; "
            f"up to {MOST_INSTRUCTIONS:,} are read"
        )
    known[computation] = count, height
    return count, height
