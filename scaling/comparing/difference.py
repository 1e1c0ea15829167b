"""Two predictions side by side: what changed in the step time, its terms, memory and collectives.

    difference = second - first            of a sum: parts that grew and shrank add up to it
    ratio      = second / first

Read from the documents that `scaling predict --json` prints, `predicted.json` of run folders, and
what `prediction.save` wrote: the last one also tells classes, lines of code and buffers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.comparing.breakdown import BUFFER_SUMS, OPERATION_SUMS, Row, rounded
from scaling.comparing.folder import PREDICTED
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json
from scaling.simulate.memory import ON_DEVICE
from scaling.simulate.prediction import TERMS

NEEDED = ("name", "step_time", "time", "memory", "collectives")
MEMORY = ("peak", *ON_DEVICE)
SUMS = ("time", "exposed", "moved")  # of the calls of a collective
WORDS = ("source", "mesh", "cluster", "nodes", "devices", "batch", "grade", "bottleneck")


@dataclass(frozen=True)
class Change:
    """One figure in both predictions; None: not in that one."""

    first: float | None
    second: float | None

    @property
    def difference(self) -> float:
        """second - first; what is missing counts as 0."""
        return (self.second or 0.0) - (self.first or 0.0)

    @property
    def ratio(self) -> float | None:
        """second / first; None where there is nothing to divide by."""
        return (self.second or 0.0) / self.first if self.first else None

    def to_dict(self) -> dict[str, float | None]:
        """The change as JSON has it."""
        values = {"first": self.first, "second": self.second}
        return values | {"difference": self.difference, "ratio": self.ratio}


@dataclass(frozen=True)
class CollectiveChange:
    """All calls over the same axes of one kind and format, per step and device."""

    kind: str
    axis: str
    dtype: str
    time: Change  # s
    exposed: Change  # s
    moved: Change  # bytes of all calls

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON has it."""
        changes = {name: getattr(self, name).to_dict() for name in SUMS}
        return {"kind": self.kind, "axis": self.axis, "dtype": self.dtype} | changes


