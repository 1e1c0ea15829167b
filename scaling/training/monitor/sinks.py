"""Other places that receive every record of `metrics.jsonl`: TensorBoard, Weights & Biases."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from scaling.meshes.errors import InputError, nearest


class Sink(NamedTuple):
    """Another place that receives every record."""

    write: Callable[[int, dict[str, float]], object]  # a step, and its numbers
    close: Callable[[], object]  # sends what is still buffered


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
