"""The collectives of a step as rows of a table, and everything about the chosen one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.collectives.explain import LevelTime, level_times
from scaling.course.explorer.source_lines import source_line
from scaling.course.language import t
from scaling.hlo.shapes import Array, arrays, parse_shape
from scaling.meshes.units import format_rate, format_size, format_time, three_digits
from scaling.program.ir import Collective, Number, Origin
from scaling.report.formulas import collective_formula
from scaling.simulate.prediction import CollectiveLine, axis_name
from scaling.simulate.step import Priced, device_groups
from scaling.simulate.summary import collective_calls

MEANING = {  # of the bytes of a call, as nccl-tests counts them
    "all-reduce": "what every member has before and after",
    "all-gather": "all that every member has afterwards",
    "reduce-scatter": "what every member has before",
    "all-to-all": "what one member sends to all",
    "permute": "what one member sends to the next",
    "broadcast": "what every member has afterwards",
}
PAIR = 2  # members of a row of a permute that goes from one device to another
FEW = 4  # arrays, and origins, that are named


@dataclass(frozen=True)
class CollectiveRow:
    """All identical calls of one collective."""

    line: CollectiveLine
    calls: list[tuple[Collective, Number]]  # each with its number in a step

    @property
    def first(self) -> Collective:
        return self.calls[0][0]

    def to_dict(self) -> dict[str, Any]:
        """Return the row as a page shows it."""
        line = self.line
        return {
            "id": self.first.name,
            "name": f"{line.kind}[{line.axis}]",
            "dtype": line.dtype,
            "bytes": float(line.bytes),
            "size": format_size(float(line.bytes)),
            "calls": three_digits(line.count),
            "time": format_time(line.time),
            "exposed": format_time(line.exposed) if line.exposed > 0 else "-",
            "level": line.level,
            "algorithm": line.algorithm,
        }


def rows_of(priced: Priced) -> list[CollectiveRow]:
    """Return the rows, the longest first."""
    return [CollectiveRow(*found) for found in collective_calls(priced)]


def chosen_row(rows: Sequence[CollectiveRow], name: str) -> CollectiveRow | None:
    """Return the row with a call of that name, else the first; None: there are none."""
    named = (row for row in rows for step, _ in row.calls if step.name == name)
    return next(named, rows[0] if rows else None)


def details(row: CollectiveRow, priced: Priced) -> dict[str, Any]:
    """Return what a page shows of the chosen collective."""
    step = row.first
    ranks = groups_of(row, priced).shape[1]
    size = format_size(float(step.bytes))
    return {
        "id": step.name,
        "title": t(
            "{kind} over {axis}, {size} a call", kind=step.kind, axis=axis_name(step), size=size
        ),
        "groups": members_words(row, priced),
        "bytes": f"{size}: {t(MEANING[step.kind])}",
        "arrays": array_words(step, ranks),
        "formula": collective_formula(step, priced),
        "levels": [
            {
                "level": level.level,
                "bytes": format_size(level.bytes),
                "bandwidth": format_rate(level.bandwidth),
                "time": format_time(level.time),
            }
            for level in levels_of(row, priced)
        ],
        "origins": _origins(row, priced),
    }


def groups_of(row: CollectiveRow, priced: Priced) -> np.ndarray:
    """Return the device ids of the chosen call, int [groups, members]."""
    return device_groups(row.first, priced.program, priced.cluster)


def members_words(row: CollectiveRow, priced: Priced) -> str:
    """Return `8 groups of 64 devices`; of a permute between pairs `384 pairs of devices`."""
    groups = groups_of(row, priced)
    if row.first.kind == "permute" and groups.shape[1] == PAIR:
        one, many = t("{n:,} pair of devices"), t("{n:,} pairs of devices")
    else:
        one, many = t("{n:,} group of {each:,} devices"), t("{n:,} groups of {each:,} devices")
    return (one if len(groups) == 1 else many).format(n=len(groups), each=groups.shape[1])


def talkers(row: CollectiveRow, priced: Priced) -> dict[int, int]:
    """Return a number for each device: equal where devices hear of one another.

    That of its group; the pairs of a permute are joined to the chains that they make.
    """
    numbers: dict[int, int] = {}
    chains: dict[int, list[int]] = {}
    for number, group in enumerate(groups_of(row, priced).tolist()):
        met = {numbers[device] for device in group if device in numbers}
        chains[number] = [*group, *(device for other in met for device in chains.pop(other))]
        numbers |= dict.fromkeys(chains[number], number)
    order = {number: i for i, number in enumerate(sorted(chains, key=lambda n: min(chains[n])))}
    return {device: order[number] for device, number in numbers.items()}


def levels_of(row: CollectiveRow, priced: Priced) -> tuple[LevelTime, ...]:
    """Return every network level that one call loads, from the chips outwards."""
    return level_times(priced.collectives[row.first.name].chosen, float(row.first.bytes))


def level_words(level: LevelTime) -> str:
    """`117 MB over 400 GB/s: 293 us`."""
    size, rate = format_size(level.bytes), format_rate(level.bandwidth)
    return t("{size} over {rate}: {time}", size=size, rate=rate, time=format_time(level.time))


def _origins(row: CollectiveRow, priced: Priced) -> list[dict[str, Any]]:
    """Where in the model the calls come from, those with the most calls first."""
    found: dict[Origin, float] = defaultdict(float)
    for step, calls in row.calls:
        found[step.origin] += float(calls)
    shown = []
    for origin, calls in sorted(found.items(), key=lambda item: -item[1])[:FEW]:
        line = source_line(origin, priced.program.mesh.get("stage", 1) > 1)
        shown.append(
            {
                "where": " ".join(filter(None, (origin.phase, origin.layer))) or t("not known"),
                "calls": f"{calls:,.0f}",
                "line": t("{file}, line {n}", file=line.file, n=line.line) if line else "",
                "text": line.text if line else "",
            }
        )
    return shown


def array_words(step: Collective, members: int) -> str:
    """Return the bytes of a call from its arrays: `32 x 4096 x 2 bytes (bf16) = 262 kB`; or "".

    From the line of the compiled program, whose result may hold the operands too.
    """
    try:
        found = arrays(parse_shape(step.line.partition(" = ")[2])[0])
    except ValueError:
        return ""  # a long line is cut off
    halves = (found, found[len(found) // 2 :])
    for some, times in ((half, n) for half in halves for n in (1, members)):
        if times * sum(array.bytes for array in some) == step.bytes:
            shared = f" x {members:,} members" if times > 1 else ""
            sums = " + ".join(_product(array) for array in some[:FEW])
            more = f" + {len(some) - FEW} more" if len(some) > FEW else ""
            both = f"({sums}{more})" if shared and len(some) > 1 else f"{sums}{more}"
            return f"{both}{shared} = {format_size(float(step.bytes))}"
    return ""


def _product(array: Array) -> str:
    each = array.bytes / array.elements if array.elements else 0
    dims = " x ".join(map(str, array.dims)) or "1"
    return f"{dims} x {each:g} bytes ({array.dtype})"
