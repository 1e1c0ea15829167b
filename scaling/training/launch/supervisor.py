"""The supervisor of a training process: prints how it ended, and restarts it (`--restarts N`).

    supervisor ---- scaling train ...            ends with 134, say
               ---- scaling train ... --resume   from the last checkpoint

Every process of a job of several has one. When one training process is gone, the others cannot go
on: a step of theirs fails (`train.launch.lost_peer`), or jax aborts them in the middle of it, where
no Python can print a word. Then all are started again, each by its supervisor. A host that is lost
takes its supervisor along: then the job is started anew, on the hosts that are left.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import FrameType

from scaling.meshes.errors import InputError
from scaling.training.launch.distributed import (
    HEARTBEAT,
    JOIN,
    coordinator_of_others,
    job_kind,
    process_name,
)
from scaling.training.launch.heartbeats import BEATS, Beat, read_beat
from scaling.training.run_folder.steps import how_to_go_on, latest_step

STOPPING = (signal.SIGTERM, signal.SIGINT)
STOPPED = ("T", "t")  # states of a process: by a signal, by a debugger; proc(5)
LOST, BAD_INPUT, STUCK = 1, 2, 124  # exit codes; 124 is that of timeout(1)
RESTARTS = "--restarts N does so by itself"
ANOTHER = "another process of the job"  # where jax does not say which one is gone
SHELL_SIGNAL = 128  # added to the number of the signal that ended a process
ABORTED = SHELL_SIGNAL + signal.SIGABRT  # by jax.distributed: the others are gone
SIGNALS = {number.value: number.name for number in signal.Signals}
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Environment variables of the training process.
BEGAN = "SCALING_TRAIN_BEGAN"  # unix time at which the first attempt began
RESTARTED = "SCALING_TRAIN_RESTARTED"  # set in every attempt but the first
SETTLE = 2.0  # s until the others have seen that the coordinator is gone
LONGEST_END = HEARTBEAT + 10.0  # s until the old processes of a job have ended
POLL = 0.2  # s
UNANSWERED = 2 * HEARTBEAT  # s: a job has lost a process that is stopped for longer
LAST_WORDS = 2.0  # s for a stuck process to print its stack
PIPE = 2**16  # bytes of heartbeats read at once


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
    metrics = folder / "metrics.jsonl"
    ours = not (metrics.exists() and metrics.stat().st_size)  # else an earlier run wrote it
    code = 0
    for attempt in range(restarts + 1):
        nan_files = _nan_files(folder)
        argv = arguments
        if attempt and latest_step(folder / "checkpoints") is None:
            if ours:  # what the file holds will be written again
                metrics.unlink(missing_ok=True)
        elif attempt and "--resume" not in arguments:
            argv = [*arguments, "--resume"]
        code, stopped = _attempt(argv, environment, process_name(env) if several else "")
        environment[RESTARTED] = "1"
        if several and code - SHELL_SIGNAL in SIGNALS and not stopped:
            who, name = process_name(env), SIGNALS[code - SHELL_SIGNAL]
            message = f"stopped: {who} was ended by {name}; the other processes of the job end too"
            if code == ABORTED:
                because = "jax names it above, as a task that crashed, if it is known"
                message = lost_peer_message(who, because, folder)
            print(message, file=sys.stderr, flush=True)
            code = LOST
        # Input that was good once still is: then a job of several could not come together.
        bad_input = code == BAD_INPUT and not (several and attempt)
        if code in (0, stopped_code) or bad_input or stopped or attempt == restarts:
            break
        if several:
            _wait_for_old_job(env)
        if _nan_files(folder) != nan_files:
            break
        waits = f", which waits up to {JOIN} s for the others of the job" if several else ""
        message = f"ended with {code}; restart {attempt + 1} of {restarts}{waits}"
        print(message, file=sys.stderr, flush=True)
    return code


def die_with_parent() -> None:
    """Have the kernel kill this process when its supervisor dies, where it can (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))


