"""Published training runs: what others measured, each row a `run.json` with its step time.

    training_runs.jsonl  one run a line: what was measured, its source, and the run; keys of
                         run.json that have their default value are left out
    training_split.json  which rows a constant may be fitted on; the others only score
    memory_runs.jsonl    more runs whose memory was measured: they only score
    jax_gpu_runs.csv     programs that XLA compiled for NVIDIA GPUs; columns in README.md
    jax_dense_runs.jsonl such programs of dense models with a public recipe, each a `run.json` with
                         the options of XLA that the recipe sets; jax_dense_split.json parts them

The split is by group, so that two rows that differ in batch or recomputation alone stay together:
a group is a source, a model and a mesh (of the dense JAX programs: a model, a mesh and a format).
Whole sources are left out in turn besides.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from experiments.published.csv_rows import rows_of
from experiments.published.split import Part, part_of_key, write_split

FOLDER = Path(__file__).parent
RUNS, SPLIT = FOLDER / "training_runs.jsonl", FOLDER / "training_split.json"
MEMORY_RUNS = FOLDER / "memory_runs.jsonl"
JAX_RUNS = FOLDER / "jax_gpu_runs.csv"
DENSE_RUNS, DENSE_SPLIT = FOLDER / "jax_dense_runs.jsonl", FOLDER / "jax_dense_split.json"
RULE = "sha256 of source|model|mesh: first byte < 128 is fitted"
DENSE_RULE = "sha256 of model|mesh|format: first byte < 128 is fitted"


@dataclass(frozen=True)
class Measured:
    """One published training run."""

    id: str
    source: str
    reference: str  # repository, path and commit, or paper
    date: str  # of the source
    gpu: str
    model: str  # as the source calls it
    step_time: float  # s; 0: not measured, in memory_runs.jsonl only
    memory: float | None  # bytes on one device
    memory_kind: str | None  # "allocated": the allocator's peak; "nvidia-smi": with all contexts
    grade: str  # A: all that decides the step is stated; B: usable
    notes: str  # what was assumed when the run was written down
    run: dict[str, Any]  # run.json
    options: dict[str, Any] = field(default_factory=dict)  # of XLA, from the recipe

    @property
    def group(self) -> str:
        """What the split keeps together."""
        mesh = ",".join(f"{k}={v}" for k, v in self.run["mesh"].items() if v > 1)
        if self.options:
            compute = self.run.get("precision", {}).get("compute", "bf16")
            return f"{self.model}|{mesh}|{compute}"
        return f"{self.source}|{self.model}|{mesh}"


@lru_cache(maxsize=1)
def measured_runs() -> tuple[Measured, ...]:
    """All rows of other frameworks."""
    return _rows(RUNS)


@lru_cache(maxsize=1)
def memory_runs() -> tuple[Measured, ...]:
    """All rows that score memory alone."""
    return _rows(MEMORY_RUNS)


@lru_cache(maxsize=1)
def dense_runs() -> tuple[Measured, ...]:
    """All rows of dense JAX programs with a recipe."""
    return _rows(DENSE_RUNS)


def _rows(path: Path) -> tuple[Measured, ...]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return tuple(Measured(**json.loads(line)) for line in lines)


@lru_cache(maxsize=1)
def jax_runs() -> tuple[dict[str, str], ...]:
    """All rows of the programs that XLA compiled, as text."""
    return tuple(rows_of(JAX_RUNS))


def part_of(row: Measured) -> Part:
    """Part of a row by the rule."""
    return part_of_key(row.group)


def groups(rows: Sequence[Measured]) -> list[str]:
    """What the split of these rows keeps together."""
    return sorted({row.group for row in rows})


if __name__ == "__main__":
    write_split(SPLIT, groups(measured_runs()), RULE)
    write_split(DENSE_SPLIT, groups(dense_runs()), DENSE_RULE)
