"""Faults of a training run, tried from outside: what survives them, what is lost.

    python -m experiments.faults [--out experiments/results] [--only kill,disk] [--seed 0]

Each case trains the recipe `tiny` with commands as a user types them, does the harm, and goes on
with `--resume` to the end. A run has survived if every line of its metrics then has the loss and
the gradient norm, to the last digit, of a run that nothing happened to; what must end a run must
do so with its exit code and one message, without a traceback. Disks are filled and remounted on
file systems in memory, which needs root; without it those cases are left out and say so.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path

from experiments.faults import calls, changed, ended, files, jobs, power  # noqa: F401 (they add their cases)
from experiments.faults.bench import CASES, Bench, Outcome
from scaling.profiles.machine import versions


def main() -> None:
    """Run the cases, print the table, and write it with `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="folder of results; default: print only")
    parser.add_argument("--only", help="cases, joined by commas: " + ", ".join(CASES))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(CASES)
    rows = []
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"JAX_PLATFORMS": "cpu"}
        bench = Bench(Path(place), options.seed)
        for name in names:
            began = time.monotonic()
            try:
                found = CASES[name](bench)
            except (PermissionError, FileNotFoundError, subprocess.CalledProcessError) as error:
                found = Outcome(name, 0, 0, f"left out: {error}")
            rows.append(replace(found, seconds=time.monotonic() - began))
            print(row(rows[-1]), flush=True)
    if options.out:
        folder = options.out / f"{date.today()}-faults"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(report(rows, options.seed))
    sys.exit(any(one.survived < one.tried for one in rows))


def row(outcome: Outcome) -> str:
    """One line of the table."""
    return (
        f"| {outcome.name} | {outcome.tried} | {outcome.survived} | {outcome.lost} "
        f"| {outcome.seconds:.0f} s |"
    )


def report(rows: list[Outcome], seed: int) -> str:
    """The page of the results."""
    made_with = ", ".join(f"{name} {number}" for name, number in versions().items())
    command = f"`python -m experiments.faults --seed {seed}`"
    head = f"# Faults tried\n\n{date.today()}, {made_with}; {command}.\n"
    text = __doc__.split("\n\n", 2)[2] if __doc__ else ""
    table = "\n".join(
        ["| fault | tried | survived | lost | took |", "|---|---|---|---|---|", *map(row, rows)]
    )
    return f"{head}\n{text}\n{table}\n"


if __name__ == "__main__":
    main()
