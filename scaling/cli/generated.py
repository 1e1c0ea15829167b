"""Commands, made from the signatures and the `Args:` of functions.

    def plan(run, cluster=None, *, top: int = 10): ...     scaling plan RUN --cluster NAME --top N

A function of the API is called by another one, which has what only a terminal has: it is given the
call, ready to be made, and more options, which are read from its signature and `Args:` likewise.

    def shown(call, *, json: bool = False) -> int: ...     --json
"""

import importlib
import inspect
import keyword
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Protocol, get_args, get_origin

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

import scaling as sc
from scaling.api.parameters import arguments_of, texts_of
from scaling.api.public_api import alternatives
from scaling.api.request import FLAGS
from scaling.meshes.units import parse_real, parse_whole

PATH = "PATH"  # in the help of an option, the name of a value that is a file
METAVARS = {  # by flag
    "cluster": "NAME",
    "mesh": "AXIS=N,...",
    "device-order": "AXIS,...",
    "set": "KEY=VALUE",
    "override": "KEY=VALUE",
    "what-if": "'FIGURE xN'",
    **dict.fromkeys(("data", "choices", "also"), "PATH"),
    **dict.fromkeys(("trips", "local"), "KEY=VALUE"),
    "guess": "X",
    "plot": "KIND=FILE",
    "source": "auto|analytic|compiled|stored",
    **dict.fromkeys(("dtype", "kv", "compute", "output"), "FORMAT"),
}
# As well as what is annotated as a tuple of texts.
REPEATED = ("set", "overrides", "what_if", "data", "choices")
NAMED = ("run", "cluster", "model")  # may be paths, and names of what comes with the project
# What is seldom asked for stands last in the help.
SELDOM = ("device_order", "overrides", "calibration", "ideal", "json", "verbose")
# In a description: what only Python can give, and what is done without the parameter.
ONLY_PYTHON = re.compile(r",? or an? (?:[A-Z]\w+|mapping|sequence)(?=[.;,]|$)")
WITHOUT = re.compile(r"; None: (.+?)(?=\.$|\. (?=[A-Z])|; )")


