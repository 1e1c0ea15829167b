"""The command line: finds the verb (`scaling.verbs`), runs it, turns errors into exit codes.

Exit codes: 0 fine; 2 bad input, one message on stderr (with --json also {"name", "error"} on
stdout); 130 stopped by Ctrl-C before there was anything to save; 1 anything else, a stop on NaN
included.
"""

import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

import tyro

from scaling.cli.verbs_machines import cluster, collective, testbed
from scaling.cli.verbs_pricing import calibrate, compare, predict
from scaling.cli.verbs_training import export, sample, sharding, train
from scaling.meshes.errors import InputError, nearest
from scaling.train.launch.broken_pipe import redirect_to_devnull
from scaling.train.launch.gpu import avoid_absent_gpus

INTERRUPTED = 128 + signal.SIGINT  # as shells say that a signal ended a command: 130
STOPPED = "stopped by SIGINT"
VERBS: dict[str, Callable[..., int]] = {
    "train": train,
    "predict": predict,
    "collective": collective,
    "compare": compare,
    "calibrate": calibrate,
    "sample": sample,
    "export": export,
    "sharding": sharding,
    "cluster": cluster,
    "testbed": testbed,
}


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    avoid_absent_gpus()
    try:
        _check_verb(arguments)
        code = tyro.extras.subcommand_cli_from_dict(
            VERBS, prog="scaling", description=DESCRIPTION, args=arguments
        )
        sys.stdout.flush()  # here, where a reader that has gone is no error
        return code
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        if "--json" in arguments:
            print(json.dumps({"name": getattr(error, "about", ""), "error": str(error)}))
        return 2
    except SystemExit as stop:  # by tyro, which has said on stderr what is wrong
        if stop.code and "--json" in arguments:
            print(json.dumps({"name": "", "error": "the arguments are not understood: see stderr"}))
        raise
    except (
        KeyboardInterrupt
    ):  # Ctrl-C where nothing has to be saved: the first step is still to come
        print(STOPPED, file=sys.stderr, flush=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        redirect_to_devnull(sys.stdout)
        return 0


def command() -> NoReturn:
    """The process of one verb: ends with its exit code.

    Ctrl-C ends it at once, except where the trainer has something to save. An exception instead
    would pass through compilers and garbage collectors that lose it, or crash.
    """
    warnings.showwarning = _warn
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, _interrupted)
    code = main()
    if code == INTERRUPTED:
        _end()
    sys.exit(code)


def _warn(message: Warning | str, *where: object, **more: object) -> None:
    """For a user: without the line of source that found it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    with suppress(OSError):  # Ctrl-C may have ended who reads it too
        os.write(sys.stderr.fileno(), f"{STOPPED}\n".encode())
    _end()


def _end() -> NoReturn:
    """Without taking jax apart, which would crash while it compiles."""
    os._exit(INTERRUPTED)


def _check_verb(arguments: list[str]) -> None:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in VERBS:
        raise InputError(f"scaling has no command {arguments[0]!r}; {nearest(arguments[0], VERBS)}")


DESCRIPTION = "One mesh definition that trains a sharded JAX transformer and prices the same step."

if __name__ == "__main__":
    command()
