"""Commands, made from the signatures and the `Args:` of functions.

    def plan(run, cluster=None, *, top: int = 10): ...     scaling plan RUN --cluster NAME --top N

A function of the API is called by another one, which has what only a terminal has: it is given the
call, ready to be made, and more options, which are read from its signature and `Args:` likewise.

    def shown(call, *, json: bool = False) -> int: ...     --json
"""

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import scaling as sc
from scaling.api.parameters import arguments_of, texts_of
from scaling.api.public_api import alternatives
from scaling.api.request import FLAGS
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.units import parse_real, parse_whole

METAVARS = {  # by flag, or by function and flag
    "cluster": "NAME",
    "mesh": "AXIS=N,...",
    "device-order": "AXIS,...",
    "set": "KEY=VALUE",
    "override": "KEY=VALUE",
    "option": "NAME=VALUE",
    "fixed": "KEY=VALUE",
    "what-if": "'FIGURE xN'",
    **dict.fromkeys(("data", "also"), "PATH"),
    **dict.fromkeys(("trips", "branches", "local"), "KEY=VALUE"),
    "guess": "X",
    **dict.fromkeys(("plan batch", "plan nodes"), "N|FROM:TO"),
    "plan precision": "FORMAT,...",
    "plan cluster": "NAME,...",
    "plot": "KIND=FILE",
    "source": "auto|analytic|compiled|stored",
    **dict.fromkeys(("dtype", "kv", "compute", "output"), "FORMAT"),
}
# As well as what is annotated as a tuple of texts.
REPEATED = (
    *("set", "overrides", "options", "what_if", "data", "fixed", "trips", "branches", "kernels"),
)
# Options of earlier versions, by command and flag, and what does now what they did.
REMOVED = dict.fromkeys(
    ("eval choices", "eval chat"), "lm-eval asks questions: docs/howto.md, Use a trained model"
)
# May be paths, and names of what comes with the project:
NAMED = ("run", "cluster", "model", "like")
# What is seldom asked for stands last in the help.
SELDOM = (
    "device_order",
    "overrides",
    "options",
    "calibration",
    "measured",
    "ideal",
    "all",
    "json",
    "verbose",
)
# In a description: what only Python can give, and what is done without the parameter.
ONLY_PYTHON = re.compile(r",? or an? (?:[A-Z]\w+|mapping|sequence)(?=[.;,]|$)")
WITHOUT = re.compile(r"; None: (.+?)(?=\.$|\. (?=[A-Z])|; )")


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
    """One parameter as an option, or as a positional argument."""

    parameter: str
    default: Any  # `inspect.Parameter.empty`: it must be given
    flag: str  # "--mesh"; of a positional argument its name in the help
    metavar: str  # the name of its value in the help; "": it takes none
    text: str  # its help
    read: Callable[[str], Any]  # ValueError for what is no value
    needed: str  # what a value must be that cannot be read
    is_repeated: bool
    is_positional: bool
    is_extra: bool  # a parameter of the function that is given the call

    def value(self, typed: Sequence[str]) -> Any:
        """Return the value of the texts that were typed; the default where none was."""
        if not typed:
            if self.default is inspect.Parameter.empty:
                name = self.flag if self.is_positional else f"{self.flag} {self.metavar}"
                raise InputError(f"Missing {name}: {self.text}")
            return self.default
        try:
            return tuple(typed) if self.is_repeated else self.read(typed[0])
        except ValueError:
            raise InputError(
                f"{self.flag} {typed[0]!r} cannot be read: {self.needed} is needed"
            ) from None


@dataclass(frozen=True)
class Command:
    """A command and the values of its options."""

    face: Generated
    given: Mapping[str, Any]  # to the function, by parameter: what is not as without the option
    extra: Mapping[str, Any]  # to what is given the call

    @property
    def values(self) -> Mapping[str, Any]:
        return {**self.extra, **self.given}

    @property
    def subject(self) -> str:
        """The run, cluster or folder that an error is about."""
        names = ("name", *self.face.positional)
        return str(next(filter(None, map(self.values.get, names)), ""))

    def execute(self) -> int:
        """Do it and return the exit code."""
        call = partial(function_of(self.face.function), **self.given)
        code: int = function_of(self.face.shown)(call, **self.extra)
        return code