def lost_peer_message(who: str, reason: str, folder: Path, peer: str = ANOTHER) -> str:
    """The message of the process `who` whose `peer` is gone, of a run in `folder`."""
    return (
        f"stopped: {who} cannot go on, because {peer} has ended or cannot be reached: {reason}\n"
        f"{how_to_go_on(folder)}. {RESTARTS}"
    )


def _nan_files(folder: Path) -> set[tuple[Path, int]]:
    """Files of stops on NaN with their times: the same step may stop again."""
    return {(path, path.stat().st_mtime_ns) for path in folder.glob("nan_step_*.npz")}


def _wait_for_old_job(env: Mapping[str, str]) -> None:
    """Wait until the coordinator of the old job is gone, so that the new one does not join it."""
    address, deadline = coordinator_of_others(env), time.monotonic() + LONGEST_END
    with suppress(OSError):  # nobody answers there any more
        while address and time.monotonic() < deadline:
            socket.create_connection(address, timeout=POLL).close()
            time.sleep(POLL)
    if address is None and job_kind(env) != "explicit":  # only jax knows the address
        time.sleep(LONGEST_END)
    time.sleep(SETTLE)


def _attempt(arguments: list[str], environment: Mapping[str, str], who: str) -> tuple[int, bool]:
    """Exit code of one child, and whether a signal stopped it.

    `who` is its name in a job of several.
    """
    received: list[int] = []
    child: subprocess.Popen | None = None

    def pass_on(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if child is not None:
            child.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in STOPPING}
    heard, told = os.pipe()
    try:
        command = [sys.executable, "-P", "-m", "scaling", *arguments]
        # In a session of its own: signals come from us alone.
        given = {**environment, BEATS: str(told)}
        child = subprocess.Popen(command, start_new_session=True, env=given, pass_fds=[told])
        os.close(told)
        os.set_blocking(heard, False)
        for number in received:  # before there was a child
            child.send_signal(number)
        code, line, since = None, "", time.monotonic()
        while code is None:  # a signal just before a wait would be passed on only when that ends
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(POLL)
            with suppress(BlockingIOError):
                whole = os.read(heard, PIPE).decode().rpartition("\n")[0]
                if last := whole.rpartition("\n")[2]:
                    line, since = last, time.monotonic()
            silent = time.monotonic() - since
            if code is None and line and _is_stuck(read_beat(line), silent, child.pid, bool(who)):
                code = _end_stuck(child, read_beat(line), silent, who or "the training process")
    finally:
        os.close(heard)
        for number, handler in before.items():
            signal.signal(number, handler)
    ended_by_signal = -code in STOPPING
    return (SHELL_SIGNAL - code if code < 0 else code), bool(received) or ended_by_signal


def _is_stuck(beat: Beat, silent: float, pid: int, several: bool) -> bool:
    """True if a child whose last heartbeat is `silent` seconds old will not go on by itself.

    Alone it may be stopped for as long as somebody likes.
    """
    if silent < UNANSWERED:
        return False
    if _state(pid) in STOPPED:
        return several
    return silent > beat.limit + UNANSWERED  # the others shall say before who it is


def _state(pid: int) -> str:
    """The letter of a process's state, as in proc(5); "" where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _end_stuck(child: subprocess.Popen, beat: Beat, silent: float, who: str) -> int:
    """Have a child that says nothing print its stack, kill it, and say so."""
    state = _state(child.pid)
    for number in (signal.SIGQUIT, signal.SIGCONT):  # `faulthandler` waits for no lock of Python's
        child.send_signal(number)
    time.sleep(LAST_WORDS)
    child.kill()
    child.wait()
    why = "is stopped by a signal" if state in STOPPED else "does not answer"
    message = f"stuck: {who} {why} for {silent:.0f} s, {beat.where()}; its stack stands above"
    print(message, file=sys.stderr, flush=True)
    return STUCK