def _reads(parse: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec[Any]:
    """How tyro reads a number: 8192, 8k (8,000), 8Ki (8,192), 15T."""
    is_number = lambda value: isinstance(value, int | float)
    return PrimitiveConstructorSpec(
        1, metavar, lambda words: parse(words[0]), is_number, lambda value: [str(value)]
    )


WHOLE, REAL = _reads(parse_whole, "N"), _reads(parse_real, "X")


class Command(Protocol):
    """A dataclass whose fields are the options of one command."""

    @property
    def subject(self) -> str:
        """The run, cluster or folder that an error is about."""

    def execute(self) -> int:
        """Do it and return the exit code."""


@dataclass(frozen=True, eq=False)
class Generated:
    """A command that calls one function."""

    function: str  # of `scaling`, or module:name
    example: str
    positional: tuple[str, ...]  # parameters without a flag
    shown: str = "scaling.cli.show:result"  # module:name of the function that is given the call
    summary: str = ""  # where the function's own first sentence does not say what the command does
    flags: Mapping[str, str] = field(default_factory=dict)  # parameter -> flag of another name
    hidden: tuple[str, ...] = ()  # parameters of the function that no option gives
    first: tuple[str, ...] = ()  # options that stand before the others in the help
    texts: Mapping[str, str] = field(default_factory=dict)  # parameter -> what it means here


@dataclass(frozen=True)
class Option:
    """One parameter as an option."""

    parameter: str
    hint: Any
    default: Any
    text: str  # its help
    flag: str  # without dashes
    is_positional: bool

    @property
    def name(self) -> str:
        """The field of the command that holds its value."""
        name = self.flag.replace("-", "_")
        return f"{name}_" if keyword.iskeyword(name) else name


def location(function: str) -> tuple[str, str]:
    """Return the module and the name of a function: of `scaling`, or of module:name."""
    module, _, name = function.rpartition(":")
    return module or (sc._MODULES | sc.learn._MODULES)[name], name


def function_of(text: str) -> Any:
    """Return the function."""
    module, name = location(text)
    return getattr(importlib.import_module(module), name)


@cache
def command_class(face: Generated) -> type[Command]:
    """Return the class whose fields are the options of a command."""
    function, shown = function_of(face.function), function_of(face.shown)
    more = list(_options(shown, face))
    own = {option.parameter for option in more}  # which the function is not given as it stands
    asked = [option for option in _options(function, face) if option.parameter not in own]

    def execute(self: Any) -> int:
        given = {o.parameter: (getattr(self, o.name), (o.default, ())) for o in asked}
        changed = {name: value for name, (value, unset) in given.items() if value not in unset}
        extra = {option.parameter: getattr(self, option.name) for option in more}
        code: int = shown(partial(function, **changed), **extra)
        return code

    def subject(self: Any) -> str:
        values = (getattr(self, name, None) for name in ("name", *face.positional))
        return str(next(filter(None, values), ""))

    summary = face.summary or summary_of(inspect.getdoc(function))
    return make_dataclass(
        f"{face.function.title()}Command",
        [
            (o.name, *_field(o))
            for o in sorted([*asked, *more], key=lambda option: _place(option, face))
        ],
        bases=(Command,),
        namespace={
            "execute": execute,
            "subject": property(subject),
            "__doc__": f"{summary}\n\nExample: {face.example}",
        },
        frozen=True,
        kw_only=True,
    )


def summary_of(docstring: str | None) -> str:
    """Return the first sentence of a docstring on one line; what is returned is printed."""
    text = " ".join((docstring or "").partition("\n\n")[0].split())
    return re.sub(r"^Return ", "Print ", text.partition(". ")[0].rstrip(".") + ".")


def words(text: str, flags: Mapping[str, str]) -> str:
    """Return what a parameter means as the help of its option; `flags` are by parameter."""
    text = WITHOUT.sub(r" (default: \1)", ONLY_PYTHON.sub("", text))
    text = re.sub(r"`([^`]*)`", lambda found: flags.get(found[1], found[1]), text)
    return text[:1].upper() + text[1:]


def _place(option: Option, face: Generated) -> int:
    """Return where an option stands among all."""
    order = (*face.positional, *face.first, "", *SELDOM)
    return order.index(option.parameter if option.parameter in order else "")


def _options(function: Any, face: Generated) -> Iterator[Option]:
    """Yield the parameters that a command line gives; that of the call is no option."""
    texts = {**texts_of(function), **arguments_of(function_of(face.shown)), **face.texts}
    given = {
        name: parameter
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "call"
        and (name not in face.hidden or function is not function_of(face.function))
    }
    flags = {n: (face.flags.get(n) or FLAGS.get(n, n)).replace("_", "-") for n in given}
    for name, parameter in given.items():
        called = {
            n: n.upper() if n in face.positional else f"--{flag}" for n, flag in flags.items()
        }
        text = words(texts[name], called)
        where = flags[name], name in face.positional
        yield Option(name, parameter.annotation, parameter.default, text, *where)


def _field(option: Option) -> tuple[Any, Any]:
    """Return the type of an option, as tyro reads it, and the field with its default."""
    is_required = option.default is inspect.Parameter.empty
    is_repeated = option.parameter in REPEATED or get_origin(option.hint) is tuple
    default = None if is_required else option.default
    hint, metavar, *marks = _read(option, is_repeated)
    if is_repeated:
        default = default or ()
    text = option.text + " (repeatable)" * (is_repeated and not option.is_positional)
    if default not in (None, False, (), "") and "(default: " not in text:
        text += (
            f" (default: {default:g})" if isinstance(default, float) else f" (default: {default})"
        )
    if metavar != PATH:
        metavar = METAVARS.get(option.flag, metavar)
    if option.is_positional:
        name = option.parameter.upper()
        marks += get_args(Positional[str])[1:]
        metavar = name if is_required or is_repeated else f"[{name}]"
    hints: Mapping[str, Any] = {} if is_required else {"help_behavior_hint": ""}
    shown = arg(name=option.flag, metavar=metavar, help=text, **hints)
    own = field() if is_required else field(default=default)
    return Annotated[(hint, *marks, shown)], own


def _read(option: Option, is_repeated: bool) -> tuple[Any, ...]:
    """Return the type of an option's value, its name in the help, and how it is read.

    Types are such that tyro can check a default by itself. For `X | None` and `tuple[str, ...]` it
    takes typeguard, whose imports (asyncio, ssl) take as long as NumPy's.
    """
    kinds = alternatives(option.hint)
    if is_repeated:
        return (option.hint, "TEXT") if option.is_positional else (tuple, "TEXT", UseAppendAction)
    if bool in kinds:
        return bool, None
    if Literal in kinds:
        hints = (option.hint, *get_args(option.hint))
        choices = next(get_args(hint) for hint in hints if get_origin(hint) is Literal)
        return Optional[str], "|".join(choices)  # noqa: UP045
    if Path in kinds and option.parameter not in NAMED:
        return Optional[Path], PATH  # noqa: UP045
    if str in kinds or not {int, float} & set(kinds):
        return Optional[str], "TEXT"  # noqa: UP045
    kind, metavar, read = (int, "N", WHOLE) if int in kinds else (float, "X", REAL)
    return (Optional[kind] if type(None) in kinds else kind), metavar, read  # noqa: UP045
