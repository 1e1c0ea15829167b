"""Predicted against measured training steps on eight fake devices of this machine.

    calibrate     kernels, collectives, whole steps of models that are not among the cases
    predict       every case, from its compiled step, before any of them has run
    measure       a window of steps of each case in random order, five times

    error         predicted / median of the five - 1
    naive         FLOPs / the rate of the largest calibrated matrix product
    spread        distance of the quartiles of the five / their median

The goal is a mean absolute error below 10 %, or below twice the spread, whichever is larger.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

import jax
import numpy as np

from experiments.host_cases import CASES, DEVICES, Case
from experiments.host_results import Result, save, summary, table, verdict
from scaling.calibration.calibrate import calibrate
from scaling.calibration.steps import Steps
from scaling.meshes.devices import use_host_devices
from scaling.models.accounting import count_parameters, hardware_flops
from scaling.profiles.io import read_profile
from scaling.profiles.machine import busy
from scaling.profiles.profile import Profile
from scaling.run import Run
from scaling.simulate.resolve import HOST, target
from scaling.simulate.step import price

REPEATS = 5
WINDOW = 1.0  # s, the least time of a window
WARM_UP = 3  # steps: first use of buffers, threads and caches


class Running:
    """A case that was predicted before its first step, and has then been warmed up."""

    def __init__(self, case: Case, profile: Profile):
        self.case, self.steps = case, Steps(case.run)
        timeline = price(self.steps.program, target(case.run, HOST).cluster, profile).timeline
        self.predicted = float(timeline.total)
        names = ("compute", "optimizer", "exposed_communication", "host")
        self.parts = {name: float(getattr(timeline, name)) for name in names}
        for _ in range(WARM_UP):
            jax.block_until_ready(self.steps())
        self.count = max(2, math.ceil(WINDOW / self.window(2)))

    def window(self, steps: int) -> float:
        """Seconds of a step, over a window of so many."""
        start = time.perf_counter()
        for _ in range(steps):
            metrics = self.steps()
        jax.block_until_ready(metrics)
        return (time.perf_counter() - start) / steps

    def result(self, measured: Sequence[float], naive: float) -> Result:
        """With what was measured."""
        run, case = self.case.run, asdict(self.case)
        case["mesh"] = str(self.case.mesh)
        parameters = int(count_parameters(run.model).total)
        return Result(
            *(self.case.name, case, parameters, self.predicted, self.parts, naive),
            measured=tuple(measured),
            steps=self.count,
        )


def check(
    cases: Sequence[Case], profile: Profile, repeats: int = REPEATS, seed: int = 0
) -> list[Result]:
    """Predict all cases, then measure them in turn, in another order every time."""
    running = []
    for number, case in enumerate(cases, 1):
        tell(f"compiling {number} of {len(cases)}: {case.name}")
        running.append(Running(case, profile))
    found: list[list[float]] = [[] for _ in running]
    order, draw = list(range(len(running))), random.Random(seed)
    for repeat in range(repeats):
        tell(f"measuring, repeat {repeat + 1} of {repeats}")
        draw.shuffle(order)
        for i in order:
            found[i].append(running[i].window(running[i].count))
    naive = [naive_time(case.run, profile) for case in cases]
    return [r.result(f, n) for r, f, n in zip(running, found, naive, strict=True)]


def naive_time(run: Run, profile: Profile) -> float:
    """FLOPs of the step over the rate of the largest matrix product that was calibrated."""
    largest = max(profile.samples.matmul, key=lambda p: p.batch * p.m * p.n * p.k)
    flops = 2.0 * largest.batch * largest.m * largest.n * largest.k
    rate = flops / float(np.median(largest.seconds))
    batch = run.batch
    work = hardware_flops(run.model, batch.global_batch, batch.seq_len, run.remat)
    return float(work) / (DEVICES * rate)


def tell(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Calibrate, predict, measure, save, print."""
    parser = argparse.ArgumentParser(prog="python -m experiments.host_check")
    parser.add_argument("--out", type=Path, default=Path("experiments/results"))
    parser.add_argument("--quick", action="store_true", help="calibrate quickly")
    parser.add_argument("--calibration", type=Path, help="use this file, measure no other")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only so many, from the top")
    args = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")
    use_host_devices(DEVICES)
    other_load = busy()
    profile = read_profile(args.calibration) if args.calibration else calibrate(args.quick, tell)
    results = check(CASES[: args.cases], profile, args.repeats)
    folder = args.out / f"{date.today().isoformat()}-host-check"
    save(results, profile, folder, other_load)
    print("\n".join([*table(results), verdict(summary(results)), f"results: {folder}"]))


if __name__ == "__main__":
    main()
