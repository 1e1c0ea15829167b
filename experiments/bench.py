"""This project's own speed, as ratios of two things measured in turn in one run (`make bench`).

    start       a command that needs no compiler   / `import numpy`, which nearly all need
    remat       a training step that recomputes    / one that keeps everything
    sharding    a step over eight host devices     / the same step on one
    loop        a step and what the trainer does around it / that step alone, both of the same step
    loop whole  the wall time of a step in the trainer     / the bare compiled step
    collective  prices of collectives              / smaller ones (`experiments.bench_collectives`)
    plan        a configuration of a search        / one predicted alone (`experiments.bench_plan`)

Seconds differ between machines and hours; a ratio of neighbours in time says more. After the table
come the counts of compiled steps, which no machine changes (`experiments.program_quality`).
"""

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, cast

import jax

from experiments import program_quality
from experiments.bench_collectives import collective_time
from experiments.bench_plan import plan_time
from experiments.gpu.cases import label
from experiments.gpu.machine import git_commit, versions
from experiments.gpu.measure import Program, Trainer, random_tokens, trainer
from experiments.ratios import Ratio, Timer, compare, python, seconds, table
from scaling.meshes.devices import use_host_devices
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import Batch, Run, Train
from scaling.run.recipes import recipe
from scaling.training import prepare
from scaling.training.loop import train
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.transformer import training_of

DEVICES = 8  # fake ones, as many as the tests use
BATCH = Batch(global_batch=DEVICES, seq_len=128)
STEPS = 5  # in one timing
LOOP_STEPS, WARM_UP = 15, 5  # of the trainer; the first ones are not counted
CLOSED_FORM = (  # commands that compile nothing
    "--help",
    "collective all-gather --bytes 56MiB --cluster dgx-h100 --nodes 16 --mesh fsdp=16,tensor=8",
    "count llama3-70b",
    "chip h100-sxm",
    "limits llama3-8b --cluster dgx-h100",
    "serve llama3-8b --cluster dgx-h100",
    "predict llama3-70b --cluster dgx-h100 --nodes 64 --mesh fsdp=64,tensor=8 --source analytic",
    "plan llama3-8b --cluster dgx-h100",
)


def start_time(rounds: int) -> Iterator[Ratio]:
    """Whole commands against Python with numpy: the goal is 1.5 times."""
    for words in CLOSED_FORM:
        command = python("-m", "scaling", *words.split())
        name = f"start {words.split()[0]}"
        numpy = python("-c", "import numpy")
        yield compare(name, f"scaling {words} / import numpy", command, numpy, rounds)


def remat_time(rounds: int) -> Iterator[Ratio]:
    """Steps that recompute against one that keeps everything, on one device."""
    for policy in ("selective", "full"):
        yield _steps(f"remat {policy}", demo(remat=policy), demo(), rounds)


def sharding_time(rounds: int) -> Iterator[Ratio]:
    """The same batch over eight devices (which share this machine's cores) and on one."""
    for mesh in (MeshShape(fsdp=8), MeshShape(data=2, fsdp=2, tensor=2)):
        yield _steps(f"sharding {mesh}", demo(mesh=mesh), demo(), rounds)


def loop_time(rounds: int) -> Iterator[Ratio]:
    """The time that data, metrics and progress add to a step, checkpoints left out.

    First within each step of one run, which is waited for: then nothing is hidden beside it, and
    the machine's moods are the same for both. Then as it is, against steps without a trainer.
    """
    shipped = {"batch": recipe("demo").batch, "mesh": MeshShape(fsdp=DEVICES)}
    plan = prepare.plan(demo(**shipped, train=Train(steps=LOOP_STEPS)))
    programs = prepare.compile_programs(plan)
    watched = WatchedStep(programs.step)
    for _ in range(rounds):
        _logged(plan, replace(programs, step=cast(jax.stages.Compiled, watched)))
    what = f"trainer / its steps, {label(plan.run)}"
    yield Ratio("loop", what, *watched.medians(), watched.ratios())
    with jax.set_mesh(plan.mesh):
        tokens = random_tokens(plan.run, plan.execution)
        bare = Trainer(Program(programs.step, plan.execution, 0.0), programs.init(), tokens)
        what = f"trainer / compiled step, {label(plan.run)}"
        logged = lambda: _logged(plan, programs)
        yield compare("loop whole", what, logged, _step_timer(bare), rounds)


