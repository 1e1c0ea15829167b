"""Which of XLA's options suit which mesh? Steps compiled with each set of options, and priced.

    python -m experiments.xla_options --out experiments/results       about 40 minutes, no GPU
    python -m experiments.xla_options --only "llama3-8b fsdp=8"       one program

The sets are those that the guides of JAX on GPUs name (JAX-Toolbox, docs/GPU_performance.md), each
beside the trainer's scheduler. What they do to kernels' own speed is not in these prices.
"""

import argparse
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import mean, median
from typing import Any

import scaling as sc
from experiments.front_ends import FULL, SELECTIVE, Case, described
from experiments.gpu.machine import git_commit
from scaling.meshes.errors import InputError
from scaling.meshes.units import format_size, format_time
from scaling.program.versions import compiler_versions
from scaling.report.formatting import columns

PIPELINED = {
    "xla_gpu_enable_pipelined_all_gather": True,
    "xla_gpu_enable_pipelined_reduce_scatter": True,
    "xla_gpu_enable_pipelined_all_reduce": True,
}
GRADIENTS = {name: on for name, on in PIPELINED.items() if "gather" not in name}
BASE = {"xla_gpu_enable_latency_hiding_scheduler": True, **dict.fromkeys(PIPELINED, False)}
DOUBLE = {"xla_gpu_enable_while_loop_double_buffering": True}
APART = {"xla_gpu_reduce_scatter_combine_threshold_bytes": 1}
SMALL = {
    f"xla_gpu_{kind}_combine_threshold_bytes": 16 * 1024**2
    for kind in ("all_gather", "reduce_scatter")
}
OVERLAP = {"xla_gpu_experimental_parallel_collective_overlap_limit": 4}
SETS: Mapping[str, Mapping[str, bool | int]] = {
    "scheduler": {},
    "pipelined": PIPELINED,
    "pipelined gradients": GRADIENTS,
    "double buffering": DOUBLE,
    "pipelined, double buffering": {**PIPELINED, **DOUBLE},
    "16 MiB calls": SMALL,
    "scatters apart": APART,
    "pipelined, scatters apart": {**PIPELINED, **APART},
    "pipelined gradients, double buffering": {**GRADIENTS, **DOUBLE},
    "4 collectives at once": OVERLAP,
    "pipelined gradients, scatters apart": {**GRADIENTS, **APART},
    "pipelined gradients, 4 at once": {**GRADIENTS, **OVERLAP},
    "pipelined gradients, scatters apart, 4 at once": {**GRADIENTS, **APART, **OVERLAP},
    "scatters apart, 4 at once": {**APART, **OVERLAP},
}


LAYERS = f"{SELECTIVE} model.n_layers=4"
CASES = (
    Case("llama3-8b", "fsdp=8", SELECTIVE),
    Case("llama3-8b", "fsdp=8,tensor=8", SELECTIVE, 1, 8),
    Case("llama3-70b", "fsdp=64", FULL),
    Case("llama3-70b", "fsdp=64,tensor=8", FULL, 1, 8),
    Case("llama3-70b", "fsdp=8,tensor=8", SELECTIVE, 1, 8),
    Case("llama3-405b", "fsdp=128,tensor=8", FULL, 1, 4),
    Case("llama3-8b", "data=4,fsdp=8,tensor=8", SELECTIVE, 1, 4),
    Case("qwen3-8b", "data=2,fsdp=8,tensor=4", FULL, 2, 2),
    Case("gpt3-175b", "fsdp=128,tensor=8", FULL, 1, 4),
    Case("mixtral-8x7b", "expert=8", LAYERS),
    Case("llama3-8b", "fsdp=64", SELECTIVE),
    Case("llama3-8b", "data=8,fsdp=8", SELECTIVE),
    Case("llama3-8b", "data=2,fsdp=8", SELECTIVE, 4),
)


@dataclass(frozen=True)
class Row:
    """One program with one set of options; no figures if XLA fails."""

    case: str
    options: str
    step: float | None = None  # s
    exposed: float | None = None  # s
    peak: int | None = None  # bytes
    mfu: float | None = None
    compiling: float = 0.0  # s, on the machine of this table
    warnings: tuple[str, ...] = ()
    error: str = ""


