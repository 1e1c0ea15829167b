"""Types of command-line options, for tyro and for `--help`; what commands have in common."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional, Protocol, cast

from tyro.conf import UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

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
Whole = Annotated[int, WHOLE, arg(metavar="N")]
File = Annotated[PathOrNone, arg(metavar="PATH", help_behavior_hint="")]
Switch = Annotated[bool, arg(help_behavior_hint="")]
KeyValues = Annotated[
    Texts, UseAppendAction, arg(metavar="KEY=VALUE", help_behavior_hint="(repeatable)")
]


class Command(Protocol):
    """A dataclass whose fields are the options of one command."""

    @property
    def subject(self) -> str:
        """The run, cluster or folder that an error is about: the first field."""
        return str(getattr(self, fields(cast(Any, self))[0].name))

    def execute(self) -> int:
        """Do it and return the exit code."""
