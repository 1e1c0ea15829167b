"""Steps that XLA compiled for GPUs: published times beside our compiled step of the same shapes.

    python -m experiments.published.jax_programs             prices the programs in programs/
    python -m experiments.published.jax_programs --compile   makes those anew, seconds each

Published is what others' programs took, priced is the step that this trainer compiles: of dense
models with a recipe (`jax_dense_runs.jsonl`) with the options of XLA that it sets, of the others
(`jax_rows`, which also says why some rows are not priced) with the trainer's own.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from experiments.published.jax_rows import reasons, runs_of_table
from experiments.published.score_training import Scored, naive_error, scored
from experiments.published.training import Measured, dense_runs, part_of
from scaling.api.predict import predict
from scaling.api.pricing import with_step_error
from scaling.profiles.calibrations import profile_for
from scaling.program.ir import Program
from scaling.program.serialization import program_dict, read_program_dict
from scaling.report.formatting import columns
from scaling.run import Run
from scaling.simulate.prediction import Prediction
from scaling.simulate.resolve import target
from scaling.simulate.step import Priced, price
from scaling.simulate.summary import summarize

PROGRAMS = Path(__file__).parent / "programs"
GROUPS = (
    "dense, with the recipe's options: rows that may be fitted",
    "dense, with the recipe's options: rows that only score",
    "dense, recipe not known",
    "with experts, other kernels than ours",
)


def rows() -> tuple[Measured, ...]:
    """All rows that are runs."""
    return (*dense_runs(), *runs_of_table())


def group_of(row: Measured) -> str:
    """The group in which a row is scored."""
    if row.options:
        return GROUPS[0 if part_of(row) == "fit" else 1]
    return GROUPS[3 if "moe" in row.run["model"] else 2]


def file_of(row: Measured) -> Path:
    """Where the program of a row is kept; equal runs have one."""
    run = {key: value for key, value in row.run.items() if key != "name"}
    text = json.dumps([run, row.options] if row.options else run)
    return PROGRAMS / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json.gz"


def compile_all() -> None:
    """Compile the programs that are not there and keep them."""
    PROGRAMS.mkdir(exist_ok=True)
    for row in rows():
        if file_of(row).exists():
            continue
        made = predict(row.run, source="compiled", options=row.options).pricing.program
        program = replace(made, places={})
        data = gzip.compress(json.dumps(program_dict(program)).encode(), mtime=0)
        file_of(row).write_bytes(data)
        print(row.id, len(data), flush=True)


@cache
def program_of(path: Path) -> Program:
    """The program in a file."""
    return read_program_dict(json.loads(gzip.decompress(path.read_bytes())))


def priced(row: Measured, run: Run) -> Priced:
    """The kept program of a row on the cluster of its run."""
    where = target(run)
    profile = profile_for(where.cluster)[0]
    return price(program_of(file_of(row)), where.cluster, with_step_error(profile, run.software))


@lru_cache(maxsize=1)
def scores() -> tuple[Scored, ...]:
    """All rows whose program is kept, priced."""

    def score(row: Measured) -> Scored:
        def step(run: Run) -> Prediction:
            return summarize(priced(row, run), target(run).run)

        return scored(row, step)

    return tuple(score(row) for row in rows() if file_of(row).exists())


def table() -> list[str]:
    """A line per row, figures of each group, and the reasons of the others."""
    found = scores()
    cells = [["run", "GPU", "n", "model", "mesh", "measured", "compiled step", "error", "in range"]]
    for s in found:
        mesh = s.row.run["mesh"]
        cells.append([
            s.row.id, s.row.gpu, str(np.prod(list(mesh.values()))), s.row.model[:30],
            ",".join(f"{axis}={n}" for axis, n in mesh.items() if n > 1)
            + (" fp8" if s.row.run.get("precision") else ""),
            f"{s.row.step_time:.4g} s", f"{s.time:.4g} s", f"{s.error:+.0%}",
            "yes" if s.in_range else "no",
        ])  # fmt: skip
    lines = ["", "```", *columns(cells, (0, 1, 3, 4)), "```", "", "```"]
    lines += columns([*_groups(found)], (0,))
    missing = len(rows()) - len(found)
    others = reasons() | ({"not compiled: --compile makes its program": missing} if missing else {})
    lines += ["```", "", *(f"- not priced, {n} rows: {why}" for why, n in sorted(others.items()))]
    return [*lines, ""]


def _groups(found: Sequence[Scored]) -> Iterator[list[str]]:
    """Rows of cells: a header and a line for each group."""
    yield ["rows", "n", "median", "bias", "worst", "in range", "naive"]
    for name in GROUPS:
        group = [s for s in found if group_of(s.row) == name]
        if group:
            errors = np.array([s.error for s in group])
            naive = np.median([abs(naive_error(s.row)) for s in group])
            yield [
                name, str(len(group)), f"{np.median(np.abs(errors)):.1%}",
                f"{np.median(errors):+.1%}", f"{errors[np.abs(errors).argmax()]:+.0%}",
                f"{np.mean([s.in_range for s in group]):.0%}", f"{naive:.1%}",
            ]  # fmt: skip


if __name__ == "__main__":
    if "--compile" in sys.argv:
        compile_all()
    print("\n".join(table()))
