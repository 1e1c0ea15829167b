"""The process beside each training process: says how that ended, and with `--restarts N` starts it
again.

    this process ---- scaling train ...            ends with 134, say
                 ---- scaling train ... --resume   from the last checkpoint

Every process of a job of several has one. When one training process is gone, the others cannot go
on: a step of theirs fails (`train.launch.lost_peer`), or jax aborts them in the middle of it, where
no Python can say a word. Then all are started again, each by the process beside it. What is lost
with its whole host stays lost: then the job is started anew, on the hosts that are left.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType

from scaling.meshes.errors import InputError
from scaling.train.checkpoint.steps import latest_step
from scaling.train.launch.distributed import (
    HEARTBEAT,
    coordinator_of_others,
    job_kind,
    process_name,
)

STOPPING = (signal.SIGTERM, signal.SIGINT)
LOST, BAD_INPUT = 1, 2  # exit codes
SHELL_SIGNAL = 128  # added to the number of the signal that ended a process
ABORTED = SHELL_SIGNAL + signal.SIGABRT  # by jax.distributed: the others are gone
SIGNALS = {number.value: number.name for number in signal.Signals}
PR_SET_PDEATHSIG = 1  # linux/prctl.h
BEGAN = "SCALING_TRAIN_BEGAN"  # environment variable: unix time at which the first attempt began
RECORD = "--record-profile"  # FROM:TO
SETTLE = 2.0  # s until the others have seen that the coordinator is gone
LONGEST_END = HEARTBEAT + 10.0  # s until the old processes of a job have ended
POLL = 0.2  # s


def run_with_restarts(
    arguments: list[str],
    restarts: int,
    folder: Path,
    env: Mapping[str, str] = os.environ,
    stopped_code: int = 0,
) -> int:
    """Run `scaling ARGUMENTS` in a child process, and again after a crash, up to `restarts` times.

    A restarted run resumes from the last checkpoint in `folder`, where there is one. Bad input
    (exit code 2) and a stop on NaN are not retried: they would happen again. SIGTERM and SIGINT
    are passed on to the child, and nothing is retried after one, nor after one that another process
    of the job was sent: all of them end with `stopped_code`.

    Returns:
        The exit code of the last attempt.
    """
    if restarts < 0:
        raise InputError(f"--restarts {restarts} must not be negative")
    several, environment = job_kind(env) is not None, {**env, BEGAN: repr(time.time())}
    code = 0
    for attempt in range(restarts + 1):
        known = _stops_on_nan(folder)
        words = _continued(arguments, folder) if attempt else arguments
        code, told_to_stop = _attempt(words, environment)
        if several and code - SHELL_SIGNAL in SIGNALS and not told_to_stop:
            message = _last_words(code, process_name(env), latest_step(folder / "checkpoints"))
            print(message, file=sys.stderr, flush=True)
            code = LOST
        # What was good input once is so later: then a job of several could not come together.
        bad_input = code == BAD_INPUT and not (several and attempt)
        if code in (0, stopped_code) or bad_input or told_to_stop or attempt == restarts:
            break
        if several:
            _let_the_others_end(env)
        if _stops_on_nan(folder) - known:
            break
        print(f"ended with {code}; restart {attempt + 1} of {restarts}", file=sys.stderr)
    return code


def is_worker(env: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that trains, with another beside it."""
    return BEGAN in env


def die_with_parent() -> None:
    """Where the kernel can do it: when the process beside us is killed, we are too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def lost_peer_message(who: str, reason: str, saved: int | None) -> str:
    """What happened to a process whose peers are gone, and what to do, for people.

    Args:
        who: which process.
        reason: what was seen of it.
        saved: step of the last checkpoint.
    """
    left = (
        f"the checkpoint of step {saved} is the last: the same command with --resume goes on from "
        "it, with a smaller --mesh also on fewer hosts; --restarts N does so by itself"
        if saved is not None
        else "no checkpoint was saved: start again in a new --run-dir (train.checkpoint_every says "
        "how often to save)"
    )
    return (
        f"stopped: {who} cannot go on, because another process of the job has ended or cannot be "
        f"reached: {reason}\n{left}"
    )


def _last_words(code: int, who: str, saved: int | None) -> str:
    """What to say about a training process that could not say it."""
    if code == ABORTED:
        return lost_peer_message(
            who, "jax names it above, as a task that crashed, if it is known", saved
        )
    name = SIGNALS[code - SHELL_SIGNAL]
    return f"stopped: {who} was ended by {name}; the other processes of the job end too"


def _stops_on_nan(folder: Path) -> set[tuple[Path, int]]:
    """Their files, with the times at which they were written: the same step may stop again."""
    return {(path, path.stat().st_mtime_ns) for path in folder.glob("nan_step_*.npz")}


def _let_the_others_end(env: Mapping[str, str]) -> None:
    """Wait until nobody of the old job answers, so that the new one does not join it."""
    address, deadline = coordinator_of_others(env), time.monotonic() + LONGEST_END
    while address and _answers(address) and time.monotonic() < deadline:
        time.sleep(POLL)
    if address is None and job_kind(env) != "explicit":  # only jax knows where to ask
        time.sleep(LONGEST_END)
    time.sleep(SETTLE)


def _answers(address: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(address, timeout=POLL):
            return True
    except OSError:
        return False


def _attempt(arguments: list[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """Exit code of one child, and whether a signal asked it to stop."""
    told: list[int] = []
    child: subprocess.Popen | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        told.append(number)
        if child is not None:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in STOPPING}
    try:
        words = [sys.executable, "-P", "-m", "scaling.cli.main", *arguments]
        # In a session of its own: signals come from us alone.
        child = subprocess.Popen(words, start_new_session=True, env=environment)
        for number in told:  # that came before there was a child
            child.send_signal(number)
        code = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    ended_by_signal = -code in STOPPING
    return (SHELL_SIGNAL - code if code < 0 else code), bool(told) or ended_by_signal


def _continued(arguments: list[str], folder: Path) -> list[str]:
    """The arguments of a restart; what a crash before the first checkpoint wrote is dropped."""
    saved = latest_step(folder / "checkpoints")
    if saved is None:
        (folder / "metrics.jsonl").unlink(missing_ok=True)
        return arguments
    words = _still_to_record(arguments, saved)
    return [*words, *(["--resume"] if "--resume" not in words else [])]


def _still_to_record(arguments: list[str], saved: int) -> list[str]:
    """The arguments without a profile whose first step is done."""
    if RECORD not in arguments:
        return arguments
    place = arguments.index(RECORD)
    first = int(arguments[place + 1].partition(":")[0])
    return arguments if first > saved else arguments[:place] + arguments[place + 2 :]
