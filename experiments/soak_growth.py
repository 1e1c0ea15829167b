"""Does anything grow in a long run? Samples of its processes, their slopes, and a verdict.

The first quarter of a generation, where allocators and caches fill, is left out. The rest gives a
slope per step, the median over all pairs of samples (Theil and Sen's), which the few samples within
a save do not move. The mean of the generations' slopes has the standard error of their differences,
which counts whatever makes neighbouring samples alike. A quantity grows if the mean is more than
two standard errors above zero and adds 1 % or more to the level within a generation; else it is
flat. Steps are the clock, so a slower machine has the same slopes, but for `step_time` itself.
"""

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np
from scipy.stats import theilslopes

from scaling.meshes.errors import InputError

WARM_UP = 0.25  # of a generation's steps
ERRORS = 2.0  # standard errors: 95 % of them, were there many generations
RISE = 0.01  # of the level, in a generation
FEWEST = 3  # samples that a slope and its spread need
JUDGED = ("rss", "files", "threads", "checkpoints", "step_time")  # metrics.jsonl grows by design


@dataclass(frozen=True)
class Sample:
    """The memory, files, threads and speed of a process at one moment."""

    generation: int
    seconds: float  # since its first step
    step: int  # of the run
    rss: int  # bytes
    files: int  # open ones
    threads: int
    checkpoints: int  # bytes below checkpoints/
    metrics: int  # bytes of metrics.jsonl
    step_time: float  # s, since the sample before


@dataclass(frozen=True)
class Growth:
    """The growth of one quantity within a generation."""

    name: str
    level: float  # mean of all samples that count
    slope: float  # per step, mean of the generations
    error: float  # its standard error
    steps: float  # of a generation, mean

    @property
    def is_flat(self) -> bool:
        """By the rule above."""
        rises = self.slope > ERRORS * self.error
        return not rises or self.slope * self.steps < RISE * self.level


def growths(samples: Sequence[Sample]) -> list[Growth]:
    """The growth of every quantity in JUDGED.

    Raises:
        InputError: fewer than two generations have samples enough.
    """
    generations: dict[int, list[Sample]] = {}
    for sample in samples:
        generations.setdefault(sample.generation, []).append(sample)
    kept = [part for g in generations.values() if len(part := _warm(g)) >= FEWEST]
    if len(kept) < 2:
        raise InputError(
            f"{len(kept)} of {len(generations)} generations have {FEWEST} samples after their "
            "first quarter, and an error needs two such; run for more --minutes, or lower --every"
        )
    return [_growth(name, kept) for name in JUDGED]


def _warm(generation: list[Sample]) -> list[Sample]:
    first, last = generation[0].step, generation[-1].step
    return [s for s in generation if s.step >= first + WARM_UP * (last - first)]


def _growth(name: str, generations: list[list[Sample]]) -> Growth:
    slopes = [
        theilslopes([getattr(s, name) for s in g], [s.step for s in g]).slope for g in generations
    ]
    return Growth(
        name,
        level=float(np.mean([getattr(s, name) for g in generations for s in g])),
        slope=float(np.mean(slopes)),
        error=float(np.std(slopes, ddof=1) / len(slopes) ** 0.5),
        steps=float(np.mean([g[-1].step - g[0].step for g in generations])),
    )


def table(samples: Sequence[Sample]) -> str:
    """A line per quantity: level, slope with its error, what it adds to a generation, verdict."""
    lines = [f"{'':12}{'level':>12}  {'slope per step':>24}  {'a generation':>12}"]
    for g in growths(samples):
        slope = f"{g.slope:+.2e} +- {g.error:.1e}"
        verdict = "flat" if g.is_flat else "grows"
        rise = f"{g.slope * g.steps / g.level:+.2%}"
        lines.append(f"{g.name:12}{g.level:12.5g}  {slope:>24}  {rise:>12}  {verdict}")
    return "\n".join(lines)


def write(samples: Sequence[Sample], path: Path) -> None:
    """Write samples as CSV, with the names of the fields."""
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(field.name for field in fields(Sample))
        rows.writerows(map(astuple, samples))


def read(path: Path) -> list[Sample]:
    """The samples that `write` has written."""
    kinds = [field.type for field in fields(Sample)]
    with path.open(newline="") as file:
        _, *rows = csv.reader(file)
    return [Sample(*(kind(v) for kind, v in zip(kinds, row, strict=True))) for row in rows]  # type: ignore
