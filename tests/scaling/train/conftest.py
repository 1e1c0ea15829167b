"""Reads the collectives of a compiled program from its text, to compare with hand-derived tables.

An instruction such as

    %s = (bf16[2,8], bf16[4,8]) all-gather-start(%x), replica_groups=[4,2]<=[8], ...

inside a loop of four iterations is four all-gathers that make 64 bytes whole on each device, over
the mesh axes whose groups of devices are {0,1}, {2,3}, {4,5}, {6,7}.
"""

import itertools
import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from scaling.meshes.shape import MeshShape

BYTES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "f32": 4, "s32": 4, "u32": 4}
KINDS = (
    "all-gather",
    "reduce-scatter",
    "all-reduce",
    "all-to-all",
    "ragged-all-to-all",
    "collective-permute",
    "collective-broadcast",
)

COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$")
CALLED = re.compile(r"(?:body|condition|calls|to_apply)=%?([\w.\-]+)")
TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
INSTRUCTION = re.compile(rf"= (.+?) ({'|'.join(KINDS)})(-start)?\(")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
GROUPS = re.compile(
    r"replica_groups=(\{\{.*?\}\}|\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?"
    r"|mesh\[.*?\](?:, device_ids=\(.*?\)\))? \{.*?\})"
)


class Collective(NamedTuple):
    """One instruction, perhaps for several tensors."""

    kind: str
    axes: tuple[str, ...] | None  # sorted; None: the groups are those of no mesh axes
    dtype: str
    size: int  # bytes of the whole tensors (gathered, not yet scattered, reduced) on one device
    calls: int  # per step
    loops: int  # nested around it, over layers or microbatches
    operands: tuple[str, ...]
    line: str


def groups_in(text: str) -> np.ndarray:
    """Device ids [groups, members] from any of XLA's spellings of `replica_groups`."""
    numbers = lambda part: [int(n) for n in re.findall(r"\d+", part)]
    if text.startswith("{{"):
        return np.array([numbers(group) for group in text.split("},{")])
    if text.startswith("["):
        shape, _, iota = text.partition("<=")
        return _iota(iota).reshape(numbers(shape))
    sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", text)}
    names = re.findall(r"'(\w+)'", text[text.rindex("{") :])
    given = re.search(r"device_ids=\((.*)\) \{", text)
    ids = _iota(given[1]) if given else np.arange(math.prod(sizes.values()))
    over = [list(sizes).index(name) for name in names]
    rest = [i for i in range(len(sizes)) if i not in over]
    members = math.prod(sizes[name] for name in names)
    return ids.reshape(list(sizes.values())).transpose(rest + over).reshape(-1, members)


def axes_of(groups: np.ndarray, mesh: MeshShape) -> tuple[str, ...] | None:
    """The mesh axes along which these groups talk; None if there are none such."""
    found = {frozenset(group) for group in groups.tolist()}
    axes = [axis for axis, size in mesh.sizes.items() if size > 1]
    for count in range(len(axes) + 1):
        for some in itertools.combinations(axes, count):
            if found == {frozenset(group) for group in mesh.groups(some).tolist()}:
                return tuple(sorted(some))
    return None


def read_collectives(text: str, mesh: MeshShape) -> list[Collective]:
    """Every collective of an optimised HLO module, sync or async."""
    lines = _by_computation(text)
    callers = _callers(lines)
    found = []
    for name, body in lines.items():
        for line in body:
            if match := INSTRUCTION.search(line):
                calls, loops = _repeats(name, callers)
                dtype, size = _whole(*match.groups(), line)
                groups = GROUPS.search(line)
                axes = axes_of(groups_in(groups[1]), mesh) if groups else None
                operands = tuple(re.findall(r"%([\w.\-]+)", line[match.end() :].partition(")")[0]))
                what = (match[2], axes, dtype, size, calls, loops, operands, line.strip())
                found.append(Collective(*what))
    return found


def _iota(text: str) -> np.ndarray:
    """`[4,2]T(1,0)`: 0..7 laid out as 4 x 2, transposed, flat again."""
    shape, _, order = text.partition("T")
    sizes = [int(n) for n in re.findall(r"\d+", shape)]
    ids = np.arange(math.prod(sizes)).reshape(sizes)
    return ids.transpose([int(n) for n in re.findall(r"\d+", order)] or None).reshape(-1)


def _by_computation(text: str) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        if head := COMPUTATION.match(line):
            lines[head[1]] = body = []
        elif lines:
            body.append(line)
    return lines


def _callers(lines: dict[str, list[str]]) -> dict[str, list[tuple[str, int, bool]]]:
    """Computation -> (caller, calls from there, whether as a loop's body)."""
    callers: dict[str, list[tuple[str, int, bool]]] = {name: [] for name in lines}
    for name, body in lines.items():
        for line in body:
            trips = TRIPS.search(line)
            for called in CALLED.findall(line):
                callers[called].append((name, int(trips[1]) if trips else 1, " while(" in line))
    return callers


def _repeats(name: str, callers: dict[str, list[tuple[str, int, bool]]]) -> tuple[int, int]:
    """How often a computation runs per step, and how many loops are around it."""
    if not callers[name]:
        return 1, 0
    outer = [(_repeats(caller, callers), calls, loop) for caller, calls, loop in callers[name]]
    return (
        sum(times * calls for (times, _), calls, _ in outer),
        max(loops + loop for (_, loops), _, loop in outer),
    )


def _whole(result: str, kind: str, start: str | None, line: str) -> tuple[str, int]:
    """Number format and bytes of the whole tensors of one instruction."""
    arrays = ARRAY.findall(result)
    sizes = [BYTES[t] * math.prod(int(n) for n in dims.split(",") if n) for t, dims in arrays]
    half = len(sizes) // 2
    pairs = ("all-gather", "all-to-all")  # when started: (operands, results)
    if start and (kind in pairs or (kind == "all-reduce" and result.startswith("(("))):
        sizes = sizes[half:]  # jax 0.10's all-reduce-start has results only
    elif kind == "reduce-scatter":
        sizes = (
            sizes[:half]
            if start
            else [n * groups_in(GROUPS.search(line)[1]).shape[1] for n in sizes]
        )
    return arrays[0][0], sum(sizes)


@pytest.fixture(scope="session")
def collectives() -> Callable[[str, MeshShape], list[Collective]]:
    """`collectives(text, mesh)`: those of an optimised HLO module."""
    return read_collectives