def location(function: str) -> tuple[str, str]:
    """Return the module and the name of a function: of `scaling`, or of module:name."""
    module, _, name = function.rpartition(":")
    return module or (sc._MODULES | sc.learn._MODULES)[name], name


def function_of(text: str) -> Any:
    """Return the function."""
    module, name = location(text)
    return getattr(importlib.import_module(module), name)


def parse_command(name: str, face: Generated, words: Sequence[str]) -> Command | None:
    """Return the command with its options; None where its help was asked for, now printed.

    Words after -- belong to the positional arguments.

    Raises:
        InputError: an option that there is not, is missing, is given twice, or cannot be read.
    """
    options = options_of(face)
    if {"-h", "--help"}.intersection(takewhile(lambda word: word != "--", words)):
        print(_help(name, face, options), end="")
        return None
    typed = _typed(name, options, words)
    try:
        values = {o: o.value(typed[o.parameter]) for o in options}
    except InputError as error:
        raise InputError(f"{error}; see {_called(name)} --help") from None
    asked = {
        o.parameter: value for o, value in values.items() if not o.is_extra and value != o.default
    }
    return Command(face, asked, {o.parameter: value for o, value in values.items() if o.is_extra})


def _called(name: str) -> str:
    """Return a command as it is typed: `scaling price`; a notebook's `%%price` is one itself."""
    return name if name.startswith("%%") else f"scaling {name}"


def _typed(name: str, options: Sequence[Option], words: Sequence[str]) -> Mapping[str, list[str]]:
    """Return the texts that were typed, by parameter; that of a switch is its flag.

    argparse would drop the value of --mesh=--, and refuse that of --guess -1e-3.
    """
    by_flag = {option.flag: option for option in options if not option.is_positional}
    unknown = lambda word: InputError(
        f"{_called(name)} has no option {word}; "
        + (REMOVED.get(f"{name} {word[2:]}") or nearest(word, list(by_flag)))
    )
    typed: dict[str, list[str]] = {option.parameter: [] for option in options}
    free: list[str] = []  # of no option
    rest = iter(words)
    for word in rest:
        flag, is_joined, value = word.partition("=")
        if word == "--":
            free += rest
        elif not word.startswith("--") and not re.match(r"-[^\W\d]", word):
            free.append(word)
        elif flag not in by_flag:
            raise unknown(flag)
        elif typed[by_flag[flag].parameter] and not by_flag[flag].is_repeated:
            raise InputError(f"{flag} is given twice; give it once")
        else:
            option = by_flag[flag]
            if not option.metavar and is_joined:
                raise InputError(f"{flag} takes no value; see {_called(name)} --help")
            if option.metavar and not is_joined:
                value = next(rest, "--")
                if value.startswith("--"):
                    raise InputError(
                        f"{flag} needs a value, {flag}={option.metavar}; see {_called(name)} --help"
                    )
            typed[option.parameter].append(value if option.metavar else flag)
    for option in (o for o in options if o.is_positional):
        count = len(free) if option.is_repeated else 1
        typed[option.parameter], free = free[:count], free[count:]
    if free:
        taken = " ".join(o.flag for o in options if o.is_positional) or "no arguments"
        raise InputError(f"{_called(name)} takes {taken}; what is {free[0]!r}?")
    return typed


