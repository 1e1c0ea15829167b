"""Published measurements of collectives: one row per (machine, collective, size), with its source.

    collectives.csv    what others measured; bytes as nccl-tests counts them; columns in README.md
    split.json         which of the rows may be fitted; the others only score
    systems.csv        further machines; kernels/intranode_pcie.csv one more
    systems_split.json which of those machines may be fitted, whole; the others only score

A *series* is the times of one collective on one machine in groups of one size, over message sizes.
A machine that was measured in several group sizes (a table of XLA, say) is one machine.
"""

import csv
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, cast

from scaling.meshes.errors import check_keys
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind

FOLDER = Path(__file__).parent
TABLE, SPLIT = FOLDER / "collectives.csv", FOLDER / "split.json"
SYSTEMS, SYSTEMS_SPLIT = FOLDER / "systems.csv", FOLDER / "systems_split.json"
PCIE, PCIE_CLUSTER = FOLDER / "kernels" / "intranode_pcie.csv", "rtx-pro-6000-8"
SYSTEMS_RULE = "sha256 of the machine: first byte < 128 is fitted"
RULE = "sha256 of machine|kind|ranks|nodes|groups|algorithm|bytes: first byte < 128 is fitted"
Part = Literal["fit", "left"]


@dataclass(frozen=True)
class Case:
    """One published measurement."""

    machine: str
    kind: CollectiveKind
    bytes: float  # as nccl-tests counts them
    time: float  # s
    cluster: str  # of the catalogue
    nodes: int
    ranks: int  # in a group
    ranks_per_node: int
    groups: int  # equal groups at once
    algorithm: str  # "auto", or what the measurement forced
    overrides: tuple[tuple[str, float], ...]
    source: str

    @property
    def key(self) -> str:
        """The key by which the split is drawn."""
        words = (self.machine, self.kind, self.ranks, self.nodes, self.groups, self.algorithm)
        return "|".join(map(str, (*words, int(self.bytes))))

    @property
    def series(self) -> tuple[str, str, int, int, int, str]:
        """All sizes of one collective in groups of one size on one machine."""
        return (self.machine, self.kind, self.nodes, self.ranks, self.groups, self.algorithm)


@lru_cache(maxsize=1)
def cases() -> tuple[Case, ...]:
    """All rows of the table."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return tuple(map(_case, csv.DictReader(file)))


@lru_cache(maxsize=1)
def system_cases() -> tuple[Case, ...]:
    """All rows of the further machines."""
    with SYSTEMS.open(newline="", encoding="utf-8") as file:
        rows = tuple(map(_case, csv.DictReader(file)))
    with PCIE.open(newline="", encoding="utf-8") as file:
        lines = (line for line in file if not line.startswith("#"))
        return rows + tuple(map(_pcie_case, csv.DictReader(lines)))


@lru_cache(maxsize=1)
def system_split() -> dict[Part, frozenset[str]]:
    """The further machines of both parts, as written down before anything was fitted."""
    document = json.loads(SYSTEMS_SPLIT.read_text(encoding="utf-8"))
    return {"fit": frozenset(document["fit"]), "left": frozenset(document["left"])}


def part_of_system(machine: str) -> Part:
    """Part of a further machine by the rule."""
    return "fit" if hashlib.sha256(machine.encode()).digest()[0] < 128 else "left"


def part_of(case: Case) -> Part:
    """Part of a case by the rule."""
    first = hashlib.sha256(case.key.encode()).digest()[0]
    return "fit" if first < 128 else "left"


@lru_cache(maxsize=1)
def split() -> dict[Part, frozenset[str]]:
    """Keys of the cases of both parts, as written down before anything was fitted."""
    document = json.loads(SPLIT.read_text(encoding="utf-8"))
    return {"fit": frozenset(document["fit"]), "left": frozenset(document["left"])}


def cases_of(part: Part) -> list[Case]:
    """The cases of one part."""
    return [case for case in cases() if case.key in split()[part]]


def write_split(rows: Sequence[Case], path: Path = SPLIT) -> None:
    """Draw both parts by the rule and write them to `path`."""
    keys: dict[str, list[str]] = {"fit": [], "left": []}
    for case in rows:
        keys[part_of(case)].append(case.key)
    path.write_text(json.dumps({"rule": RULE, **keys}, indent=1) + "\n", encoding="utf-8")


def write_system_split(path: Path = SYSTEMS_SPLIT) -> None:
    """Draw the parts of the further machines by the rule and write them to `path`."""
    machines: dict[str, list[str]] = {"fit": [], "left": []}
    for machine in dict.fromkeys(case.machine for case in system_cases()):
        machines[part_of_system(machine)].append(machine)
    document = {"rule": SYSTEMS_RULE, **machines}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _case(row: dict[str, str]) -> Case:
    overrides = (pair.split("=") for pair in row["overrides"].split(";") if pair)
    return Case(
        machine=row["machine"],
        kind=_kind(row["kind"]),
        bytes=float(row["bytes"]),
        time=float(row["time_us"]) * 1e-6,
        cluster=row["cluster"],
        nodes=int(row["nodes"]),
        ranks=int(row["ranks"]),
        ranks_per_node=int(row["ranks_per_node"]),
        groups=int(row["groups"]),
        algorithm=row["algorithm"],
        overrides=tuple((key, float(value)) for key, value in overrides),
        source=f"{row['source']}, {row['reference']}",
    )


def _pcie_case(row: dict[str, str]) -> Case:
    """Return a row of the table of kernels; the cards of the node that do not run are left away."""
    here = {"machine": "aiconfigurator rtx_pro_6000", "kind": row["op"], "cluster": PCIE_CLUSTER}
    rest = {"ranks_per_node": row["ranks"], "groups": "1", "algorithm": "auto", "overrides": ""}
    return _case(row | here | rest | {"reference": row["note"]})


def _kind(name: str) -> CollectiveKind:
    check_keys([name], COLLECTIVE_KINDS, "collective")
    return cast(CollectiveKind, name)


if __name__ == "__main__":
    write_split(cases())
    write_system_split()
