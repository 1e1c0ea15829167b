"""Types of command-line options, for tyro and for `--help`; what commands have in common."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, Protocol, cast

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

import scaling as sc
from scaling.meshes.units import parse_real, parse_whole

# Written so that tyro can check a default by itself. For `X | None` and `tuple[str, ...]` it takes
# typeguard, whose imports (asyncio, ssl) take as long as NumPy's.
TextOrNone = Optional[str]  # noqa: UP045
PathOrNone = Optional[Path]  # noqa: UP045
if TYPE_CHECKING:
    Texts = tuple[str, ...]
else:
    Texts = tuple

Text = Annotated[TextOrNone, arg(metavar="TEXT", help_behavior_hint="")]


def _reads(parse: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec[Any]:
    """How tyro reads a number: 8192, 8k (8,000), 8Ki (8,192), 15T."""
    is_number = lambda value: isinstance(value, int | float)
    return PrimitiveConstructorSpec(
        1, metavar, lambda words: parse(words[0]), is_number, lambda value: [str(value)]
    )


WHOLE, REAL = _reads(parse_whole, "N"), _reads(parse_real, "X")
Number = Annotated[Optional[int], WHOLE, arg(metavar="N", help_behavior_hint="")]  # noqa: UP045
Real = Annotated[Optional[float], REAL, arg(metavar="X", help_behavior_hint="")]  # noqa: UP045
Whole = Annotated[int, WHOLE, arg(metavar="N")]
Factor = Annotated[float, REAL, arg(metavar="X")]
File = Annotated[PathOrNone, arg(metavar="PATH", help_behavior_hint="")]
Switch = Annotated[bool, arg(help_behavior_hint="")]
KeyValues = Annotated[
    Texts, UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")
]
Pictures = Annotated[
    Texts, UseAppendAction, arg(metavar="KIND=FILE", help_behavior_hint="(repeatable)")
]
Changes = Annotated[
    Texts, UseAppendAction, arg(metavar="'FIGURE xN'", help_behavior_hint="(repeatable)")
]
WeightsChoice = Annotated[
    Optional[Literal["last", "ema"]],  # noqa: UP045
    arg(metavar="last|ema", help_behavior_hint=""),
]
RunName = Annotated[Positional[str], arg(metavar="RUN")]
RunFolder = Annotated[Positional[Path], arg(metavar="RUN_DIR")]
RunFolders = Annotated[
    tuple[Path, ...], UseAppendAction, arg(metavar="RUN_DIR", help_behavior_hint="(repeatable)")
]
OtherPrediction = Annotated[Positional[PathOrNone], arg(metavar="[OTHER]", help_behavior_hint="")]


class Command(Protocol):
    """A dataclass whose fields are the options of one command."""

    @property
    def subject(self) -> str:
        """The run, cluster or folder that an error is about: the first field."""
        return str(getattr(self, fields(cast(Any, self))[0].name))

    def start(self, words: list[str]) -> int:
        """Execute; `words` are the command line, for a command that starts itself again."""
        return self.execute()

    def execute(self) -> int:
        """Do it and return the exit code."""


@dataclass(frozen=True)
class RunCommand(Command):
    """A command about a run, and about what is changed in it."""

    run: RunName
    """Recipe name, file.py:function, run.json, its folder, a Hugging Face config.json, or (predict
    only) a .jsonl with one run per line."""
    mesh: Text = None
    """Axis sizes such as data=2,fsdp=4; replaces the run's mesh. Without either, all devices are
    fsdp."""
    device_order: Text = None
    """Axes joined by commas, outermost first; the last has neighbouring devices. Axes that are not
    named follow in default order."""
    set: KeyValues = ()
    """Any value of run.json by dotted key, such as batch.microbatches=8. 8k is 8,000 and 8Ki 8,192,
    here and wherever a number stands."""

    def load(self) -> "sc.Run":
        """Return the run with the changes."""
        return sc.load_run(self.run, mesh=self.mesh, device_order=self.device_order, set=self.set)


@dataclass(frozen=True)
class TrainedCommand(Command):
    """A command that computes with a trained model."""

    run_dir: RunFolder
    """Folder of a run, or of a Hugging Face model with safetensors."""
    mesh: Text = None
    """Axis sizes over data, fsdp, expert and tensor, whatever the run was trained on. Without it
    all devices are fsdp."""
    devices: Number = None
    """Number of fake host devices, where no accelerator is present."""
    batch: Number = None
    """Sequences at once on the whole mesh (default: on each device as many as in a microbatch of
    training, or 4,096 tokens)."""
    seq_len: Number = None
    """Tokens that the model sees at most (default: as in training; of a Hugging Face model 2,048,
    its learned positions, or its recipe's)."""
    weights: WeightsChoice = None
    """Parameters of the last step, or their running mean (the default with train.ema)."""

    def placement(self) -> dict[str, Any]:
        """Return the options above, as `sc.evaluate` and `sc.sample` take them."""
        return {f.name: getattr(self, f.name) for f in fields(TrainedCommand)[1:]}
