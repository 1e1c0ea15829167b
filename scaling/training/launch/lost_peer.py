"""Jobs of several processes: when one of them is gone, the others end soon and say so.

    a step fails   because the sockets of a peer have closed: print it and exit at once, since an
                   orderly end would wait for the others
    a step hangs   the heartbeat of jax.distributed aborts the process, and its supervisor prints
                   the message (`scaling.training.launch.supervisor`)

So it is before and after the steps, where processes agree on what each of them found.

A step needs every process, so the state of the step in flight is lost on all of them, and the last
checkpoint is what is left.
"""

import os
import re
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import jax

from scaling.meshes.errors import InputError
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.launch.consensus import process_names
from scaling.training.launch.distributed import process_name
from scaling.training.launch.stopping import NotFinite
from scaling.training.launch.supervisor import ANOTHER, BAD_INPUT, LOST, lost_peer_message
from scaling.training.launch.watchdog import ENDING

LAST_CHANCE = 5.0  # s for a checkpoint that is being written; without its peers it may not end
OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # of XLA, not a peer's
REASON_CHARACTERS = 300  # of XLA's message
# jax 0.10 raises what XLA reports as a JaxRuntimeError or, where the host reads an array, as a
# ValueError. It begins with the name of the status (absl/status/status.h).
STATUS = re.compile(r"(ABORTED|CANCELLED|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|UNKNOWN): ")
# Where jax 0.10 has the number of the process that is gone, in errors of barriers and heartbeats.
NUMBER = re.compile(r"(?:[Tt]ask:? ?|task names:\n|heartbeats\):\n)(\d+)")


@contextmanager
def abort_on_lost_peer(checkpoints: Checkpoints) -> Iterator[list[str]]:
    """Around the steps of one process among several: an error of its own ends the process at once.

    An orderly end would wait for the others, which wait in a collective for this process. When it
    is gone they end too. Yields the names of all processes.
    """
    names: list[str] = []
    try:
        names += process_names()
        yield names
    except NotFinite:  # on all processes at the same step
        raise
    except Exception as error:
        if jax.process_count() == 1:
            raise
        checkpoints.finish(LAST_CHANCE)
        abort(error, checkpoints.folder.parent, names)


@contextmanager
def end_with_peers(folder: Path) -> Iterator[None]:
    """Around a run of one process among several: say which peer is gone, and end at once.

    An orderly end would wait for it. Other errors pass.
    """
    try:
        yield
    except Exception as error:
        if lost_peer(error) is None or jax.process_count() == 1:
            raise
        abort(error, folder)


def abort(error: Exception, folder: Path, names: Sequence[str] = ()) -> NoReturn:
    """Print why this process cannot go on, and end it at once.

    Args:
        folder: of the run.
        names: of all processes, where they are known.
    """
    code = LOST
    if ENDING.is_set():
        threading.Event().wait()  # the watchdog ends this process, and says why
    if jax.process_count() > 1 and (lost := lost_peer(error)):
        reason = textwrap.shorten(str(lost), REASON_CHARACTERS)
        match = NUMBER.search(str(lost))  # the process that the error is about, as far as it says
        number = int(match[1]) if match else len(names)
        peer = names[number] if number < len(names) else ANOTHER
        message = lost_peer_message(process_name(), reason, folder, peer)
    elif isinstance(error, InputError):
        message, code = f"error: {error}", BAD_INPUT
    else:
        message = f"{traceback.format_exc()}{process_name()} failed and ends"
    with suppress(OSError):  # whoever read our output may be gone
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
    os._exit(code)


def lost_peer(error: BaseException | None) -> BaseException | None:
    """The error that may come from another process, of this one and its causes; None without one.

    It is one of XLA, and not one of OWN_FAULTS. A checkpoint that waits for a lost process fails
    like one without a disk: only the cause tells.
    """
    while error is not None:
        if isinstance(error, jax.errors.JaxRuntimeError) and not str(error).startswith(OWN_FAULTS):
            return error
        if isinstance(error, ValueError) and STATUS.match(str(error)):
            return error
        if isinstance(error, TimeoutError) and STATUS.search(str(error)):
            return error  # of Orbax 0.12.8, which may leave out what its barrier failed for
        error = error.__cause__
    return None