def measured(case: Case, name: str) -> Row:
    """Compile and price one program with one set of options."""
    begun = time.perf_counter()
    run, _, cluster = described(case)
    try:
        p = sc.predict(run, cluster, source="compiled", options={**BASE, **SETS[name]})
    except (InputError, RuntimeError) as error:
        return Row(case.name, name, error=str(error).splitlines()[0][:160])
    seconds = time.perf_counter() - begun
    step, exposed = float(p.step_time), float(p.time.exposed_communication)
    notes = tuple(w for w in p.warnings if "loop" in w)
    return Row(
        case.name, name, step, exposed, int(p.memory.peak), float(p.mfu or 0), seconds, notes
    )


def table(rows: Sequence[Row]) -> str:
    """The table of all programs: step, change against the scheduler alone, exposed, peak."""
    base = {row.case: row for row in rows if row.options == "scheduler"}
    lines = [["program", "options", "step", "change", "exposed", "peak", ""]]
    for row in rows:
        if row.step is None or row.exposed is None or row.peak is None:
            lines.append([row.case, row.options, "-", "", "", "", f"XLA fails: {row.error}"])
            continue
        first = base[row.case].step or row.step
        figures = [format_time(row.step), f"{row.step / first - 1:+.1%}", format_time(row.exposed)]
        note = "; ".join(row.warnings)
        lines.append([row.case, row.options, *figures, format_size(row.peak), note])
    return "\n".join(columns(lines, left=(0, 1, 6)))


def summary(rows: Sequence[Row]) -> str:
    """For each set of options: programs that XLA compiles with it, change of step and of memory.

    Steps with a loop of unknown length are left out.
    """
    base = {row.case: row for row in rows if row.options == "scheduler"}
    lines = [["options", "programs", "step: median", "mean", "best", "worst", "memory: median"]]
    for name in SETS:
        found = [r for r in rows if r.options == name and r.step and r.peak and not r.warnings]
        steps = [r.step / (base[r.case].step or r.step) - 1 for r in found if r.step]
        peaks = [r.peak / (base[r.case].peak or r.peak) - 1 for r in found if r.peak]
        if steps:
            shown = (median(steps), mean(steps), min(steps), max(steps), median(peaks))
            lines.append([name, str(len(found)), *(f"{change:+.1%}" for change in shown)])
    return "\n".join(columns(lines))


def page(rows: Sequence[Row], commit: str, versions: Mapping[str, str]) -> str:
    """README.md of the results."""
    packages = ", ".join(f"{name} {found}" for name, found in versions.items())
    return (
        f"# XLA's options, priced\n\nCommit {commit}, {packages}. Made by\n"
        "`python -m experiments.xla_options`: steps compiled for DGX H100 with each set,\n"
        "and priced; changes against the latency-hiding scheduler alone. Collectives that run at\n"
        "once do not share links in these prices.\n\n"
        f"```\n{summary(rows)}\n```\n\n```\n{table(rows)}\n```\n"
    )


def main(arguments: Iterable[str] | None = None) -> None:
    """Compile all, write `DATE-xla-options/rows.json` and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args(None if arguments is None else list(arguments))
    rows = []
    for case in CASES:
        if args.only in case.name:
            for name in SETS:
                rows.append(measured(case, name))
                print(json.dumps(asdict(rows[-1])), flush=True)
    print(f"{summary(rows)}\n\n{table(rows)}")
    if args.out:
        folder = args.out / f"{date.today().isoformat()}-xla-options"
        folder.mkdir(parents=True, exist_ok=True)
        stored: dict[str, Any] = {
            "commit": git_commit(),
            "versions": compiler_versions(),
            "options": {name: dict(options) for name, options in SETS.items()},
            "rows": [asdict(row) for row in rows],
        }
        (folder / "rows.json").write_text(json.dumps(stored, indent=1) + "\n")
        text = page(rows, stored["commit"], stored["versions"])
        (folder / "README.md").write_text(text)


if __name__ == "__main__":
    main()
