"""Jobs of several processes: when one of them is gone, the others end soon and say so.

    a step fails   because the sockets of a peer have closed: print it and exit at once, since an
                   orderly end would wait for the others
    a step hangs   the heartbeat of jax.distributed aborts the process, and its supervisor prints
                   the message (`scaling.train.launch.supervisor`)

A step needs every process, so the state of the step in flight is lost on all of them, and the last
checkpoint is what is left.
"""

import os
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

import jax

from scaling.meshes.errors import InputError
from scaling.train.checkpoint.checkpoints import Checkpoints
from scaling.train.launch.distributed import process_name
from scaling.train.launch.stopping import NotFinite
from scaling.train.launch.supervisor import BAD_INPUT, LOST, lost_peer_message

LAST_CHANCE = 5.0  # s for a checkpoint that is being written; without its peers it may not end
OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # of XLA, not a peer's
REASON_CHARACTERS = 300  # of XLA's message


@contextmanager
def abort_on_lost_peer(checkpoints: Checkpoints) -> Iterator[None]:
    """Around the steps of one process among several: an error of its own ends the process at once.

    An orderly end would wait for the others, which wait in a collective for this process. When it
    is gone they end too.
    """
    try:
        yield
    except NotFinite:  # on all processes at the same step
        raise
    except Exception as error:
        if jax.process_count() == 1:
            raise
        checkpoints.finish(LAST_CHANCE)
        abort(error, checkpoints.latest())


def abort(error: Exception, saved: int | None) -> NoReturn:
    """Print why this process cannot go on, and end it at once; `saved` is the last checkpoint."""
    code = LOST
    if isinstance(error, InputError):
        message, code = f"error: {error}", BAD_INPUT
    elif is_lost_peer(error):
        reason = textwrap.shorten(str(error), REASON_CHARACTERS)
        message = lost_peer_message(process_name(), reason, saved)
    else:
        message = f"{traceback.format_exc()}{process_name()} failed and ends"
    with suppress(OSError):  # whoever read our output may be gone
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
    os._exit(code)


def is_lost_peer(error: Exception) -> bool:
    """True if the error may come from another process: of XLA, and not one of OWN_FAULTS."""
    return isinstance(error, jax.errors.JaxRuntimeError) and not str(error).startswith(OWN_FAULTS)
