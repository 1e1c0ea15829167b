"""A long run, watched from outside: does anything grow, or become slower? (Linux)

    python -m experiments.soak experiments/results/DATE-soak --minutes 20

A run trains in generations, each a process of its own. All but the last are ended by SIGKILL, and
the next goes on with --resume; it evaluates and saves all the time. Every few seconds what the
process holds is written to samples.csv; at the end the table says what grew.

What counts as growth stands in `experiments.soak_growth`.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from experiments.soak_growth import Sample, growths, table, write
from scaling.meshes.errors import InputError
from scaling.run import Train
from scaling.training.run_folder.metrics import read_metrics

SAMPLES = "samples.csv"
START = 600.0  # s until the first step, on a busy machine
POLL = 0.2  # s
TAIL = 10_000  # bytes at the end of metrics.jsonl, some twenty lines
RUN, LOG = "run", "log"
STOPPED = 3  # exit code of a run that was stopped and saved; 0 would be that of its last step
TRAIN = (
    *(sys.executable, "-m", "scaling", "train", "tiny", "--devices", "2", "--mesh", "fsdp=2"),
    *("--steps", "10000000", "--stopped-code", str(STOPPED)),
    *("--set", "train.checkpoint_every=300", "--set", "train.eval_every=1000"),
)


def soak(folder: Path, seconds: float, generations: int, every: float) -> Iterator[Sample]:
    """Train in `folder` and watch: `seconds` in all after first steps, a sample `every` s.

    Raises:
        InputError: a generation ended by itself, or the run folder is not whole at the end.
    """
    for generation in range(generations):
        end = signal.SIGTERM if generation == generations - 1 else signal.SIGKILL
        with (folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                [*TRAIN, "--run-dir", str(folder / RUN), *(["--resume"] if generation else [])],
                stdout=log,
                stderr=log,
            )
            try:
                yield from _watch(process, folder, generation, seconds / generations, every)
                process.send_signal(end)
                code = process.wait(START)
            finally:
                process.kill()
                process.wait()
        if code != (STOPPED if end == signal.SIGTERM else -end):
            raise InputError(f"generation {generation} ended with {code}: {_tail(folder)}")
    _check_whole(folder / RUN)


def _watch(
    process: subprocess.Popen, folder: Path, generation: int, seconds: float, every: float
) -> Iterator[Sample]:
    """Samples of a generation, from its first step on."""
    metrics, held = folder / RUN / "metrics.jsonl", Path(f"/proc/{process.pid}")
    begun = time.time()
    while not (last := _last_step(metrics, begun)):
        if process.poll() is not None or time.time() > begun + START:
            raise InputError(f"generation {generation} makes no step: {_tail(folder)}")
        time.sleep(POLL)
    first = before = time.monotonic()
    while before < first + seconds:
        time.sleep(every)
        if process.poll() is not None:
            raise InputError(f"generation {generation} ended by itself: {_tail(folder)}")
        now, step = time.monotonic(), _last_step(metrics, begun)
        yield Sample(
            generation=generation,
            seconds=round(now - first, 2),
            step=step,
            rss=int((held / "statm").read_text().split()[1]) * resource.getpagesize(),
            files=len(os.listdir(held / "fd")),
            threads=len(os.listdir(held / "task")),
            checkpoints=_bytes_below(folder / RUN / "checkpoints"),
            metrics=metrics.stat().st_size,
            step_time=round((now - before) / max(1, step - last), 6),
        )
        before, last = now, step


def _tail(folder: Path) -> str:
    """The end of what the generations printed."""
    return (folder / LOG).read_text(errors="replace")[-1000:]


def _last_step(metrics: Path, begun: float) -> int:
    """The newest step that ended after `begun` (unix time); 0 if there is none yet."""
    if not metrics.exists():
        return 0
    with metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - TAIL))
        lines = file.read().split(b"\n")[1:-1]  # the first and the last may be torn
    steps = [line for line in map(json.loads, lines) if line.get("time", 0.0) > begun]
    return steps[-1]["step"] if steps else 0


def _bytes_below(folder: Path) -> int:
    """Bytes of all files; files and folders that vanish meanwhile do not count."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(place, name)).st_size
    return total


def _check_whole(run: Path) -> None:
    """Every step is there, a repeated one with the same loss, and only the checkpoints kept."""
    losses: dict[int, float] = {}
    for line in read_metrics(run):
        if "loss" in line and losses.setdefault(line["step"], line["loss"]) != line["loss"]:
            raise InputError(f"step {line['step']} was repeated with another loss")
    if list(losses) != list(range(1, len(losses) + 1)):
        raise InputError(f"{run} lacks steps, or has them out of order")
    names = sorted(path.name for path in (run / "checkpoints").glob("step_*"))
    if len(names) != Train.keep_checkpoints or names[-1] != f"step_{len(losses):08d}":
        raise InputError(f"step {len(losses)} was the last, and the checkpoints are {names}")


def main() -> None:
    """Soak, write the samples, print the table; exit code 1 if something grew."""
    parser = argparse.ArgumentParser(prog="experiments.soak", description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, help="folder of samples.csv")
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, in all")
    parser.add_argument("--generations", type=int, default=4, help="processes one after the other")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between samples")
    options = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.error("it reads /proc, which only Linux has")
    options.results.mkdir(parents=True, exist_ok=True)
    samples: list[Sample] = []
    figures = 60 * options.minutes, options.generations, options.every
    try:
        with tempfile.TemporaryDirectory() as folder:
            for sample in soak(Path(folder), *figures):
                samples.append(sample)
                write(samples, options.results / SAMPLES)
        print(table(samples))
    except InputError as error:
        parser.exit(1, f"error: {error}\n")
    sys.exit(not all(growth.is_flat for growth in growths(samples)))


if __name__ == "__main__":
    main()
