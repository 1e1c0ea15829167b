"""Measurements of a run: one JSON object per line in `metrics.jsonl`, and in optional sinks.

Each line is flushed as it is written; floats keep all their digits (the shortest text that reads
back as the same double). JSON has no NaN or Infinity: they are written as null. A line torn by a
kill is removed when the file is opened again, and the lines of repeated steps are written again.
"""

import importlib.util
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaling.meshes.errors import InputError, nearest

FILE = "metrics.jsonl"
Value = float | int | str | bool | None


class Sink(NamedTuple):
    """Another place that receives every record."""

    write: Callable[[int, dict[str, float]], object]  # a step, and its numbers
    close: Callable[[], object]  # sends what is still buffered


class MetricsLog:
    """Appends records to `folder/metrics.jsonl` and hands them to each sink."""

    def __init__(self, folder: Path | str, sinks: Sequence[Sink] = ()):
        path = Path(folder) / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_torn_line(path)
        self._file = path.open("a", encoding="utf-8")
        self._sinks = sinks

    def write(self, step: int, **values: Any) -> None:
        """Write one line: the step, counted from 1, then the values in their order.

        Values are numbers, texts, scalar arrays or lists; reading those of a device waits for it.
        Sinks get the numbers of a list as `name/0`, `name/1` ..., and none of a list of lists.
        """
        plain = {name: _plain(value) for name, value in values.items()}
        self._file.write(json.dumps({"step": int(step), **plain}, allow_nan=False) + "\n")
        self._file.flush()
        named = (pair for name, value in plain.items() for pair in _each(name, value))
        numbers = {n: float(v) for n, v in named if isinstance(v, int | float)}
        for sink in self._sinks:
            sink.write(int(step), numbers)

    def close(self) -> None:
        """Close the file and every sink."""
        self._file.close()
        for sink in self._sinks:
            sink.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_metrics(path: Path | str) -> list[dict[str, Any]]:
    """Records of a `metrics.jsonl` (or of the run folder that holds one), in file order.

    A last line without its end was torn by a kill and is left out.

    Raises:
        InputError: no such file, or a line within it that is not a JSON object.
    """
    path = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not path.is_file():
        raise InputError(f"no metrics at {path}; name a run folder of `scaling train`")
    lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last newline is torn or empty
    return [_record(line, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _record(line: bytes, where: str) -> dict[str, Any]:
    """The object on one line."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is not JSON ({error}); repair or delete that line") from error
    if not isinstance(record, dict):
        raise InputError(f"{where} is not a JSON object; repair or delete that line")
    return record


def _remove_torn_line(path: Path) -> None:
    """Drop what follows the last newline of an existing file."""
    if path.exists():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def _plain(value: Any) -> Value | list:
    """A Python scalar, or a list of them; None for NaN and Infinity, which JSON lacks."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    scalar = value.item() if hasattr(value, "item") else value
    return None if isinstance(scalar, float) and not math.isfinite(scalar) else scalar


def _each(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value under its name; of a list each element, under numbers."""
    if not isinstance(value, list):
        yield name, value
        return
    yield from ((f"{name}/{number}", element) for number, element in enumerate(value))


def _tensorboard(folder: Path, name: str, run: Mapping[str, Any]) -> Sink:
    """TensorBoard scalars below `folder`."""
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(step: int, numbers: dict[str, float]) -> None:
        for key, value in numbers.items():
            writer.add_scalar(key, value, step)

    return Sink(write, writer.close)


def _wandb(folder: Path, name: str, run: Mapping[str, Any]) -> Sink:
    """A Weights & Biases run, its local files below `folder`."""
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
                f"'scaling[{name}]' (metrics.jsonl is written in any case)"
            )


def open_sinks(
    names: Sequence[str], folder: Path | str, run_name: str, run: Mapping[str, Any]
) -> list[Sink]:
    """The sinks of these names, which `check_sinks` has passed; each is imported only now."""
    return [SINKS[name][1](Path(folder), run_name, run) for name in names]
