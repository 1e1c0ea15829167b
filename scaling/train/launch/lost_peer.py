"""Jobs of several processes: when one of them is gone, the others end soon and say so.

    a step fails   because the sockets of a peer have closed: say so and leave at once, since a
                   proper end would wait for the others
    a step hangs   the heartbeat of jax.distributed aborts the process: who says so then is the
                   process beside it, see `scaling.train.launch.supervisor`

A step needs every process. So there is nothing to save: the state of the step in flight is lost on
all of them, and the last checkpoint is what there is.
"""

import os
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from scaling.meshes.errors import InputError
from scaling.train.checkpoint.checkpoints import Checkpoints
from scaling.train.launch.distributed import process_name
from scaling.train.launch.stopping import NotFinite
from scaling.train.launch.supervisor import BAD_INPUT, LOST, lost_peer_message

LAST_CHANCE = 5.0  # s for a checkpoint that is being written; without its peers it may not end
OWN_FAULTS = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "UNIMPLEMENTED")  # of XLA, not a peer's
REASON_CHARACTERS = 300  # of what XLA says


@contextmanager
def abort_on_lost_peer(checkpoints: Checkpoints) -> Iterator[None]:
    """Around the steps of one process among several: what stops it alone ends the process here.

    Whoever fails alone must not wait for the others: they wait in a collective for this process.
    When it is gone they end too.
    """
    try:
        yield
    except NotFinite:  # on all processes at the same step
        raise
    except Exception as error:
        if jax.process_count() == 1:
            raise
        checkpoints.finish(LAST_CHANCE)
        leave(error, checkpoints.latest())


def leave(error: Exception, saved: int | None) -> None:
    """Say why this process cannot go on, and end it at once."""
    if isinstance(error, InputError):
        said, code = f"error: {error}", BAD_INPUT
    elif is_lost_peer(error):
        said, code = (
            lost_peer_message(
                process_name(), textwrap.shorten(str(error), REASON_CHARACTERS), saved
            ),
            LOST,
        )
    else:
        said, code = f"{traceback.format_exc()}{process_name()} failed and ends", LOST
    sys.stdout.flush()
    print(said, file=sys.stderr, flush=True)
    os._exit(code)


def is_lost_peer(error: Exception) -> bool:
    """Whether a step failed because of another process, as far as the error tells."""
    ours = any(str(error).startswith(name) for name in OWN_FAULTS)
    return isinstance(error, jax.errors.JaxRuntimeError) and not ours
