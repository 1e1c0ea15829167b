"""Bytes that PyTorch's allocator reserves over those that a step allocates, by software.

    python -m experiments.published.reserve

`reserve.csv` has the largest bytes reserved and allocated (or active, where nothing else was
published) of one rank, in the units of its source. The factor is the median over sources of their
medians; its error is that of each source by the median of the others. Megatron-DeepSpeed's is
fitted on what nvidia-smi showed of BigScience's runs (part `fit`), over the closed form's peak
(`scaling.simulate.capacity`); its errors are those of whole devices, beside those of the peak.
"""

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from statistics import mean, median

from experiments.published.fit_software import priced
from experiments.published.training import FOLDER, Measured, Part, measured_runs, part_of
from scaling.simulate.capacity import CONTEXT, nccl_buffers

PAIRS = FOLDER / "reserve.csv"
DEEPSPEED = "deepspeed"


def ratios() -> dict[str, dict[str, float]]:
    """Reserved over allocated bytes by software and source, medians of its ranks."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with PAIRS.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ratio = float(row["reserved"]) / float(row["allocated"])
            found[row["software"]][row["source"]].append(ratio)
    return {
        name: {source: median(values) for source, values in sources.items()}
        for name, sources in found.items()
    }


def deepspeed() -> tuple[float, dict[Part, list[float]], dict[Part, list[float]]]:
    """The fitted factor, errors of bytes in use by part, and those of the peak alone."""
    shares: dict[Part, list[tuple[float, float, float]]] = defaultdict(list)
    for row in (row for row in measured_runs() if row.memory_kind == "nvidia-smi"):
        shares[part_of(row)].append(_figures(row))
    factor = median((shown - apart) / peak for shown, apart, peak in shares["fit"])
    errors = {
        part: [(factor * peak + apart) / shown - 1 for shown, apart, peak in rows]
        for part, rows in shares.items()
    }
    return (
        factor,
        errors,
        {part: [peak / shown - 1 for shown, _, peak in rows] for part, rows in shares.items()},
    )


def _figures(row: Measured) -> tuple[float, float, float]:
    """Bytes that nvidia-smi showed, those outside the allocator, and the predicted peak."""
    step = priced(row)
    apart = CONTEXT + float(nccl_buffers(step.program, DEEPSPEED))
    return row.memory or 0.0, apart, float(step.memory.peak)


def report() -> Iterator[str]:
    """Lines: each factor, of how many sources, and its errors."""
    for name, by_source in ratios().items():
        values = list(by_source.values())
        others = [median(v for s, v in by_source.items() if s != source) for source in by_source]
        out = [guess / value - 1 for guess, value in zip(others, values, strict=True)]
        yield f"{name}: {median(values):.3f}, {len(values)} sources; left out in turn {_said(out)}"
    factor, errors, before = deepspeed()
    yield f"{DEEPSPEED}: {factor:.3f}, fitted on {len(errors['fit'])} runs of one source"
    for part, rows in errors.items():
        yield f"  {part}, {len(rows)} runs: {_said(rows)}; the peak alone {_said(before[part])}"


def _said(errors: Iterable[float]) -> str:
    """Median, mean and worst size, and the bias."""
    every = list(errors)
    sizes = [abs(error) for error in every]
    return (
        f"median {median(sizes):.1%}, mean {mean(sizes):.1%}, bias {median(every):+.1%}, "
        f"worst {max(every, key=abs):+.0%}"
    )


if __name__ == "__main__":
    print(*report(), sep="\n")
