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
from dataclasses import replace
from pathlib import Path

import jax

from scaling.run import Train
from scaling.run.own import Loop
from scaling.training.launch.consensus import Coordinator
from scaling.training.launch.heartbeats import (
    ASKED,
    BEAT,
    LONG,
    MUTE,
    NAMED,
    RATE,
    SILENT,
    Beat,
    lost_links,
    read_beat,
    step_limit,
    stuck,
    tell_supervisor,
    verdict,
)
from scaling.training.launch.supervisor import BEGAN, RESTARTS, STUCK, UNANSWERED
from scaling.training.run_folder.steps import how_to_go_on

TICK = 1.0  # s
REMEMBERED = 100  # steps whose seconds are known
FRAMES = 8  # of a stack, innermost first
LAST_SAVE = 30.0  # s for a save in progress
ENDING = threading.Event()  # set when the watchdog ends this process
_numbers = itertools.count()  # of the watchdogs of this process: each has keys of its own


class Watchdog(AbstractContextManager["Watchdog"]):
    """Watches this process and, as the first of a job, all of them; use as a context manager."""

    def __init__(
        self,
        folder: Path,
        minutes: float | None = None,
        compiles: int = 0,
        index: int = 0,
        processes: int = 1,
        store: Coordinator | None = None,
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
        self._period = max(BEAT, processes / RATE)  # s
        self._main, self._host = threading.get_ident(), socket.gethostname()
        self._own = Beat(0, 0, "start", 0.0, LONG, self._host)  # the last one, by the ticker
        self._place = 0, 0, "start"  # places passed, step, this one; written by the main thread
        self._steps = 0
        self._noted = self._place, 0.0  # and the seconds there, by the ticker
        self._seconds: deque[float] = deque(maxlen=REMEMBERED)  # of steps, to a TICK
        self._heard: dict[int, tuple[str | None, float]] = {}  # beats, and s since they came
        self._verdict, self._judged, self._told = "", False, False
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
            for turn, seconds in ((self.tick, TICK), (self.exchange, self._period)):
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
            try:
                turn(min(now - last, 2 * seconds))
            except Exception:  # it goes on watching
                _say(f"watchdog: {traceback.format_exc()}")
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
        (count, step, here), waited = self._noted
        limit = step_limit(self._minutes, here, self._steps - self._compiles, self._seconds)
        self._own = beat = Beat(count, step, here, waited, limit, self._host)
        if self._store is None and not self._verdict and stuck({0: beat}) is not None:
            self._judged, self._verdict = True, verdict({0: beat}, [0], {0: self._stack()}, {})
        tell_supervisor(beat)
        if self._verdict and not self._told:
            self._told = True
            self._end()

    def exchange(self, gap: float) -> None:
        """Tell the others where this process is; judge, or hear the verdict.

        `gap` seconds after the last time. If process 0 does not answer there is no verdict, and
        each of the others comes to its own.
        """
        assert self._store is not None
        own, first = self._own, self._index == 0
        with suppress(jax.errors.JaxRuntimeError):  # no coordinator: jax ends this process
            if own.waited > own.limit / 2:
                self._store.set(f"stacks/{self._index}", self._stack())
                self._store.set(f"links/{self._index}", json.dumps(lost_links()))
            self._store.set(f"beats/{self._index}", own.text())
            if not first and (said := self._store.get("verdict")):
                self._verdict = said
                return
            beats = self._listen(range(self._processes) if first else (0, self._index), gap)
            culprits = stuck(beats)
            if culprits is None or not (first or beats[0].silent):
                return
            some = range(min(ASKED, self._processes))
            stacks, links = (
                {i: text for i in asked if (text := self._store.get(f"{what}/{i}"))}
                for what, asked in (("stacks", culprits[:NAMED] or some), ("links", some))
            )
            pairs = {i: json.loads(text) for i, text in links.items()}
            self._judged = True
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
            mute = silent if silent > SILENT * self._period else 0.0
            beats[i] = replace(beat, waited=beat.waited + silent, silent=mute)
        return beats

    def _stack(self) -> str:
        """Where the main thread is, innermost first."""
        frames = itertools.islice(traceback.walk_stack(sys._current_frames()[self._main]), FRAMES)
        codes = [(frame.f_code, line) for frame, line in frames]
        return " < ".join(f"{Path(c.co_filename).name}:{n} in {c.co_name}" for c, n in codes)

    def _end(self) -> None:
        """Say what is stuck and end this process; only say it if nobody would start it again."""
        ends = self._store is not None or BEGAN in os.environ
        if ends:
            ENDING.set()
            tell_supervisor(
                replace(self._own, place="end", limit=LONG)
            )  # this thread says nothing more
        who = f"process {self._index} ({self._host})"
        brief = f"{who} ends with a stuck job: {self._stack()}"
        _say(self._verdict if self._judged else brief)
        if ends:
            self.finish(LAST_SAVE)
            if self._judged:
                _say(f"{how_to_go_on(self._folder)}. {RESTARTS}")
            # So that all know before the first is gone, and the coordinator goes last. The
            # supervisor of who is mute has time to show its stack: jax ends it once they are gone.
            mute = UNANSWERED if MUTE in self._verdict else 0.0
            time.sleep((2 if self._index else 3) * self._period + mute)
            self._leave(STUCK)


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # nobody reads
        print(text, file=sys.stderr, flush=True)


def watchdog(folder: Path, train: Train | Loop) -> Watchdog:
    """The watchdog of a run on all processes of the job, which make it at the same point."""
    from jax._src.distributed import global_state  # no public name: 0.10.2, 0.11.2

    index, processes = jax.process_index(), jax.process_count()
    store = Coordinator(global_state.client, f"scaling/watchdog/{next(_numbers)}/")
    alone = processes == 1
    compiles = train.pgle_runs if isinstance(train, Train) else 0
    return Watchdog(
        folder, train.watchdog_minutes, compiles, index, processes, None if alone else store
    )
