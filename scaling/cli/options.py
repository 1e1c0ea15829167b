"""Types of command-line options, for tyro and for `--help`; what commands have in common."""

from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Protocol, cast

from tyro.conf import Positional, UseAppendAction, arg

import scaling as sc

Text = Annotated[str | None, arg(metavar="TEXT", help_behavior_hint="")]
Number = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
Real = Annotated[float | None, arg(metavar="X", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Switch = Annotated[bool, arg(help_behavior_hint="")]
KeyValues = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")
]
Changes = Annotated[
    tuple[str, ...], UseAppendAction, arg(metavar="'FIGURE xN'", help_behavior_hint="(repeatable)")
]
RunName = Annotated[Positional[str], arg(metavar="RUN")]
RunFolder = Annotated[Positional[Path], arg(metavar="RUN_DIR")]


class Command(Protocol):
    """A dataclass whose fields are the options of one command."""

    @property
    def subject(self) -> str:
        """The run, cluster or folder that an error is about: the first field."""
        return str(getattr(self, fields(cast(Any, self))[0].name))

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
    """Any value of run.json by dotted key, such as batch.microbatches=8."""

    def load(self) -> "sc.Run":
        """Return the run with the changes."""
        return sc.load_run(self.run, mesh=self.mesh, device_order=self.device_order, set=self.set)


def command_line(command: Any, *without: str) -> list[str]:
    """Return the arguments that make `command`, without the fields named in `without`.

    The first field is the positional argument; fields with their default value are left out.
    """
    positional, *options = (f for f in fields(command) if f.name not in without)
    words = [str(getattr(command, positional.name))]
    for option in options:
        value = getattr(command, option.name)
        default = option.default if option.default is not MISSING else None
        flag = f"--{option.name.replace('_', '-')}"
        if value == default:
            continue
        if isinstance(value, bool):
            words.append(flag)
        else:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for item in values for word in (flag, str(item))]
    return words
