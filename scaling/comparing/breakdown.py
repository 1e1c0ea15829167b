"""Where a priced step spends its time and memory: by class of operation, by line of code, by what
fills the memory at its peak. `prediction.save` writes it, so that a later step can be held against
it: names of instructions change from compile to compile, lines and classes do not.

    {"operations": [{"class": "matmul bf16", "line": "step.py:7", "code": "x @ w", ...}],
     "buffers": [{"category": "activations", "made": "", "line": "step.py:7", "bytes": 6.7e7, ...}]}
"""

import linecache
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from scaling.comparing.classes import class_of
from scaling.hlo.source_lines import short
from scaling.program.ir import CONSTANTS, Kernel, Operation, Program, operations
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.step import Priced, running

Row = dict[str, Any]
OPERATION_SUMS = ("count", "calls", "time", "flops", "bytes")  # operations, and of all their calls:
# runs per step, s, FLOPs of products, bytes of the device's memory or sent
BUFFER_SUMS = ("count", "bytes")
ARGUMENT, RESULT = "argument", "result"
DIGITS = 9  # of a saved figure


def breakdown(priced: Priced) -> dict[str, list[Row]]:
    """Rows of operations and of the buffers at the peak, one for each class and line of code."""
    return {
        "operations": _summed(_operations(priced), OPERATION_SUMS),
        "buffers": _summed(_buffers(priced), BUFFER_SUMS),
    }


def _operations(priced: Priced) -> Iterator[Row]:
    for step, calls in running(priced):
        if isinstance(step, Kernel):
            flops, moved = step.flops, priced.kernels[step.name].moved
            dtype = step.dtype if np.any(flops) else ""
        else:
            flops, moved, dtype = 0.0, step.bytes * step.part, step.dtype
        figures = (1, calls, priced.timeline.by_name[step.name], flops * calls, moved * calls)
        summed = zip(OPERATION_SUMS, (float(np.max(n)) for n in figures), strict=True)
        named = {"class": f"{class_of(step)} {dtype}".strip()}
        yield named | _where(step, priced.program) | dict(summed)


def _buffers(priced: Priced) -> Iterator[Row]:
    """The buffers alive at the peak; a result that takes an argument's place is the argument."""
    program = priced.program
    writers: dict[int, Operation] = {}
    for step, _ in operations(program.schedule):
        for index in step.writes:
            writers.setdefault(index, step)
    for index in priced.memory.buffers:
        buffer, writer = program.buffers[index], writers.get(index)
        size = float(np.max(buffer.bytes))
        if not size or buffer.category not in ON_DEVICE:
            continue
        made, where = "", {"line": "", "code": ""}
        if program.source == "analytic" or buffer.name == CONSTANTS:
            made = buffer.name
        elif buffer.persistent and not (writer and writer.name == buffer.name):
            made = ARGUMENT
        elif writer:
            made = RESULT if buffer.persistent else ""
            where = _where(writer, program)
        yield {"category": buffer.category, "made": made, **where, "count": 1, "bytes": size}


def _where(step: Operation, program: Program) -> Row:
    """The line of code without its folder, and its text, which stays when the line moves; the part
    of the model where the line is not known."""
    path, _, number = (place := program.places.get(step.name, "")).rpartition(":")
    if not path:
        return {"line": f"{step.origin.phase} {step.origin.layer}".strip(), "code": ""}
    linecache.checkcache(path)  # it may have been edited since this process read it
    return {"line": short(place), "code": linecache.getline(path, int(number)).strip()}


def _summed(rows: Iterable[Row], sums: tuple[str, ...]) -> list[Row]:
    """The rows with the sums of those that are alike in all else, in the order of their first."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(value for name, value in row.items() if name not in sums)
        kept = found.setdefault(key, row | dict.fromkeys(sums, 0.0))
        for name in sums:
            kept[name] += row[name]
    return list(found.values())


def rounded(value: Any) -> Any:
    """A document whose floats have DIGITS."""
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
