"""Measurements of a run: one JSON object per line in `metrics.jsonl`, and in optional sinks.

Each line is given to the kernel as it is written, and to the disk before a checkpoint and at the
end: syncing each would make short steps wait for the disk. Floats keep all their digits (the
shortest text that reads back as the same double). JSON has no NaN or Infinity: they are written as
null. A line torn by a kill is removed when the file is opened again, and the lines of repeated
steps are written again. A checkpoint holds the line of its step and those that could not be
written, so that none is lost.
"""

import importlib.util
import io
import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from scaling.meshes.durable import make_folders, sync
from scaling.meshes.errors import InputError, Problems, nearest

FILE = "metrics.jsonl"
NAMED = 3  # lines that are no JSON which are named one by one
Value = float | int | str | bool | None
Record = dict[str, Any]


class Sink(NamedTuple):
    """Another place that receives every record."""

    write: Callable[[int, dict[str, float]], object]  # a step, and its numbers
    close: Callable[[], object]  # sends what is still buffered


class MetricsLog(AbstractContextManager["MetricsLog"]):
    """Appends records to `folder/metrics.jsonl` and hands them to each sink.

    `failure` is the error since which the file cannot be written to, None if there was none.
    """

    def __init__(self, folder: Path | str, sinks: Sequence[Sink] = ()):
        self._path = Path(folder) / FILE
        make_folders(self._path.parent)
        _remove_torn_line(self._path)
        self._file = self._path.open("ab", buffering=0)
        sync(self._path.parent)
        self._sinks = sinks
        self._kept: list[Record] = []
        self.failure: OSError | None = None

    def write(self, step: int, **values: Any) -> None:
        """Write one line: the step, counted from 1, then the values in their order.

        Values are numbers, texts, scalar arrays or lists; reading those of a device waits for it.
        Sinks get the numbers of a list as `name/0`, `name/1` ..., and none of a list of lists.
        """
        plain = {name: _plain(value) for name, value in values.items()}
        record: Record = {"step": int(step), **plain}
        same_step = [kept for kept in self._kept if self.failure or kept["step"] == record["step"]]
        self._kept = [*same_step, record]
        self._attempt(lambda: _write_whole(self._file, _line(record)))
        lists = {name: value for name, value in plain.items() if isinstance(value, list)}
        elements = {
            f"{name}/{i}": x for name, values in lists.items() for i, x in enumerate(values)
        }
        named = (plain | elements).items()
        numbers = {name: float(x) for name, x in named if isinstance(x, int | float)}
        for sink in self._sinks:
            sink.write(record["step"], numbers)

    def sync(self) -> None:
        """Return when the disk has all lines, before a checkpoint that counts on them."""
        self._attempt(lambda: os.fsync(self._file.fileno()))

    def kept(self) -> list[Record]:
        """The records of the newest step, and those that could not be written."""
        return list(self._kept)

    def _attempt(self, write: Callable[[], object]) -> None:
        if self.failure is None:
            try:
                write()
            except OSError as error:
                error.filename = str(self._path)
                self.failure = error

    def __exit__(self, *error: object) -> None:
        """Sync and close the file, and close every sink."""
        self.sync()
        self._file.close()
        for sink in self._sinks:
            sink.close()


def read_metrics(path: Path | str) -> list[Record]:
    """Records of a `metrics.jsonl` (or of the run folder that holds one), in file order.

    A last line without its end was torn by a kill and is left out.

    Raises:
        InputError: no such file, or a line within it that is not a JSON object.
    """
    records, wrong = readable_metrics(path)
    if wrong:
        raise InputError(wrong[0])
    return records


def readable_metrics(path: Path | str) -> tuple[list[Record], list[str]]:
    """As `read_metrics`, without the lines that are not JSON objects, and what is wrong with those.

    Raises:
        InputError: no such file.
    """
    path = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise InputError(f"no metrics at {path}; name a run folder of `scaling train`")
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn or empty
    problems = Problems()
    records = [problems.attempt(_record, x, f"{path}:{n}") for n, x in enumerate(lines, 1)]
    return [record for record in records if record is not None], problems.messages


def _metrics_files(folder: Path) -> list[Path]:
    """The file of the first process, which need not be there, and those of the others."""
    others = sorted(folder.glob(f"process_*/{FILE}"))
    return [folder / FILE, *(path for path in others if path.is_file())]


def _is_torn(path: Path) -> bool:
    return path.read_bytes()[-1:] not in (b"", b"\n")


def device_skew(folder: Path) -> float | None:
    """The median over a run's steps of `device_skew`; None where there is none on record."""
    records, _ = readable_metrics(folder)
    found = [line["device_skew"] for line in records if line.get("device_skew")]
    return statistics.median(found) if found else None


