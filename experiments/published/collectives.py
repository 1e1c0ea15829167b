"""Published measurements of collectives: one row per (machine, collective, size), with its source.

    collectives.csv    what others measured; bytes as nccl-tests counts them; columns in README.md
    split.json         which of the rows may be fitted; the others only score
    systems.csv        further machines; kernels/intranode_pcie.csv one more
    systems_split.json which of those machines may be fitted, whole; the others only score

A *series* is the times of one collective on one machine in groups of one size, over message sizes.
A machine that was measured in several group sizes (a table of XLA, say) is one machine.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from experiments.published.csv_rows import rows_of
from experiments.published.split import Part, part_of_key, split, write_split
from scaling.meshes.errors import check_keys
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind

FOLDER = Path(__file__).parent
TABLE, SPLIT = FOLDER / "collectives.csv", FOLDER / "split.json"
SYSTEMS, SYSTEMS_SPLIT = FOLDER / "systems.csv", FOLDER / "systems_split.json"
PCIE, PCIE_CLUSTER = FOLDER / "kernels" / "intranode_pcie.csv", "rtx-pro-6000-8"
SYSTEMS_RULE = "sha256 of the machine: first byte < 128 is fitted"
RULE = "sha256 of machine|kind|ranks|nodes|groups|algorithm|bytes: first byte < 128 is fitted"


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
    return tuple(map(_case, rows_of(TABLE)))


@lru_cache(maxsize=1)
def system_cases() -> tuple[Case, ...]:
    """All rows of the further machines."""
    return *map(_case, rows_of(SYSTEMS)), *map(_pcie_case, rows_of(PCIE))


def part_of(case: Case) -> Part:
    """Part of a case by the rule."""
    return part_of_key(case.key)


def cases_of(part: Part) -> list[Case]:
    """The cases of one part."""
    return [case for case in cases() if case.key in split(SPLIT)[part]]


def machines() -> list[str]:
    """The further machines."""
    return list(dict.fromkeys(case.machine for case in system_cases()))


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
    write_split(SPLIT, (case.key for case in cases()), RULE)
    write_split(SYSTEMS_SPLIT, machines(), SYSTEMS_RULE)
