"""The watchdog of a training process: threads that go on while the main one waits.

    main thread    mark("data", 13)   mark("step", 13)    ... waits in a collective
    ticker         every second: where the main thread is, to the supervisor of this process
    exchange       every few seconds: the same to jax's coordinator; process 0 reads what all have
                   written there and judges (`launch.heartbeats`), the others read its verdict

When the job is stuck every process gives a save in progress some time, says who stands where, with
its stack, and ends with STUCK, so that `--restarts` goes on from the last checkpoint. A state of
the step in flight cannot be saved: a step takes the arrays of the one before it.

A process of which no thread runs (stopped, or a library holds Python's lock) is named by the
others, and ended by its supervisor. Seconds are counted while these threads run, so that neither a
machine that is suspended nor one that is overloaded makes a sound job stuck.
"""

import faulthandler
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import jax

from scaling.run import Train
from scaling.training.launch.heartbeats import (
    ASKED,
    LONG,
    NAMED,
    SILENT,
    Beat,
    Link,
    read_beat,
    step_limit,
    stuck,
    unanswered,
    verdict,
)
from scaling.training.launch.supervisor import BEATS, BEGAN, STUCK, how_to_go_on
from scaling.training.run_folder.steps import latest_step

TICK = 1.0  # s
BEAT = SILENT / 4  # s between exchanges
RATE = 500  # heartbeats/s that the coordinator takes at most; chosen by this project
REMEMBERED = 100  # steps whose seconds are known
FRAMES = 8  # of a stack, innermost first
LAST_SAVE = 30.0  # s for a save in progress
ENDING = threading.Event()  # set when the watchdog ends this process
_numbers = itertools.count()  # of the watchdogs of this process: each has keys of its own


class Store(Protocol):
    """What all processes can read and write."""

    def set(self, key: str, text: str) -> None: ...
    def get(self, key: str) -> str | None: ...
    def below(self, folder: str) -> dict[str, str]: ...


