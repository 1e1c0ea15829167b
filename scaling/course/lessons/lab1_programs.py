"""Compiled programs and what they move beside what was asked: the tables of lab 1.

small steps             data/lab1_programs.json.gz (`python -m experiments.culprits`)
the trainer's own       stored programs (scaling.program.stored), against `analytic.table`
"""

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

import scaling as sc
from scaling.analytic.table import SMALLEST, expected_bytes
from scaling.api.pricing import price_program
from scaling.comparing.audit import audit
from scaling.comparing.discrepancy import PRODUCTS, Discrepancy
from scaling.course.language import t
from scaling.program.ir import Collective, collectives
from scaling.program.stored import StoredProgram, stored_programs
from scaling.simulate.step import Priced, running_kernels

FILE = resources.files("scaling.course.lessons") / "data" / "lab1_programs.json.gz"
ARRAY = re.compile(r"[a-z]\w*\[[\d,]*\]")  # bf16[8,2048] in a line of HLO
Row = dict[str, Any]


@dataclass(frozen=True)
class ProgramCase:
    """A small step: its code, and its program as written and as meant (HLO texts)."""

    name: str
    cause: str
    why: str
    code: str
    arguments: Mapping[str, str]  # name -> bfloat16[32_data, 2048]
    line: int | None  # of the code, from 1; None: no line is to blame
    lines: Mapping[str, int]  # instruction -> line that XLA names
    written: str
    meant: str  # "": as written

    @property
    def listing(self) -> str:
        """The code with its line numbers."""
        return "\n".join(f"{i}  {line}" for i, line in enumerate(self.code.splitlines(), 1))


@cache
def _document() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(gzip.decompress(FILE.read_bytes()))
    return found


def cases() -> tuple[ProgramCase, ...]:
    """Return all small steps."""
    said = lambda case: {key: t(case[key]) for key in ("name", "cause", "why")}
    return tuple(ProgramCase(**case | said(case)) for case in _document()["cases"])


def compiled_with() -> str:
    """Return date and versions of what compiled the small steps."""
    versions = ", ".join(f"{name} {version}" for name, version in _document()["versions"].items())
    return f"{_document()['date']}, {versions}"


def moved(case: ProgramCase, text: str) -> list[Row]:
    """Return a row for each collective of a small step's HLO text, the largest first."""
    where = _document()
    program = sc.predict_hlo(text, where["cluster"], mesh=where["mesh"]).pricing
    priced = price_program(program)
    rows = [
        {
            "collective": call.kind,
            "over": "+".join(call.axes),
            "array": ARRAY.findall(call.line.split("-start(")[0])[-1],
            "size (bytes)": float(np.max(call.bytes)),
            "takes (s)": float(np.max(priced.collectives[call.name].time)),
            "line": case.lines.get(call.name, ""),
        }
        for call, _ in collectives(program.program)
    ]
    return sorted(rows, key=lambda row: -row["size (bytes)"])


def size_of(rows: list[Row]) -> float:
    """Return the bytes of all rows."""
    return float(sum(row["size (bytes)"] for row in rows))


@dataclass(frozen=True)
class Audited:
    """A step of the trainer's own, held against the table of what it needs."""

    entry: StoredProgram
    priced: Priced
    expected: Mapping[tuple[str, str], float]  # (axes, kind) -> bytes
    discrepancy: Discrepancy | None  # the most expensive one

    @property
    def name(self) -> str:
        return f"{self.entry.run}, {self.entry.mesh}, batch {self.entry.set['batch.global_batch']}"

    @property
    def extra(self) -> float:
        return self.discrepancy.extra if self.discrepancy else 0.0

    @property
    def of_products(self) -> bool:
        """True if FLOPs are too many, not bytes."""
        return self.discrepancy is not None and self.discrepancy.kind == PRODUCTS

    def table(self) -> list[Row]:
        """Return bytes needed and found by axes and kind, of calls of 64 KiB on."""
        found: dict[tuple[str, str], float] = defaultdict(float)
        for call, calls in self._large():
            found["+".join(call.axes), call.kind] += float(np.max(call.bytes * calls))
        keys = dict.fromkeys([*self.expected, *found])
        rows = [
            {
                "over": axes,
                "what": kind,
                "needed (bytes)": self.expected.get((axes, kind), 0.0),
                "found (bytes)": found.get((axes, kind), 0.0),
            }
            for axes, kind in keys
        ]
        return sorted(rows, key=lambda row: -row["found (bytes)"])

    def products(self) -> tuple[float, float]:
        """Return FLOPs of matrix products, needed and found; equal where they agree within 1 %."""
        found = float(sum(np.max(k.flops) * np.max(n) for k, n in running_kernels(self.priced)))
        of_them = self.discrepancy if self.of_products else None
        return (of_them.expected if of_them else found), found

    def calls(self, axes: str, kind: str) -> list[Row]:
        """Return the calls behind a line of the table, the largest first."""
        found: Counter[tuple[str, str, float]] = Counter()  # part of the model, array, bytes
        for call, count in self._large():
            if ("+".join(call.axes), call.kind) == (axes, kind):
                part = f"{call.origin.phase} {call.origin.layer}".strip() or "-"
                array = ARRAY.findall(call.line.split("-start(")[0])[-1]
                found[part, array, float(np.max(call.bytes))] += int(np.max(count))
        names = ("part of the model", "array", "a call (bytes)")
        rows = [dict(zip(names, key, strict=True)) | {"calls": n} for key, n in found.items()]
        return sorted(rows, key=lambda row: -row["a call (bytes)"] * row["calls"])

    def _large(self) -> Iterator[tuple[Collective, Any]]:
        every = collectives(self.priced.program)
        return ((c, n) for c, n in every if c.axes and np.max(c.bytes) >= SMALLEST)


def audited(run: str, mesh: str, batch: int, seq_len: int | None = None) -> Audited:
    """Return the stored step of these, audited; KeyError if none is stored."""
    for entry in stored_programs():
        here = entry.set.get("batch.global_batch"), entry.set.get("batch.seq_len")
        if (entry.run, entry.mesh, *here) == (run, mesh, batch, seq_len):
            break
    else:
        raise KeyError(f"no step of {run} on {mesh} is stored")
    pricing = sc.predict(**entry.arguments).pricing
    resolved = pricing.run
    assert resolved is not None and resolved.mesh is not None
    priced = price_program(pricing)
    found = audit(priced, resolved, resolved.mesh)
    expected = expected_bytes(resolved, resolved.mesh)
    return Audited(entry, priced, expected, found[0] if found else None)
