"""Measurements that a ladder ends on: who measured what, when, and whether we fitted on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from scaling.course.language import t
from scaling.meshes.reading import parse_toml

FILE = "measured.toml"
PLACE = ("run", "cluster", "nodes", "mesh", "set", "overrides")  # arguments of `sc.predict`
SAME_SIZE = 0.02  # relative distance up to which two sizes are one: 512 MiB and 537 MB


@dataclass(frozen=True)
class Measurement:
    """A measured time with its machine and source."""

    seconds: float
    machine: str
    source: str
    date: str
    fitted: bool  # figures of the shipped profile were fitted on this very row


@dataclass(frozen=True)
class Point:
    """Steps of one setting that were measured."""

    asked: Mapping[str, Any]  # of `sc.predict`, which prices the same step
    seconds: tuple[float, ...]  # of each run
    fitted: bool

    @property
    def microbatches(self) -> int:
        return int(self.asked["set"]["batch.microbatches"])


@dataclass(frozen=True)
class MeasuredSeries:
    """One run in several settings: who measured it where."""

    machine: str
    source: str
    date: str
    points: tuple[Point, ...]


def measured_series(name: str) -> MeasuredSeries:
    """Return a series by its name in the file."""
    row = next(row for row in _table()["series"] if row["name"] == name)
    source = _table()["sources"][row["source"]]
    shared = {key: row[key] for key in PLACE if key in row}
    points = []
    for point in row["points"]:
        asked = shared | {key: point[key] for key in PLACE if key in point}
        points.append(Point(asked, tuple(point["seconds"]), point["fitted"]))
    return MeasuredSeries(t(row["machine"]), source["title"], source["date"], tuple(points))


def measured_sweep(kind: str, cluster: str, ranks: int, nodes: int = 1) -> dict[int, Measurement]:
    """Return bytes -> measurement of a collective over all chips of so many nodes; {}: none."""
    row = _row("collective", kind=kind, cluster=cluster, ranks=ranks, nodes=nodes)
    return {int(size): _measurement(row, s) for size, s in row["times"].items()} if row else {}


def measured_collective(
    kind: str, size: int, cluster: str, ranks: int, nodes: int = 1
) -> Measurement | None:
    """Return the measurement of a sweep at one size; None: there is none."""
    sweep = measured_sweep(kind, cluster, ranks, nodes)
    close = (found for at, found in sweep.items() if abs(size / at - 1) <= SAME_SIZE)
    return next(close, None)


def measured_step(run: str, devices: int, cluster: str, tokens: int) -> Measurement | None:
    """Return a measured step of a model on so many devices, whatever its mesh; None: none."""
    row = _row("step", run=run, devices=devices, cluster=cluster, tokens=tokens)
    return _measurement(row, row["step_time"]) if row else None


def measured_kernel(
    kind: str, sizes: Sequence[float], dtype: str, accelerator: str
) -> Measurement | None:
    """Return a measured kernel of exactly these sizes; None: there is none."""
    row = _row("kernel", kind=kind, sizes=list(sizes), dtype=dtype, accelerator=accelerator)
    return _measurement(row, row["seconds"]) if row else None


def _row(table: str, **wanted: Any) -> Mapping[str, Any] | None:
    """Return the row of a table that has these values; one that names no nodes is of one."""
    rows = ({"nodes": 1, **row} for row in _table()[table])
    return next((row for row in rows if wanted.items() <= row.items()), None)


def _measurement(row: Mapping[str, Any], seconds: float) -> Measurement:
    source = _table()["sources"][row["source"]]
    return Measurement(seconds, t(row["machine"]), source["title"], source["date"], row["fitted"])


@cache
def _table() -> Mapping[str, Any]:
    text = (resources.files("scaling.course.ladder") / FILE).read_text(encoding="utf-8")
    table: Mapping[str, Any] = parse_toml(text, FILE)
    return table