class Watchdog(AbstractContextManager["Watchdog"]):
    """Watches this process and, as the first of a job, all of them; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        minutes: float | None = None,
        compiles: int = 0,
        index: int = 0,
        processes: int = 1,
        store: Store | None = None,
        leave: Callable[[int], object] = os._exit,
    ):
        """Make one, on every process.

        Args:
            folder: of the run.
            minutes: without progress in a step; 0: watch nothing; None: derived.
            compiles: first steps that are compiled anew.
            store: None: of a single process.
        """
        self._folder, self._minutes, self._compiles = folder, minutes, compiles
        self._index, self._processes, self._store, self._leave = index, processes, store, leave
        self._main, self._host = threading.get_ident(), socket.gethostname()
        self._place = 0, 0, "start"  # places passed, step, this one; written by the main thread
        self._steps = 0
        self._noted = self._place, 0.0  # and the seconds there, by the ticker
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)  # of steps, to a TICK
        self._heard: dict[int, tuple[str | None, float]] = {}  # beats, and s since they came
        self._verdict, self._told = "", False
        self._closed, self._threads = threading.Event(), list[threading.Thread]()
        self.finish: Callable[[float], object] = lambda seconds: None  # a save in progress

    def mark(self, place: str, step: int | None = None) -> None:
        """Pass a place of the program, at which all processes come by; None: the step before."""
        count, before, _ = self._place
        self._steps += place == "step"
        self._place = count + 1, before if step is None else step, place

    def __enter__(self) -> "Watchdog":
        if self._minutes != 0:
            with suppress(OSError, ValueError):  # no stderr
                faulthandler.register(signal.SIGQUIT)
            period = max(BEAT, self._processes / RATE)
            for turn, seconds in ((self.tick, TICK), (self.exchange, period)):
                if turn == self.tick or self._store is not None:
                    thread = threading.Thread(target=self._every, args=(turn, seconds), daemon=True)
                    self._threads.append(thread)
                    thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.mark("end")
        self._closed.set()
        for thread in self._threads:
            thread.join(TICK)
        if self._threads:
            self.tick(0.0)

    def _every(self, turn: Callable[[float], None], seconds: float) -> None:
        last = time.monotonic()
        while not self._closed.wait(seconds):
            now = time.monotonic()
            turn(min(now - last, 2 * seconds))
            last = now

    def tick(self, gap: float) -> None:
        """Note where the main thread is, `gap` seconds after the last look; end if all is lost."""
        place, waited = self._noted
        if self._place != place:
            if place[2] == "step":
                self._seconds.append(waited)
            self._noted = self._place, 0.0
        else:
            self._noted = place, waited + gap
        beat = self._beat()
        if self._store is None and not self._verdict and stuck({0: beat}) is not None:
            self._verdict = verdict({0: beat}, [0], {0: self._stack()}, {})
        if (pipe := supervisor_pipe()) is not None:
            with suppress(OSError):  # full, or nobody reads
                os.write(pipe, f"{beat.text()}\n".encode())
        if self._verdict and not self._told:
            self._told = True
            self._end()

    def exchange(self, gap: float) -> None:
        """Tell the others where this process is; judge, or hear the verdict.

        `gap` seconds after the last time. Of process 0 each of the others judges: if it does not
        answer, there is no verdict.
        """
        assert self._store is not None
        own, first = self._beat(), self._index == 0
        with suppress(jax.errors.JaxRuntimeError):  # no coordinator: jax ends this process
            if own.waited > own.limit / 2:
                self._store.set(f"stacks/{self._index}", self._stack())
                self._store.set(f"links/{self._index}", json.dumps(_lost_links()))
            self._store.set(f"beats/{self._index}", own.text())
            if not first and (said := self._store.get("verdict")):
                self._verdict = said
                return
            beats = self._listen(range(self._processes) if first else (0, self._index), gap)
            culprits = stuck(beats)
            if culprits is None or not (first or beats[0].silent > SILENT):
                return
            asked = culprits[:NAMED] or range(min(ASKED, self._processes))
            stacks, links = (
                {i: text for i in asked if (text := self._store.get(f"{what}/{i}"))}
                for what in ("stacks", "links")
            )
            pairs = {i: json.loads(text) for i, text in links.items()}
            self._verdict = verdict(beats, culprits, stacks, pairs)
            if first:
                self._store.set("verdict", self._verdict)

    def _listen(self, processes: Sequence[int], gap: float) -> dict[int, Beat]:
        """The beats of processes, and how long they have been silent, `gap` seconds later."""
        assert self._store is not None
        texts = self._store.below("beats") if self._index == 0 else {}
        beats = {}
        for i in processes:
            text = texts.get(str(i)) if self._index == 0 else self._store.get(f"beats/{i}")
            before, silent = self._heard.get(i, (None, 0.0))
            silent = silent + gap if text == before else 0.0
            self._heard[i] = text, silent
            beat = read_beat(text) if text else Beat(0, 0, "start", 0.0, LONG, "not heard of yet")
            beats[i] = replace(beat, waited=beat.waited + silent, silent=silent)
        return beats

    def _beat(self) -> Beat:
        (count, step, place), waited = self._noted
        limit = step_limit(self._minutes, place, self._steps - self._compiles, self._seconds)
        return Beat(count, step, place, waited, limit, self._host)

    def _stack(self) -> str:
        """Where the main thread is, innermost first."""
        frames = traceback.extract_stack(sys._current_frames()[self._main])[::-1][:FRAMES]
        return " < ".join(f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in frames)

    def _end(self) -> None:
        """Say what is stuck and end this process; only say it if nobody would start it again."""
        ends = self._store is not None or BEGAN in os.environ
        if ends:
            ENDING.set()
            self.finish(LAST_SAVE)
        saved = latest_step(self._folder / "checkpoints")
        lines = [self._verdict]
        if self._index:
            lines = [f"process {self._index} ({self._host}) ends: the job is stuck", self._stack()]
        elif ends:
            lines += ["the state of that step cannot be saved", how_to_go_on(saved, self._folder)]
        with suppress(OSError, ValueError):  # nobody reads
            print("\n".join(lines), file=sys.stderr, flush=True)
        if ends:
            # So that all know before the first is gone, and the coordinator goes last.
            time.sleep(2 * BEAT if self._index else 3 * BEAT)
            self._leave(STUCK)


def _lost_links() -> list[Link]:
    """TCP connections of this process that get no answer; [] where Linux does not say."""
    links, sockets = [], set()
    with suppress(OSError):
        for fd in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed by now
                sockets.add(os.readlink(f"/proc/self/fd/{fd}"))
        for name in ("tcp", "tcp6"):
            links += unanswered(Path(f"/proc/self/net/{name}").read_text(), sockets)
    return links


@cache
def supervisor_pipe() -> int | None:
    """Where the supervisor of this process hears its heartbeats; None without one."""
    number = os.environ.pop(BEATS, None)  # no process that this one starts has it
    if number is None:
        return None
    os.set_inheritable(int(number), False)
    os.set_blocking(int(number), False)
    return int(number)


@dataclass(frozen=True)
class Coordinator:
    """The keys and values of jax's coordination service, which its public interface lacks."""

    client: Any
    prefix: str

    def set(self, key: str, text: str) -> None:
        """Write, over what was there."""
        self.client.key_value_set(self.prefix + key, text, allow_overwrite=True)

    def get(self, key: str) -> str | None:
        """Read; None if nothing is there."""
        try:
            return self.client.key_value_try_get(self.prefix + key)
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" not in str(error):
                raise
            return None

    def below(self, folder: str) -> dict[str, str]:
        """All below a folder."""
        pairs = self.client.key_value_dir_get(self.prefix + folder)
        return {key.rpartition("/")[2]: text for key, text in pairs}


def watchdog(folder: Path, train: Train) -> Watchdog:
    """The watchdog of a run on all processes of the job, which make it at the same point."""
    from jax._src.distributed import global_state  # jax 0.10.2 has no public name for it

    index, processes = jax.process_index(), jax.process_count()
    store = Coordinator(global_state.client, f"scaling/watchdog/{next(_numbers)}/")
    alone = processes == 1
    settings = train.watchdog_minutes, train.pgle_runs
    return Watchdog(folder, *settings, index, processes, None if alone else store)