@dataclass(frozen=True)
class PartChange:
    """A class of operations, a line of code, or what fills a part of the memory."""

    name: str
    figures: Mapping[str, Change]  # of OPERATION_SUMS or BUFFER_SUMS

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON has it."""
        return {"name": self.name} | {key: c.to_dict() for key, c in self.figures.items()}


@dataclass(frozen=True)
class Difference:
    """What changed from a first prediction to a second one; the largest change of a kind first."""

    names: tuple[str, str]
    step_time: Change  # s
    mfu: Change
    time: Mapping[str, Change]  # s, by TERMS
    memory: Mapping[str, Change]  # bytes, by MEMORY
    collectives: tuple[CollectiveChange, ...]
    words: Mapping[str, tuple[Any, Any]]  # settings and verdicts that differ
    work: Mapping[str, Change]  # FLOPs of products, bytes; of saved predictions, as those below
    classes: tuple[PartChange, ...] = ()
    lines: tuple[PartChange, ...] = ()
    buffers: tuple[PartChange, ...] = ()  # alive at the peak

    def to_dict(self) -> dict[str, Any]:
        """The document that `scaling diff A B --json` prints."""
        return {
            "names": list(self.names),
            "step_time": self.step_time.to_dict(),
            "mfu": self.mfu.to_dict(),
            "time": {name: change.to_dict() for name, change in self.time.items()},
            "memory": {name: change.to_dict() for name, change in self.memory.items()},
            "collectives": [line.to_dict() for line in self.collectives],
            "differs": {name: list(pair) for name, pair in self.words.items()},
            "work": {name: change.to_dict() for name, change in self.work.items()},
            **{name: [part.to_dict() for part in getattr(self, name)] for name in PARTS},
        }


def prediction_document(path: Path) -> dict[str, Any]:
    """The prediction in a file, or in the run folder of that name.

    Raises:
        InputError: no such file, or one that holds something else.
    """
    file = path / PREDICTED if path.is_dir() else path
    data = read_json(file)
    missing = [key for key in NEEDED if not isinstance(data, dict) or key not in data]
    if missing:
        raise InputError(
            f"{file} is no prediction (it lacks {', '.join(missing)}): give files that `scaling "
            "predict --json` printed or `scaling price --save` wrote, or run folders"
        )
    try:
        difference(data, data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{file} is not as `scaling predict --json` prints it: {error}") from None
    return dict(data)


def difference(first: Mapping[str, Any], second: Mapping[str, Any]) -> Difference:
    """What changed from the first to the second of two prediction documents.

    They have a saved one's digits where either is one. Work is None where either lacks it.
    """
    if any("made_with" in document for document in (first, second)):
        first, second = rounded(first), rounded(second)
    both = lambda *keys: Change(_at(first, *keys), _at(second, *keys))
    terms = {name: both("time", name) for name in TERMS}
    lines = _collectives(first), _collectives(second)
    changes = [
        CollectiveChange(*key, *(Change(*(_at(x, key, name) for x in lines)) for name in SUMS))
        for key in dict.fromkeys((*lines[0], *lines[1]))
    ]
    words = {name: (first.get(name), second.get(name)) for name in WORDS}
    return Difference(
        names=(str(first["name"]), str(second["name"])),
        step_time=both("step_time"),
        mfu=both("mfu"),
        time=dict(sorted(terms.items(), key=lambda item: -abs(item[1].difference))),
        memory={name: both("memory", name) for name in MEMORY},
        collectives=tuple(sorted(changes, key=lambda line: -abs(line.time.difference))),
        words={name: pair for name, pair in words.items() if pair[0] != pair[1]},
        work={name: _work(first, second, name) for name in ("flops", "bytes")},
        **{name: _parts((first, second), name) for name in PARTS},
    )


def _work(first: Mapping[str, Any], second: Mapping[str, Any], name: str) -> Change:
    if not all("operations" in document for document in (first, second)):
        return Change(None, None)
    return Change(*(float(sum(row[name] for row in d["operations"])) for d in (first, second)))


# By part: rows that are summed, what they have in common besides the line, and their figures.
PARTS: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "classes": ("operations", ("class",), OPERATION_SUMS),
    "lines": ("operations", (), OPERATION_SUMS),
    "buffers": ("buffers", ("category", "made"), BUFFER_SUMS),
}


def _parts(documents: Sequence[Mapping[str, Any]], part: str) -> tuple[PartChange, ...]:
    """Sums over the rows of both documents that are alike, the largest change first.

    They are named as in the second document. None where a document was not saved with them.
    """
    source, common, sums = PARTS[part]
    if not all(source in document for document in documents):
        return ()
    first, second = (document[source] for document in documents)
    moved = _edited(first, second)
    names: dict[Any, str] = {}
    totals: list[dict[Any, dict[str, float]]] = [{}, {}]
    for total, rows in zip(totals, (first, second), strict=True):
        for row in rows:
            said, place = tuple(row[name] for name in common), _place(row)
            key, words = (said, moved.get(place, place)), (row["line"], row["code"])
            if part == "classes":
                key, words = (said, ("", "")), ("", "")
            names[key] = " ".join(filter(None, (*said, *words))) or "without a line"
            kept = total.setdefault(key, dict.fromkeys(sums, 0.0))
            for name in sums:
                kept[name] += row[name]
    changes = [
        PartChange(name, {n: Change(*(_at(t, key, n) for t in totals)) for n in sums})
        for key, name in names.items()
    ]
    main = "time" if "time" in sums else "bytes"
    return tuple(sorted(changes, key=lambda c: (-abs(c.figures[main].difference), c.name)))


def _place(row: Row) -> tuple[str, str]:
    """A line of code by its file and its text, which stay when it moves."""
    return (row["line"].partition(":")[0] if row["code"] else row["line"]), row["code"]


def _edited(first: Sequence[Row], second: Sequence[Row]) -> dict[tuple[str, str], tuple[str, str]]:
    """Lines that only the second has -> those of their text in another file, or at their number."""
    old, new = ({_place(row): row["line"] for row in rows} for rows in (first, second))
    gone = {place: line for place, line in old.items() if place not in new}
    was = {line: place for place, line in gone.items()} | {place[1]: place for place in gone}
    found = {place: was.get(place[1] or line, was.get(line)) for place, line in new.items()}
    return {place: before for place, before in found.items() if before and place not in old}


def _collectives(document: Mapping[str, Any]) -> dict[tuple[str, str, str], dict[str, float]]:
    """Sums over the lines of a document by kind, axis and format."""
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in document["collectives"]:
        key = line["kind"], line["axis"], line["dtype"]
        sums = found.setdefault(key, dict.fromkeys(SUMS, 0.0))
        sums["time"] += line["time"]
        sums["exposed"] += line["exposed"]
        sums["moved"] += line["bytes"] * line["count"]
    return found


def _at(document: Any, *keys: Any) -> float | None:
    """The number under keys in tables of tables; None where there is none."""
    for key in keys:
        document = document.get(key) if isinstance(document, Mapping) else None
    return None if document is None else float(document)
