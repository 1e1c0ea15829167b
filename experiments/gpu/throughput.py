"""Throughput, MFU and peak memory of two models on the GPUs of this machine (`make gpu`).

    python -m experiments.gpu.throughput --out experiments/results        about 8 minutes
    python -m experiments.gpu.throughput --out runs/gpu-tiny --tiny       toys, seconds, anywhere

Each case prints its line as it ends, and the results file is written anew after each, so that a
run that is stopped keeps what it has. A case that does not fit in memory is kept as such, and half
its batch is tried next.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax

from experiments.gpu.cases import cases, halved, label, tiny_cases
from experiments.gpu.ceilings import measure_ceilings
from experiments.gpu.machine import LOAD, describe, identify, nvidia_smi
from experiments.gpu.measure import is_out_of_memory, measure, short, with_rates
from experiments.gpu.predicted import calibrated
from experiments.gpu.table import line, table
from experiments.gpu.timing import QUICK, THOROUGH
from scaling.run import Run, run_dict
from scaling.train.launch.gpu import reserve_gpu_memory

SCHEMA = 1  # of the results file; a key that goes or changes its meaning makes it 2
FIRST_CASE = 60.0  # s, allowed for a case before any has been timed
MARGIN = 1.2  # a case is begun if this many times the longest so far still fits


@dataclass
class Budget:
    """Time that may be spent, and how long cases have taken."""

    deadline: float  # on the clock of time.monotonic
    longest: float = FIRST_CASE / MARGIN

    def allows_a_case(self) -> bool:
        """True if another case would end in time, judged by the longest so far."""
        return time.monotonic() + MARGIN * self.longest < self.deadline

    def spent(self, seconds: float, is_first: bool) -> None:
        """Note the duration of a case."""
        self.longest = seconds if is_first else max(self.longest, seconds)


def run_cases(
    todo: list[Run], measure_one: Callable[[Run], dict[str, Any]], budget: Budget
) -> Iterator[dict[str, Any]]:
    """Outcomes in turn; their `status` is "ok", "out of memory", "failed" or "not run"."""
    todo, done, is_first = list(todo), set[Run](), True
    while todo:
        run = todo.pop(0)
        done.add(run)
        if not budget.allows_a_case():
            yield _case(run, "not run", {"error": "the time was up"})
            continue
        start = time.monotonic()
        outcome = _outcome(run, measure_one)
        gc.collect()  # frees the device memory of a case that failed
        budget.spent(time.monotonic() - start, is_first)
        is_first = False
        half = halved(run) if outcome["status"] == "out of memory" else None
        if half is not None and half not in done and half not in todo:
            todo.insert(0, half)
        yield outcome


def result_path(folder: Path, slug: str, day: str) -> Path:
    """A file that is not there yet: `<slug>/throughput-<day>.json`, then `...-2.json` and so on."""
    path, number = folder / slug / f"throughput-{day}.json", 1
    while path.exists():
        number += 1
        path = path.with_name(f"throughput-{day}-{number}.json")
    return path


def save(document: dict[str, Any], path: Path) -> None:
    """Write the results; whoever reads the file meets the old ones or the new ones, whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    partial.replace(path)


def main(arguments: list[str] | None = None) -> None:
    """Measure all cases, print and save them."""
    args = _parse(arguments)
    deadline = time.monotonic() + 60 * args.minutes
    reserve_gpu_memory()
    devices = jax.local_devices()
    chip = identify(devices[0].device_kind)
    now = datetime.now(UTC)
    path = result_path(args.out, chip.slug, f"{now:%Y-%m-%d}")
    todo = [run for run in _all_cases(args.tiny, len(devices)) if args.only in label(run)]
    ceilings = measure_ceilings(devices[0], args.tiny)
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "date": now.isoformat(timespec="seconds"),
        "tiny": args.tiny,
        **describe(devices, args.commit),
        "idle": nvidia_smi(LOAD),
        "ceilings": ceilings,
        "cases": [],
        "finished": False,
    }
    effort = QUICK if args.tiny else THOROUGH
    calibration = path.with_name(path.name.replace("throughput", "calibration"))
    profile = None if args.tiny else calibrated(calibration)
    matmul = ceilings["matmul"]["flops_per_second"]

    def measure_one(run: Run) -> dict[str, Any]:
        return with_rates(measure(run, devices, effort, deadline, profile), chip.peak, matmul)

    for case in run_cases(todo, measure_one, Budget(deadline)):
        document["cases"].append(case)
        save(document, path)
        print(line(case), flush=True)
    document["finished"] = True
    save(document, path)
    print(f"\n{table(document)}\n\nresults: {path}")


def _all_cases(tiny: bool, devices: int) -> list[Run]:
    return tiny_cases(devices) if tiny else cases(devices)


def _outcome(run: Run, measure_one: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
    """A measured case, or why it could not be measured: one bad case must not end the others."""
    try:
        return _case(run, "ok", measure_one(run))
    except Exception as error:
        status = "out of memory" if is_out_of_memory(error) else "failed"
        return _case(run, status, {"error": short(error)})


def _case(run: Run, status: str, found: dict[str, Any]) -> dict[str, Any]:
    return {"status": status, "name": label(run), "run": run_dict(run), **found}


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.gpu.throughput", description=str(__doc__).split("\n")[0]
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--tiny", action="store_true", help="toys that take seconds anywhere")
    parser.add_argument("--minutes", type=float, default=7.5, help="for all cases (%(default)s)")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--commit", help="what was measured, where git cannot tell")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
