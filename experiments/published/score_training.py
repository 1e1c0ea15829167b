"""Predicted against published training steps, source by source.

    scored(row)    a run priced by a front end, beside what was measured
    table(scores)  n, median, mean, bias, worst, share in the range, for each source; the headline
                   is the median over sources of their median errors, so that large sources do
                   not decide
    naive          model FLOPs over the peak of all devices and one typical MFU: the median of the
                   part that may be fitted

Errors are predicted / measured - 1.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np

from experiments.published.training import Measured, measured_runs, part_of
from scaling.meshes.errors import InputError
from scaling.models.accounting import model_flops
from scaling.run import Run, read_run
from scaling.simulate.kernels import peak_rate
from scaling.simulate.prediction import Prediction
from scaling.simulate.resolve import target

Predictor = Callable[[Run], Prediction]


@dataclass(frozen=True)
class Scored:
    """One published run with its prediction."""

    row: Measured
    time: float | None  # s; None: refused
    low: float = 0.0
    high: float = 0.0
    memory: float = 0.0  # bytes, of the kind that was measured
    peak: float = 0.0  # bytes that are allocated
    fits: bool = True  # as the measured run did
    refusal: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured step time, less one."""
        return (self.time or np.nan) / self.row.step_time - 1

    @property
    def in_range(self) -> bool:
        """True if the measured time lies in the predicted range."""
        return self.low <= self.row.step_time <= self.high

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured memory, less one; None where nobody measured it."""
        return self.memory / self.row.memory - 1 if self.row.memory and self.time else None


def scored(row: Measured, predict: Predictor) -> Scored:
    """The row beside its prediction; a refusal is kept with its words."""
    try:
        p = predict(read_run(row.run, row.id))
    except InputError as error:
        return Scored(row, None, refusal=str(error))
    low, high = float(p.step_time_low), float(p.step_time_high)
    peak, shown = float(p.memory.peak), float(p.memory.in_use or p.memory.peak)
    memory = shown if row.memory_kind == "nvidia-smi" else peak
    return Scored(row, float(p.step_time), low, high, memory, peak, p.memory.fits is not False)


def mfu_of(row: Measured) -> float:
    """Model FLOP/s over the peak of all devices, as measured."""
    return _ideal_time(row) / row.step_time


@lru_cache(maxsize=1)
def typical_mfu() -> float:
    """Median over the sources of the median MFU of their rows that may be fitted."""
    of_source = defaultdict(list)
    for row in measured_runs():
        if part_of(row) == "fit":
            of_source[row.source].append(mfu_of(row))
    return median(median(values) for values in of_source.values())


def naive_error(row: Measured) -> float:
    """Error of the time at the typical MFU."""
    return _ideal_time(row) / typical_mfu() / row.step_time - 1


def _ideal_time(row: Measured) -> float:
    where = target(read_run(row.run, row.id))
    run, chip = where.run, where.cluster.accelerator
    flops = model_flops(run.model, run.batch.global_batch, run.batch.seq_len)
    return float(flops / (peak_rate(chip, run.precision.compute) * where.mesh.devices))


def table(scores: Iterable[Scored], label: str = "predicted") -> list[list[str]]:
    """Rows of cells: a header, a line for each source, and the medians over sources."""
    by_source = defaultdict(list)
    for score in scores:
        by_source[score.row.source].append(score)
    head = ["source", "n", "median", "mean", "bias", "worst", "in range", "refused", "naive"]
    lines, medians, naive, inside = [head], [], [], []
    for source, every in sorted(by_source.items()):
        priced = [s for s in every if s.time is not None]
        rule = median(abs(naive_error(s.row)) for s in every)
        naive.append(rule)
        refused = str(len(every) - len(priced))
        if not priced:
            lines.append([source, "0", *"-----", refused, f"{rule:.1%}"])
            continue
        errors = np.array([s.error for s in priced])
        size, within = np.abs(errors), float(np.mean([s.in_range for s in priced]))
        medians.append(float(np.median(size)))
        inside.append(within)
        lines.append([
            source, str(len(priced)), f"{medians[-1]:.1%}", f"{size.mean():.1%}",
            f"{np.median(errors):+.1%}", f"{errors[size.argmax()]:+.0%}", f"{within:.0%}",
            refused, f"{rule:.1%}",
        ])  # fmt: skip
    if medians:
        overall = [f"{median(medians):.1%}", *"---", f"{np.mean(inside):.0%}", "-"]
        lines.append([f"median over {len(medians)} sources", "", *overall, f"{median(naive):.1%}"])
    return lines


def memory_table(scores: Sequence[Scored]) -> list[list[str]]:
    """Rows of cells: errors by source and by what was measured, beside those of the peak alone."""
    found = defaultdict(list)
    for score in scores:
        if score.memory_error is not None and score.row.memory:
            errors = score.memory_error, score.peak / score.row.memory - 1
            found[score.row.source, score.row.memory_kind or ""].append(errors)
    lines = [["source", "memory", "n", "median", "mean", "bias", "worst", "peak alone"]]
    for (source, kind), values in sorted(found.items()):
        errors, alone = np.array(values).T
        size = np.abs(errors)
        figures = (np.median(size), size.mean())
        lines.append([
            source, kind, str(len(errors)), *(f"{f:.1%}" for f in figures),
            f"{np.median(errors):+.1%}", f"{errors[size.argmax()]:+.0%}",
            f"{np.median(np.abs(alone)):.1%}",
        ])  # fmt: skip
    return lines


def fits_table(scores: Iterable[Scored]) -> list[list[str]]:
    """Rows of cells: of the runs of each source, which all ran, how many are said to fit."""
    found = defaultdict(list)
    for score in scores:
        if score.time is not None:
            found[score.row.source].append(score.fits)
    lines = [[source, str(sum(fit)), str(len(fit))] for source, fit in sorted(found.items())]
    total = [str(sum(int(line[i]) for line in lines)) for i in (1, 2)]
    return [["source", "said to fit", "ran"], *lines, ["all", *total]]


def worst(scores: Iterable[Scored], count: int = 10) -> list[list[str]]:
    """Rows of cells: the runs with the largest ratio either way."""
    priced = [s for s in scores if s.time is not None]
    order = sorted(priced, key=lambda s: -abs(np.log1p(s.error)))[:count]
    lines = [["run", "source", "model", "mesh", "measured", "predicted", "error"]]
    for s in order:
        mesh = s.row.group.rpartition("|")[2]
        shown = (f"{s.row.step_time:.4g} s", f"{s.time:.4g} s", f"{s.error:+.0%}")
        lines.append([s.row.id, s.row.source, s.row.model, mesh, *shown])
    return lines
