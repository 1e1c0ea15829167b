"""The command line: finds the command, executes it, turns errors into exit codes.

Exit codes: 0 fine; 2 bad input, one message on stderr (with --json also {"name", "error"} on
stdout); 130 stopped by Ctrl-C before there was anything to save; 1 anything else, a stop on NaN
included.
"""

import ast
import gc
import io
import itertools
import json
import os
import re
import signal
import sys
import warnings
from collections import Counter
from contextlib import redirect_stderr, suppress
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, get_type_hints

import tyro

from scaling.api.request import command_line
from scaling.cli.commands import GENERATED, GROUPS
from scaling.cli.generated import Command, location, summary_of
from scaling.cli.generated import command_class as generated_class
from scaling.compile.quiet import VERBOSE
from scaling.meshes.errors import InputError, nearest
from scaling.training.launch.broken_pipe import redirect_to_devnull
from scaling.training.launch.gpu import avoid_absent_gpus

# New objects after which Python looks for cycles. After 700, its own figure, that was 6 % of the
# CPU time of `scaling price --hlo` on the dump of a 7B model; nearly all that is read is kept.
COLLECT_AFTER = 50_000
INTERRUPTED = 128 + signal.SIGINT  # as shells say that a signal ended a command: 130
STOPPED = "stopped by SIGINT"
DESCRIPTION = "One mesh definition that trains a sharded JAX transformer and prices the same step."
# tyro's message about a value of one type, and of one of several types
UNREADABLE = re.compile(
    r"Error parsing (--[\w-]+): (?:.*? from \[|[^']*literal[^']*|could[^']*)('.*?')"
)
COMMANDS = [name for group in GROUPS.values() for name in group]


def main(arguments: list[str] | None = None) -> int:
    """Execute one command; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    avoid_absent_gpus()
    subject = ""
    try:
        command = parse(arguments)
        if command is None:
            return 0
        subject = command.subject
        if getattr(command, "verbose", False):
            os.environ[VERBOSE] = "1"
        with command_line(arguments):
            code = command.execute()
        sys.stdout.flush()  # here, where a reader that has gone is no error
        return code
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        if "--json" in arguments:
            print(json.dumps({"name": subject, "error": str(error)}))
        return 2
    except KeyboardInterrupt:  # Ctrl-C where nothing has to be saved
        print(STOPPED, file=sys.stderr, flush=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        redirect_to_devnull(sys.stdout)
        return 0


def parse(arguments: list[str]) -> Command | None:
    """Return the command that the arguments name; None where they only want help, now printed.

    Raises:
        InputError: an unknown command or option, or a value that cannot be read.
    """
    name, *rest = arguments or ["--help"]
    if name == "--version":
        import scaling

        print(f"scaling {scaling.__version__}")
        return None
    if name in ("-h", "--help"):
        print(_help())
        return None
    if name not in COMMANDS:
        what = "option" if name.startswith("-") else "command"
        raise InputError(f"scaling has no {what} {name!r}; {nearest(name, COMMANDS)}")
    return _parse_options(name, rest)


def _parse_options(name: str, arguments: list[str]) -> Command | None:
    """Read the options of one command; tyro's box becomes one line."""
    _check_repeats(name, arguments)
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            command: Command = tyro.cli(
                command_class(name),
                prog=f"scaling {name}",
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
            return command
    except SystemExit as stop:
        if not stop.code:
            return None
        raise InputError(_one_line(said.getvalue(), name, arguments)) from None


def _check_repeats(name: str, arguments: list[str]) -> None:
    """Refuse an option that is given twice, unless it is repeatable; tyro takes the last."""
    ours = itertools.takewhile(lambda word: word != "--", arguments)
    given = Counter(word.partition("=")[0] for word in ours if word.startswith("--"))
    for field in fields(command_class(name)):
        option = option_of(field.name)
        if given[option] > 1 and field.default != ():
            raise InputError(f"{option} is given twice; give it once")


def option_of(field: str) -> str:
    """The option of a field; one with a name that Python keeps for itself ends in an underscore."""
    return f"--{field.rstrip('_').replace('_', '-')}"


def command_class(name: str) -> Any:
    """Return the class whose fields are the options of a command."""
    return generated_class(GENERATED[name])


def _one_line(box: str, name: str, arguments: list[str]) -> str:
    """Return tyro's message without its frame and without the help that it repeats.

    A box has the title in its frame; plain text has it above the first line of dashes.
    """
    lines = [line.strip("│ ") for line in box.splitlines()]
    inner = [line for line in lines if line[:1] not in ("╭", "╰")]  # without colours: all lines
    parts = re.split(r"\n[─-]{5,}\n", "\n".join(inner))
    message = " ".join(parts[len(inner) == len(lines)].split())
    where = f"see scaling {name} --help"
    if wrong := UNREADABLE.match(message):
        found = f"{wrong[1]} {wrong[2]} cannot be read"
        if reason := re.search(r"invalid literal for int|could not convert", message):
            found += ": a whole number is needed" if "int" in reason[0] else ": a number is needed"
        return f"{found}; {where}"
    if unknown := re.match(r"Unrecognized (?:options|arguments): (.*)", message):
        word = unknown[1].split(",")[0]
        hints = get_type_hints(command_class(name), include_extras=True).items()
        options = [option_of(field) for field, hint in hints if not _is_positional(hint)]
        return f"scaling {name} has no option {word}; {nearest(word, options)}"
    return f"{message}; {where}"


def _is_positional(hint: Any) -> bool:
    return any("Positional" in str(mark) for mark in getattr(hint, "__metadata__", ()))


def _help() -> str:
    """Return the list of commands, in groups, with their summaries."""
    width = max(map(len, COMMANDS))
    groups = (
        "\n".join([f"{title}:", *(f"  {name.ljust(width)}  {_summary(name)}" for name in names)])
        for title, names in GROUPS.items()
    )
    more = "scaling COMMAND --help shows its options; scaling --version the version."
    return "\n\n".join(["usage: scaling COMMAND ...", DESCRIPTION, *groups, more])


def _summary(name: str) -> str:
    """The first sentence about a command, read without importing what the command needs."""
    if text := GENERATED[name].summary:
        return summary_of(text)
    module, function = location(GENERATED[name].function)
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:]).with_suffix(".py")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    nodes = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == function]
    return summary_of(ast.get_docstring(nodes[-1]))


def command() -> NoReturn:
    """The process of one command: ends with its exit code.

    Ctrl-C ends it at once, except where the trainer has something to save. An exception instead
    would pass through compilers and garbage collectors that lose it, or crash.
    """
    gc.set_threshold(COLLECT_AFTER)
    warnings.showwarning = _warn
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, _interrupted)
    code = main()
    if code == INTERRUPTED:
        _end()
    sys.exit(code)


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    """Print a warning without the line of source that found it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    with suppress(OSError):  # Ctrl-C may have ended who reads it too
        os.write(sys.stderr.fileno(), f"{STOPPED}\n".encode())
    _end()


def _end() -> NoReturn:
    """Without taking jax apart, which would crash while it compiles."""
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    command()