class WatchedStep:
    """In place of a compiled step: waits for it, and notes when it began and ended.

    began  ended        began  ended
    |------|............|------|        step alone: the line; in the trainer: dots and line
    """

    def __init__(self, real: Callable[..., Any]):
        self.real = real
        self.times: list[tuple[float, float]] = []

    def __call__(self, *arguments: Any) -> Any:
        began = time.perf_counter()
        result = jax.block_until_ready(self.real(*arguments))
        self.times.append((began, time.perf_counter()))
        return result

    def memory_analysis(self) -> Any:
        """The memory plan of the step, which the trainer reads."""
        return cast(jax.stages.Compiled, self.real).memory_analysis()

    def pairs(self) -> list[tuple[float, float]]:
        """Seconds of each step in the trainer and alone; the first ones of a run do not count."""
        places = [i for i in range(1, len(self.times)) if i % LOOP_STEPS >= WARM_UP]
        ends = [(self.times[i - 1][1], *self.times[i]) for i in places]
        return [(ended - before, ended - began) for before, began, ended in ends]

    def medians(self) -> tuple[float, float]:
        """Seconds of a step in the trainer, and of a step alone."""
        inside, alone = zip(*self.pairs(), strict=True)
        return median(inside), median(alone)

    def ratios(self) -> tuple[float, ...]:
        """Step by step."""
        return tuple(inside / alone for inside, alone in self.pairs())


BENCHMARKS = {
    "start": start_time,
    "remat": remat_time,
    "sharding": sharding_time,
    "loop": loop_time,
    "collective": collective_time,
    "plan": plan_time,
}


def demo(**changes: Any) -> Run:
    """The demo's model on one device with a small batch, with some fields replaced."""
    run = replace(recipe("demo"), batch=BATCH, mesh=MeshShape())
    return replace(run, **changes)


def save(results: list[Ratio], path: Path) -> None:
    """Write the raw results as JSON."""
    rows = [{**asdict(result), "ratio": result.ratio} for result in results]
    document = {"schema": 1, "versions": versions(), "commit": git_commit(), "results": rows}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmarks, print the table, save the results."""
    parser = argparse.ArgumentParser(prog="python -m experiments.bench")
    parser.add_argument("--out", type=Path, default=Path("runs/bench.json"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=BENCHMARKS, action="append", help="may be repeated")
    args = parser.parse_args(arguments)
    jax.config.update("jax_platforms", "cpu")  # the same benchmark on every machine
    use_host_devices(DEVICES)
    results = [r for name in args.only or BENCHMARKS for r in BENCHMARKS[name](args.rounds)]
    save(results, args.out)
    print(f"{table(results)}\nresults: {args.out}")
    if not args.only:
        # Counts of compiled steps, where the compiler for GPUs that are not here is installed.
        try:
            program_quality.main()
        except InputError as error:
            print(f"no counts of steps compiled for GPUs: {error}")


def _steps(name: str, run: Run, baseline: Run, rounds: int) -> Ratio:
    with contextlib.ExitStack() as stack:
        ours, theirs = (
            stack.enter_context(trainer(r, jax.devices()[: _devices(r)])) for r in (run, baseline)
        )
        what = f"{label(run)} / {label(baseline)}"
        return compare(name, what, _step_timer(ours), _step_timer(theirs), rounds)


def _logged(plan: prepare.PreparedRun, programs: prepare.Programs) -> float:
    """Median seconds from the end of a step to that of the next, in a short run."""
    with tempfile.TemporaryDirectory() as folder:
        train(plan, training_of(plan, programs), Options(Path(folder)))
        ends = [line["time"] for line in read_metrics(folder) if "loss" in line]
    return median(later - earlier for earlier, later in pairwise(ends[WARM_UP:]))


def _step_timer(running: Trainer) -> Timer:
    def steps() -> None:
        for _ in range(STEPS):
            state = running()
        jax.block_until_ready(state)

    return lambda: seconds(steps) / STEPS


def _devices(run: Run) -> int:
    return run.mesh.devices if run.mesh else 1


if __name__ == "__main__":
    main()
