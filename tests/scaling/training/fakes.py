"""Compiled steps that are watched, changed or stopped; commands as processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from scaling.training import loop
from scaling.training.loop import RunResult
from scaling.training.prepare import PreparedRun, Programs
from scaling.training.run_folder.folder import Options
from scaling.training.transformer import training_of


class FakeStep:
    """In place of the compiled step: calls `act` before each step, then the real one."""

    def __init__(
        self,
        real: Any,
        act: Callable[[int], object] = lambda step: None,
        change: Callable[[int, dict], dict] = lambda step, metrics: metrics,
    ):
        self.real, self.act, self.change = real, act, change
        self.batches: list[Any] = []  # that it was given

    def __call__(self, state: Any, tokens: Any) -> tuple[Any, dict]:
        self.act(len(self.batches) + 1)
        self.batches.append(tokens.inputs)
        state, metrics = self.real(state, tokens)
        return state, self.change(len(self.batches), metrics)

    def memory_analysis(self) -> Any:
        return self.real.memory_analysis()


def with_step(prepared: tuple[PreparedRun, Programs], **fakes: Any) -> tuple[PreparedRun, Programs]:
    """The same plan, and programs whose step is a FakeStep."""
    plan, programs = prepared
    step = FakeStep(programs.step, **fakes)
    return plan, replace(programs, step=step, run_step=step)


def train(plan: PreparedRun, programs: Programs, options: Options, *check: Any) -> RunResult:
    """Train one of our own runs, from its first batch on or as it is resumed."""
    return loop.train(plan, training_of(plan, programs, options.initial), options, *check)


def scaling(
    words: Iterable[object], environment: dict[str, str], **options: Any
) -> subprocess.Popen:
    """`scaling WORDS` as a process of its own, on CPU devices, with a cache of the test."""
    inherited = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    return subprocess.Popen(
        [sys.executable, "-m", "scaling", *map(str, words)],
        env={**inherited, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
