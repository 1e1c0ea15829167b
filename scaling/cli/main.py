"""The command line: finds the command, executes it, turns errors into exit codes.

Exit codes: 0 fine; 2 bad input, one message on stderr (with --json also {"name", "error"} on
stdout); 3 a price that grew by more than its limits; 130 stopped by Ctrl-C before there was
anything to save; 1 anything else, a stop on NaN included.
"""

import ast
import gc
import json
import os
import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from scaling.api.request import command_line
from scaling.cli.commands import GENERATED, GROUPS
from scaling.cli.generated import Command, location, parse_command, summary_of
from scaling.compile.quiet import VERBOSE
from scaling.meshes.errors import InputError, nearest
from scaling.training.launch.broken_pipe import redirect_to_devnull
from scaling.training.launch.gpu import avoid_absent_gpus

# New objects after which Python looks for cycles: more than a closed form makes, about 100 MB.
# After 700, Python's own figure, that was 6 % of the CPU time of `scaling price --hlo` on the dump
# of a 7B model, and a fifth of `scaling collective`, with the search when Python ends.
COLLECT_AFTER = 500_000
INTERRUPTED = 128 + signal.SIGINT  # as shells say that a signal ended a command: 130
STOPPED = "stopped by SIGINT"
DESCRIPTION = "One mesh definition that trains a sharded JAX transformer and prices the same step."
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
        if command.values.get("verbose"):
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
    """Return the command that the arguments name; None where they only want help, now printed."""
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
    return parse_command(name, GENERATED[name], rest)


def _help() -> str:
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
    gc.freeze()  # Python, which ends, looks through nothing
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
