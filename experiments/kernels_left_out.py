"""Does leaving kernels' machine code out change what is read, and what does it save?

    python -m experiments.kernels_left_out --out experiments/results     all, 10 minutes, no GPU
    python -m experiments.kernels_left_out lora "llama3-8b fsdp=8 remat=selective x1"    two of them

Steps of ours and of the collection of foreign programs are compiled for absent GPUs both ways, each
in a process of its own, and the scheduled texts and the plans of memory compared letter by letter.
Seconds are of CPU, with those of ptxas, which is a process for each kernel.
"""

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # before jax is imported: no GPU is needed

import jax

import scaling as sc
from experiments.foreign.one import MARK, PROGRAMS, names, needs
from experiments.front_ends import described
from experiments.gpu.machine import git_commit
from experiments.xla_options import CASES
from scaling.compile import lower
from scaling.compile.options import Options, compile_with, compile_without_kernels
from scaling.program.versions import compiler_versions
from scaling.report.formatting import columns

OURS = {case.name: case for case in CASES}


@dataclass(frozen=True)
class Row:
    """One program compiled both ways; CPU seconds, with those of child processes."""

    name: str
    devices: int = 0
    letters: int = 0  # of the text
    with_kernels: float = 0.0
    without: float = 0.0
    same_text: bool = False
    same_plan: bool = False
    jax: str = jax.__version__
    error: str = ""


class Both:
    """Compiles both ways, and keeps the largest module's comparison."""

    def __init__(self, name: str) -> None:
        self.row = Row(name)

    def __call__(self, lowered: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
        """Compile in the place of `compile_without_kernels`."""
        fully, slow = _timed(compile_with, lowered, options)
        made, quick = _timed(compile_without_kernels, lowered, options)
        text, full_text = str(made.as_text()), str(fully.as_text())
        if len(text) > self.row.letters:
            same = text == full_text, str(made.memory_analysis()) == str(fully.memory_analysis())
            self.row = replace(
                self.row, letters=len(text), with_kernels=slow, without=quick,
                same_text=same[0], same_plan=same[1],
            )  # fmt: skip
        return made


def _timed(
    make: Callable[..., jax.stages.Compiled], *arguments: Any
) -> tuple[jax.stages.Compiled, float]:
    begun = _cpu()
    return make(*arguments), _cpu() - begun


def _cpu() -> float:
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(sum(resource.getrusage(one)[:2]) for one in who)  # user, system


def compared(name: str) -> Row:
    """Compile a program both ways in this process."""
    both = Both(name)
    with patch.object(lower, "compile_without_kernels", Both("warm up")):
        sc.predict_step(jax.jit(jax.numpy.tanh), jax.numpy.ones(8), cluster="dgx-h100")
    with patch.object(lower, "compile_without_kernels", both):
        try:
            priced = _price(name)
        except Exception as failure:  # whatever a program raises is its row
            return replace(both.row, error=f"{type(failure).__name__}: {failure}".splitlines()[0])
    return replace(both.row, devices=priced.devices)


def _price(name: str) -> sc.Prediction:
    if name not in OURS:
        price: sc.Prediction = importlib.import_module(f"{PROGRAMS}.{name}").price()
        return price
    run, _, cluster = described(OURS[name])
    return sc.predict(run, cluster, source="compiled")


def run(name: str, environments: Path) -> Row:
    """Compare in a process of its own, with an empty cache."""
    package = "" if name in OURS else needs(name)
    python = str(environments / package / "bin" / "python") if package else sys.executable
    if not Path(python).exists():
        return Row(name, error=f"no environment {environments / package}")
    with tempfile.TemporaryDirectory() as cache:
        command = [python, "-m", "experiments.kernels_left_out", "--here", name]
        where = {**os.environ, "SCALING_CACHE": cache}
        done = subprocess.run(command, env=where, capture_output=True, text=True)
    said = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if said:
        return Row(**json.loads(said[-1].removeprefix(MARK)))
    return Row(name, error=(done.stderr.strip().splitlines() or ["no output"])[-1])


def table(rows: Sequence[Row]) -> str:
    """One line for each program."""
    lines = [["program", "jax", "GPUs", "letters", "with", "without", "ratio", "text", "plan"]]
    for row in rows:
        if not row.letters:
            lines.append([row.name, row.jax, "", "", "", "", "", row.error or "nothing new", ""])
            continue
        seconds = [f"{row.with_kernels:.1f} s", f"{row.without:.1f} s", f"{_ratio(row):.2f}"]
        same = ["same" if x else "other" for x in (row.same_text, row.same_plan)]
        lines.append([row.name, row.jax, str(row.devices), f"{row.letters:,}", *seconds, *same])
    return "\n".join(columns(lines, left=(0, 7, 8)))


def _ratio(row: Row) -> float:
    return row.without / row.with_kernels


def page(rows: Sequence[Row], commit: str, versions: Mapping[str, str]) -> str:
    """README.md of the results."""
    made = [row for row in rows if row.letters]
    same = sum(row.same_text and row.same_plan for row in made)
    packages = ", ".join(f"{name} {found}" for name, found in versions.items())
    return (
        f"# Compiled without kernels' machine code\n\nCommit {commit}, {packages}. Made by\n"
        "`python -m experiments.kernels_left_out --out experiments/results`: steps compiled for\n"
        "absent GPUs with machine code and without; CPU seconds of both on two cores.\n\n"
        f"{len(rows)} programs, {len(made)} compiled; text and plan are the same for {same}.\n"
        f"Seconds without over with: median {median(map(_ratio, made)):.2f}, "
        f"together {sum(r.without for r in made) / sum(r.with_kernels for r in made):.2f}.\n\n"
        f"```\n{table(rows)}\n```\n"
    )


def main(arguments: Iterable[str] | None = None) -> None:
    """Compare all, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; none: all")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--here", action="store_true", help="in this process, printed as JSON")
    parser.add_argument("--environments", type=Path, default=Path(".venv-foreign"))
    args = parser.parse_args(None if arguments is None else list(arguments))
    chosen = args.names or [*OURS, *names()]
    if args.here:
        for name in chosen:
            print(MARK + json.dumps(asdict(compared(name))), flush=True)
        return
    rows = []
    for name in chosen:
        rows.append(run(name, args.environments))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if args.out:
        folder = args.out / f"{date.today().isoformat()}-kernels-left-out"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rows.json").write_text(
            json.dumps([asdict(row) for row in rows], indent=1) + "\n"
        )
        text = page(rows, git_commit() or "not known", compiler_versions())
        (folder / "README.md").write_text(text)


if __name__ == "__main__":
    main()