def step_times(
    records: Iterable[Record], since: float, until: float = math.inf
) -> dict[int, float]:
    """Seconds of each step up to number `until` that ended after `since`, a unix time.

    A step that was repeated has its last ones.
    """
    steps = {}
    for line in records:
        step, ended, seconds = (line.get(key) for key in ("step", "time", "step_time"))
        if isinstance(step, int) and isinstance(ended, float) and isinstance(seconds, float):
            if ended >= since and step <= until:
                steps[step] = seconds
    return steps


def ends_whole(folder: Path, step: int) -> bool:
    """True if the last lines of all metrics are whole, and the first process's of `step`."""
    try:
        records, _ = readable_metrics(folder)
        torn = any(map(_is_torn, _metrics_files(folder)))
    except (InputError, OSError):
        return False
    return not torn and any(line.get("step") == step and "loss" in line for line in records)


def mend_metrics(folder: Path, saved: Sequence[Record], step: int) -> list[str]:
    """Write again what the file of a run lacks, before it goes on after `step`.

    Files of other processes lose torn lines only: a checkpoint holds those of the first.

    Args:
        saved: the records that its checkpoint holds.

    Returns:
        Lines for the user: lines that are not JSON, which are left as they are, and steps without
        a line.
    """
    path, *others = _metrics_files(folder)
    torn = [other for other in others if _is_torn(other)]
    for file in (path, *torn):
        _remove_torn_line(file)
    records, wrong = readable_metrics(path) if path.exists() else ([], [])
    # Lines of one step are its own, and that of its held-out loss.
    kind = lambda record: (str(record.get("step")), "loss" in record, "held_out_loss" in record)
    present = set(map(kind, records))
    if lost := [record for record in saved if kind(record) not in present]:
        with path.open("ab", buffering=0) as log:
            _write_whole(log, b"".join(map(_line, lost)))
    written = {str(record.get("step")) for record in [*records, *lost] if "loss" in record}
    missing = [number for number in range(1, step + 1) if str(number) not in written]
    notes = [f"{other} had a torn last line, which is removed" for other in torn]
    notes += [*wrong[:NAMED], *([f"{len(wrong):,} such lines in all"] if wrong[NAMED:] else [])]
    if missing:
        notes.append(f"{path} lacks the lines of {len(missing):,} steps, from {missing[0]:,} on")
    return [f"warning: {note}" for note in notes]


def _line(record: Record) -> bytes:
    return (json.dumps(record, allow_nan=False) + "\n").encode()


def _write_whole(file: io.FileIO, text: bytes) -> None:
    """Write all of a text; a disk that fills up takes a part of it first."""
    while text:
        text = text[file.write(text) :]


def _record(line: bytes, where: str) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({error}); repair or delete that line") from error
    if not isinstance(record, dict):
        raise InputError(f"{where} is not a JSON object; repair or delete that line")
    return record


def _remove_torn_line(path: Path) -> None:
    if path.exists() and _is_torn(path):
        os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def _plain(value: Any) -> Value | list:
    """A Python scalar, or a list of them; None for NaN and Infinity, which JSON lacks."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    scalar = value.item() if hasattr(value, "item") else value
    return None if isinstance(scalar, float) and not math.isfinite(scalar) else scalar


# Sinks: TensorBoard, Weights & Biases


def _tensorboard(folder: Path, name: str, run: Mapping[str, Any]) -> Sink:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, numbers: dict[str, float]) -> None:
        for key, value in numbers.items():
            writer.add_scalar(key, value, step)

    return Sink(write, writer.close)


def _wandb(folder: Path, name: str, run: Mapping[str, Any]) -> Sink:
    import wandb

    opened = wandb.init(project="scaling", name=name, dir=str(folder), config=dict(run))
    return Sink(lambda step, numbers: opened.log(numbers, step=step), opened.finish)


# Names, which are extras of this project too: module, and what opens it.
SINKS = {"tensorboard": ("tensorboardX", _tensorboard), "wandb": ("wandb", _wandb)}


def check_sinks(names: Sequence[str]) -> None:
    """Raise InputError for a sink that is unknown or whose package is not installed."""
    for name in names:
        if name not in SINKS:
            raise InputError(f"unknown metrics sink {name!r}; {nearest(name, SINKS)}")
        package, _ = SINKS[name]
        if importlib.util.find_spec(package) is None:
            raise InputError(
                f"{package} is not installed: pip install "
                f"'jax-scaling[{name}]' (metrics.jsonl is written in any case)"
            )


def open_sinks(
    names: Sequence[str], folder: Path | str, run_name: str, run: Mapping[str, Any]
) -> list[Sink]:
    """The sinks of these names, which `check_sinks` has passed; each is imported only now."""
    return [SINKS[name][1](Path(folder), run_name, run) for name in names]
