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
import json
import math
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

import jax
import numpy as np

from experiments.gpu.machine import git_commit
from meshes.devices import use_host_devices
from meshes.shape import MeshShape
from models.accounting import count_parameters, hardware_flops
from models.accounting.flops import Remat
from models.config import ModelConfig
from scaling.calibrate.calibrate import calibrate
from scaling.calibrate.machine import busy, machine, versions
from scaling.calibrate.steps import Steps
from scaling.cost.profile import Profile
from scaling.cost.profile_file import read_profile, write_profile
from scaling.price import price
from scaling.report.columns import columns
from scaling.run import Batch, Precision, Run, Train
from scaling.targets import HOST, target

SCHEMA = 1  # of the results file; a key that goes or changes its meaning makes it 2
DEVICES = 8
REPEATS = 5
WINDOW = 1.0  # s, the least time of a window
WARM_UP = 3  # steps: first use of buffers, threads and caches
GOAL, SPREADS = 0.10, 2.0  # mean absolute error; or so many spreads


@dataclass(frozen=True)
class Case:
    """A run, in the words of the table."""

    width: int
    layers: int
    sequences: int
    length: int
    mesh: MeshShape
    remat: Remat = "none"
    microbatches: int = 1
    vocabulary: int = 2048

    @property
    def name(self) -> str:
        """`4 x 256, 16 x 128 tokens, fsdp=8, remat full`."""
        extras = [f"remat {self.remat}"] if self.remat != "none" else []
        extras += [f"{self.microbatches} microbatches"] if self.microbatches > 1 else []
        size = f"{self.layers} x {self.width}, {self.sequences} x {self.length} tokens"
        return ", ".join([size, str(self.mesh), *extras])

    @property
    def run(self) -> Run:
        """What is trained."""
        model = ModelConfig(
            vocab_size=self.vocabulary,
            d_model=self.width,
            n_layers=self.layers,
            n_heads=8,
            n_kv_heads=8,
            d_ff=4 * self.width,
            mlp="swiglu",
            norm="rmsnorm",
            positions="rope",
        )
        return Run(
            name=self.name,
            model=model,
            batch=Batch(self.sequences, self.length, self.microbatches),
            mesh=self.mesh,
            precision=Precision(compute="fp32"),
            remat=self.remat,
            train=Train(steps=1),
        )


CASES = (
    Case(256, 4, 16, 64, MeshShape(data=8)),
    Case(256, 4, 16, 64, MeshShape(fsdp=8)),
    Case(256, 6, 8, 128, MeshShape(data=2, fsdp=4)),
    Case(256, 4, 16, 128, MeshShape(fsdp=2, tensor=4), "full"),
    Case(320, 4, 16, 64, MeshShape(data=4, tensor=2)),
    Case(384, 4, 8, 128, MeshShape(data=2, fsdp=2, tensor=2)),
    Case(384, 3, 16, 64, MeshShape(fsdp=8), "selective"),
    Case(384, 3, 32, 32, MeshShape(data=8), microbatches=2),
    Case(512, 2, 16, 64, MeshShape(fsdp=4, tensor=2)),
    Case(512, 3, 8, 64, MeshShape(tensor=8)),
    Case(512, 2, 8, 128, MeshShape(data=4, fsdp=2), "full"),
    Case(640, 2, 16, 32, MeshShape(data=2, tensor=4)),
    Case(768, 2, 8, 64, MeshShape(fsdp=8), vocabulary=4096),
    Case(192, 8, 16, 64, MeshShape(data=2, fsdp=2, tensor=2), "selective", vocabulary=512),
)


