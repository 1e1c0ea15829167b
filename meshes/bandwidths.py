"""Collectives that were timed on a cluster: rows of nccl-tests, or a list of calls in JSON.

    #  Rank  0 Group  0 Pid  6899 on node-1 device  0 [0000:04:00] NVIDIA H100 80GB HBM3
    #       size         count   type redop root   time   algbw   busbw #wrong  ...in-place
      1073741824     268435456  float   sum   -1  5219.7  205.71  385.70     0  ...

    [{"collective": "all-reduce", "ranks": 16, "nodes": 2, "bytes": 1073741824, "seconds": 0.00522}]

Out of place, as collectives of training are. nccl-tests says which collective it times in the name
of its program alone: that has to stand in the text (a command line, or "Collective test starting:
all_reduce_perf", as newer ones print), or in the name of the file.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scaling.meshes.errors import InputError
from scaling.meshes.reading import convert, parse_json, read_text

PROGRAMS = {  # of nccl-tests, by the name of the collective here
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "permute",
    "broadcast": "broadcast",
}
PROGRAM = re.compile(rf"({'|'.join(PROGRAMS)})(?:_perf)?")
RANK = re.compile(r"#?\s*Rank\s+(\d+)\s.*\son\s+(\S+)\s+device")
ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*\s")  # size, count, type
COLUMNS = 8  # time, algbw, busbw, #wrong: out of place, then in place
MICRO = 1e-6


@dataclass(frozen=True)
class MeasuredCall:
    """One collective in one group of `ranks`, as nccl-tests counts bytes and bus bandwidth."""

    collective: str
    ranks: int
    bytes: float
    nodes: int | None = None  # that they lie on, evenly
    ranks_per_node: int | None = None  # None of both: as many as a node has devices
    seconds: float | None = None
    bus_bandwidth: float | None = None  # bytes/s, instead of seconds

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.bus_bandwidth is None):
            raise InputError("state seconds or bus_bandwidth (bytes/s), one of them")
        named = {"bytes": self.bytes, "seconds": self.seconds, "bus_bandwidth": self.bus_bandwidth}
        for name, value in named.items():
            if value is not None and value <= 0:
                raise InputError(f"{name}={value:g} must be above 0: was nothing measured?")
        if self.ranks < 2:
            raise InputError(f"ranks={self.ranks}: a group of at least 2 communicates")
        if self.nodes and self.ranks_per_node and self.nodes * self.ranks_per_node != self.ranks:
            raise InputError(
                f"{self.nodes} nodes of {self.ranks_per_node} ranks are not ranks={self.ranks}"
            )
        parts = self.nodes or self.ranks_per_node or 1
        if parts < 1 or self.ranks % parts:
            raise InputError(f"ranks={self.ranks} do not lie evenly on nodes: {parts} of each")

    def per_node(self, devices: int) -> int:
        """Ranks on one node, where a node has so many devices."""
        return self.ranks_per_node or (
            self.ranks // self.nodes if self.nodes else min(self.ranks, devices)
        )


Measured = str | Path | Iterable[MeasuredCall | dict]


def measured_calls(measured: Measured) -> tuple[MeasuredCall, ...]:
    """The calls in a file of nccl-tests' rows or JSON, or in a list of tables.

    Raises:
        InputError: nothing was measured, a row without its collective or ranks, a wrong table.
    """
    if not isinstance(measured, str | Path):
        return convert(tuple[MeasuredCall, ...], tuple(measured), "measured")
    path = Path(measured)
    text = read_text(path)
    if text.lstrip()[:1] in ("[", "{"):
        document = parse_json(text, str(path))
        if isinstance(document, dict):
            document = document.get("measured", document)
        calls = convert(tuple[MeasuredCall, ...], document, str(path))
    else:
        calls = tuple(_rows(text, path))
    if not calls:
        raise InputError(
            f"{path} has no measurement: give the rows that nccl-tests prints, or a list of "
            '{"collective", "ranks", "bytes", "seconds"} in JSON'
        )
    return calls


def _rows(text: str, path: Path) -> Iterator[MeasuredCall]:
    program, ranks, hosts = PROGRAM.search(path.name), 0, set[str]()
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}, line {number}"
        if found := RANK.match(line):
            if found[1] == "0":
                ranks, hosts = 0, set()
            ranks, hosts = ranks + 1, {*hosts, found[2]}
        elif ROW.match(line):
            if program is None:
                raise InputError(
                    f"{where}: nothing above says which collective this is; put the command before "
                    "it, such as # all_reduce_perf, or name the file all_reduce.txt"
                )
            if not ranks:
                raise InputError(f"{where}: no lines `# Rank 0 ... on HOST device` stand above it")
            columns = line.split()
            call = {
                "collective": PROGRAMS[program[1]],
                "ranks": ranks,
                "nodes": len(hosts),
                "bytes": float(columns[0]),
            }
            try:
                call["seconds"] = float(columns[-COLUMNS]) * MICRO
            except (ValueError, IndexError):
                raise InputError(
                    f"{where}: expected {COLUMNS} columns after the type, time first"
                ) from None
            if call["bytes"]:  # its first rows where the ranks do not divide the smallest sizes
                yield convert(MeasuredCall, call, where)
        elif "_perf" in line:
            program = PROGRAM.search(line) or program