class _Help(argparse.HelpFormatter):
    """Keeps the paragraphs of a description apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        return "\n\n".join(fill(paragraph, width, indent) for paragraph in text.split("\n\n"))


def _help(name: str, face: Generated, options: Sequence[Option]) -> str:
    positional = [option.flag for option in options if option.is_positional]
    summary = face.summary or summary_of(inspect.getdoc(function_of(face.function)))
    parser = argparse.ArgumentParser(
        prog=_called(name).replace("%", "%%"),  # which argparse replaces
        usage=" ".join([f"{_called(name)} [-h] [OPTIONS]", *positional]).replace("%", "%%"),
        description=f"{summary}\n\nExample: {face.example}",
        formatter_class=partial(_Help, max_help_position=26),
    )
    for option in options:
        text = option.text.replace("%", "%%")
        if option.is_positional:
            parser.add_argument(option.parameter, metavar=option.flag, help=text)
        elif option.metavar:
            parser.add_argument(option.flag, metavar=option.metavar, help=text)
        else:
            parser.add_argument(option.flag, action="store_true", help=text)
    return parser.format_help()


def summary_of(docstring: str | None) -> str:
    """Return the first sentence of a docstring on one line; what is returned is printed."""
    text = " ".join((docstring or "").partition("\n\n")[0].split())
    return re.sub(r"^Return ", "Print ", text.partition(". ")[0].rstrip(".") + ".")


def words(text: str, flags: Mapping[str, str]) -> str:
    """Return what a parameter means as the help of its option; `flags` are by parameter."""
    text = WITHOUT.sub(r" (default: \1)", ONLY_PYTHON.sub("", text))
    text = re.sub(r"`([^`]*)`", lambda found: flags.get(found[1], found[1]), text)
    return text[:1].upper() + text[1:]


def options_of(face: Generated) -> list[Option]:
    """Return the options of a command in the order of its help; those of both its functions."""
    extra = list(_options(function_of(face.shown), face, is_extra=True))
    own = {option.parameter for option in extra}  # which the function is not given as it stands
    asked = (o for o in _options(function_of(face.function), face) if o.parameter not in own)
    order = (*face.positional, *face.first, "", *SELDOM)
    place = lambda o: order.index(o.parameter if o.parameter in order else "")
    return sorted([*asked, *extra], key=place)


def _options(function: Any, face: Generated, is_extra: bool = False) -> Iterator[Option]:
    """Yield the parameters that a command line gives; that of the call is no option."""
    shown = function_of(face.shown)
    texts = {**texts_of(shown), **texts_of(function), **arguments_of(shown), **face.texts}
    hidden = ("call",) if is_extra else face.hidden
    parameters = inspect.signature(function).parameters
    given = {name: parameter for name, parameter in parameters.items() if name not in hidden}
    flags = {n: f"--{face.flags.get(n) or FLAGS.get(n, n)}".replace("_", "-") for n in given}
    called = {name: name.upper() if name in face.positional else flags[name] for name in given}
    for name, parameter in given.items():
        flag, default = flags[name], parameter.default
        is_required, is_positional = default is inspect.Parameter.empty, name in face.positional
        is_repeated = name in REPEATED or get_origin(parameter.annotation) is tuple
        if is_repeated and not is_required:
            default = default or ()
        metavar, read, needed = _read(name, parameter.annotation, is_repeated)
        if read is not Path:
            own = METAVARS.get(f"{face.function} {flag[2:]}")
            metavar = own or METAVARS.get(flag[2:], metavar)
        text = words(texts[name], called)
        text += " (repeatable)" * (is_repeated and not is_positional) + " (required)" * is_required
        if (
            default not in (None, False, (), "", inspect.Parameter.empty)
            and "(default: " not in text
        ):
            shown = f"{default:g}" if isinstance(default, float) else default
            text += f" (default: {shown})"
        if is_positional:
            flag = name.upper() if is_required or is_repeated else f"[{name.upper()}]"
        kinds = (is_repeated, is_positional, is_extra)
        yield Option(name, default, flag, metavar, text, read, needed, *kinds)


def _read(name: str, hint: Any, is_repeated: bool) -> tuple[str, Callable[[str], Any], str]:
    """Return the name of a parameter's value in the help, how it is read, and what is needed."""
    kinds = alternatives(hint)
    if is_repeated:
        return "TEXT", str, "a text"
    if bool in kinds:
        return "", bool, ""
    if Literal in kinds:
        choices = next(get_args(h) for h in (hint, *get_args(hint)) if get_origin(h) is Literal)
        return "|".join(choices), str, "a text"
    if Path in kinds and name not in NAMED:
        return "PATH", Path, "a path"
    if str in kinds or not {int, float} & set(kinds):
        return "TEXT", str, "a text"
    return ("N", parse_whole, "a whole number") if int in kinds else ("X", parse_real, "a number")