@dataclass(frozen=True)
class Result:
    """One case. Seconds."""

    name: str
    run: dict[str, Any]
    parameters: int
    predicted: float
    parts: dict[str, float]  # of the predicted step
    naive: float
    measured: tuple[float, ...]  # a step, one for every repeat
    steps: int  # in a window

    @property
    def typical(self) -> float:
        """Median over the repeats."""
        return median(self.measured)

    @property
    def spread(self) -> float:
        """Distance of the quartiles over the median."""
        low, _, high = quantiles(self.measured, n=4, method="inclusive")
        return (high - low) / self.typical

    @property
    def error(self) -> float:
        """Of the prediction, relative."""
        return self.predicted / self.typical - 1

    @property
    def naive_error(self) -> float:
        """Of the naive figure, relative."""
        return self.naive / self.typical - 1


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
    largest = max(profile.points.matmul, key=lambda p: p.batch * p.m * p.n * p.k)
    flops = 2.0 * largest.batch * largest.m * largest.n * largest.k
    rate = flops / float(np.median(largest.seconds))
    batch = run.batch
    work = hardware_flops(run.model, batch.global_batch, batch.seq_len, run.remat)
    return float(work) / (DEVICES * rate)


def summary(results: Sequence[Result]) -> dict[str, float]:
    """Absolute errors over all cases, and the goal."""
    errors = [abs(result.error) for result in results]
    naive = [abs(result.naive_error) for result in results]
    spread = mean(result.spread for result in results)
    return {
        "mean_error": mean(errors),
        "median_error": median(errors),
        "worst_error": max(errors),
        "mean_naive_error": mean(naive),
        "median_naive_error": median(naive),
        "worst_naive_error": max(naive),
        "mean_spread": spread,
        "goal": max(GOAL, SPREADS * spread),
    }


def table(results: Iterable[Result]) -> list[str]:
    """One line per case."""
    head = ("case", "parameters", "predicted", "measured", "spread", "error", "naive")
    rows = [
        (
            r.name,
            f"{r.parameters / 1e6:.1f} M",
            f"{1e3 * r.predicted:.0f} ms",
            f"{1e3 * r.typical:.0f} ms",
            f"{r.spread:.1%}",
            f"{r.error:+.1%}",
            f"{r.naive_error:+.1%}",
        )
        for r in results
    ]
    return columns([head, *rows])


def verdict(figures: dict[str, float]) -> str:
    """The summary in words."""
    reached = "reached" if figures["mean_error"] <= figures["goal"] else "missed"
    return (
        f"absolute error: mean {figures['mean_error']:.1%}, median {figures['median_error']:.1%}, "
        f"worst {figures['worst_error']:.1%}; naive (FLOPs over the matmul rate): mean "
        f"{figures['mean_naive_error']:.1%}, median {figures['median_naive_error']:.1%}, worst "
        f"{figures['worst_naive_error']:.1%}. Mean spread of the repeats "
        f"{figures['mean_spread']:.1%}. Goal: mean below {figures['goal']:.1%}: {reached}."
    )


def save(results: Sequence[Result], profile: Profile, folder: Path, other_load: str) -> None:
    """Raw data, calibration and a table."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": SCHEMA,
        "date": date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
        "commit": git_commit(),
        "other_load": other_load,
        "summary": summary(results),
        "results": [
            {**asdict(r), "error": r.error, "naive_error": r.naive_error, "spread": r.spread}
            for r in results
        ],
    }
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    write_profile(profile, folder / "calibration.json")
    (folder / "README.md").write_text(page(results, document), encoding="utf-8")


def page(results: Sequence[Result], document: dict[str, Any]) -> str:
    """What a reader of the results folder sees first."""
    packages = ", ".join(f"{name} {found}" for name, found in document["versions"].items())
    disturbed = f" Disturbed: {document['other_load']}." if document["other_load"] else ""
    lines = [
        "# Predicted and measured steps on this machine's CPU",
        "",
        f"{document['date']}, {document['machine']}, {packages}, commit {document['commit']}."
        f"{disturbed}",
        "",
        "Made by `python -m experiments.host_check`: first calibrated (`calibration.json`),",
        "then all cases predicted, then measured. No case is among the models that were calibrated",
        "with. Layers x width, sequences x tokens; `naive`: error of FLOPs over the matmul rate.",
        "",
        "```",
        *table(results),
        "```",
        "",
        verdict(document["summary"]),
    ]
    return "\n".join(lines) + "\n"


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
