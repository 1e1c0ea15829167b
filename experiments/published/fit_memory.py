"""Fit streams of bytes on measured kernels and write them into the shipped table.

    python -m experiments.published.fit_memory [--write]

    seconds = least + bytes / (share x bandwidth)           operands and results once each
            = least + bytes / (l2 x cores x clock)          where all fit into KEPT of the L2 cache

*Casts* of bf16 to fp8 (`kernels/kernels_memory.csv.gz`: TensorRT-LLM on H100, vLLM on B200, each in
a CUDA graph that repeats) give the three figures of a chip. Where there are none, *readers* give
the share: decoding attention, and products of at most 64 rows, of six times the L2 cache and more.
Of each software and format the 90 % quantile counts, since slower kernels are held up by something
else than the memory; the fastest of those, times what casts reach of it elsewhere, is the share.
Least time and L2 are then the geometric means of the chips with casts.

Left out are one half of a chip's casts by hash (`held_out_error`), and each chip in turn, whose
casts the other's figures price: `lent_p90` is of those that come from memory, `latency_p90` of the
smaller ones, whose least time differs by as much between kernels of one chip. A range holds 90 % of
the worse of what is left: of a chip's own rows, and of its readers and the streams of others, other
kernels of the same memory.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import gmean

from experiments.published.kernel_tables import read
from experiments.published.split import is_first
from experiments.published.tables import evidence_of, p90, print_or_write, short
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Evidence, MemoryFit
from scaling.program.ir import Kernel
from scaling.report.formatting import columns
from scaling.simulate.kernels import KEPT, kernel_time

DATE = "2026-11"
AICONFIGURATOR = "ai-dynamo/aiconfigurator, commit 095f58a5"
LARGE = 6  # times the L2 cache, from which on a reader's least time is below a tenth
FEW_ROWS = 64  # of a product that waits for its weights
TYPICAL = 0.9  # quantile of readers
ROBUST = 0.05  # relative error from which on a cast weighs less (soft L1)
ITEM = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0}  # bytes
NOTHING = Evidence("", "", "calibrated")
# Bytes/s of large streams on an H100 that others state.
BOOK = "jax-ml/scaling-book, gpus.md, commit e5de31b: fp32 vector add on one H100"
MARIN = "marin-community/marin, .agents/reports/gpu-hardware-target-report.md (2026-07-07)"
STREAMS = {"h100-sxm": {BOOK: 12.0 * 2**30 / 4.1e-3, MARIN: 2.85e12}}


@dataclass(frozen=True)
class Casts:
    """Measured casts of one chip; arrays [casts]."""

    bytes: np.ndarray
    seconds: np.ndarray
    is_fitted: np.ndarray  # by hash of the shape, for the held-out error


@cache
def casts() -> Mapping[str, Casts]:
    """The measured casts by chip."""
    found: dict[str, list[tuple[float, float, bool]]] = defaultdict(list)
    for row in read("kernels_memory.csv.gz"):
        figures = float(row["bytes"]), float(row["time_us"]) * 1e-6, is_first(row["detail"])
        found[row["gpu"]].append(figures)
    return {chip: Casts(*map(np.array, zip(*rows, strict=True))) for chip, rows in found.items()}


@cache
def readers() -> Mapping[str, Mapping[str, float]]:
    """Chip -> software and format -> share of the bandwidth that large reads reach."""
    shares: dict[tuple[str, str], list[float]] = defaultdict(list)
    for chip, kind, moved, seconds in (*_products(), *_decoding()):
        accelerator = catalog.accelerator(chip)
        if moved >= LARGE * accelerator.required("l2_cache"):
            share = moved / seconds / accelerator.required("memory_bandwidth")
            shares[chip, kind].append(share)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (chip, kind), each in shares.items():
        found[chip][kind] = float(np.quantile(each, TYPICAL))
    return found


def _products() -> list[tuple[str, str, float, float]]:
    """Chip, kind, bytes and seconds of products of few rows."""
    found = []
    for row in read("kernels_gemm.csv.gz"):
        m, n, k = (float(row[name]) for name in "mnk")
        if m <= FEW_ROWS and (item := ITEM.get(row["gemm_dtype"])):
            moved = item * (n * k + m * k) + 2 * m * n
            seconds = (float(row["time_us"]) - float(row["cast_us"] or 0)) * 1e-6
            found.append((row["gpu"], f"products {row['gemm_dtype']}", moved, seconds))
    return found


def _decoding() -> list[tuple[str, str, float, float]]:
    """Chip, kind, bytes and seconds of attention of one query to all keys of a sequence.

    TensorRT-LLM 1.0's on A100 reads less than all keys (1.4 times the bandwidth): not among them.
    """
    found = []
    for row in read("kernels_attention.csv.gz"):
        if row["setting"] != "decode" or row["window"] != "0" or "trtllm 1.0.0" in row["software"]:
            continue
        sizes = (float(row[name]) for name in ("batch", "kv_heads", "keys", "head_dim"))
        moved = 2 * float(np.prod(list(sizes))) * (1 if row["dtype"] == "fp8" else 2)
        kind = f"decoding {row['software']} {row['dtype']}"
        found.append((row["gpu"], kind, moved, float(row["time_us"]) * 1e-6))
    return found


def seconds(moved: np.ndarray, chip: Accelerator, fit: MemoryFit) -> np.ndarray:
    """Predicted seconds of casts."""
    profile = replace(profile_of(chip), memory=fit)
    return np.asarray(kernel_time(Kernel("cast", bytes=moved), chip, profile).time)


@cache
def searched(chip: str, half: bool = False) -> MemoryFit:
    """The figures of a chip's casts, or of half of them."""
    accelerator, of = catalog.accelerator(chip), casts()[chip]
    rows = of.is_fitted if half else np.ones(len(of.bytes), bool)

    def made(x: np.ndarray) -> MemoryFit:
        share, least, l2 = map(float, np.exp(x))
        return MemoryFit(min(share, 1.0), NOTHING, least, l2=l2)

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log(seconds(of.bytes[rows], accelerator, made(x)) / of.seconds[rows])

    start = np.log([0.9, 1.5e-6, 20.0])
    return made(least_squares(errors, start, loss="soft_l1", f_scale=ROBUST, diff_step=1e-3).x)


def off(chip: str, fit: MemoryFit) -> np.ndarray:
    """Predicted over measured seconds of a chip's casts, less one."""
    of = casts()[chip]
    return seconds(of.bytes, catalog.accelerator(chip), fit) / of.seconds - 1


def left_out(chip: str) -> MemoryFit:
    """The figures of a chip without its casts: geometric means of the others'."""
    others = [searched(other) for other in casts() if other != chip]
    mean = lambda name: gmean([getattr(fit, name) for fit in others])
    return MemoryFit(mean("efficiency"), NOTHING, mean("overhead"), l2=mean("l2"))


def shares(chip: str) -> np.ndarray:
    """Shares of the bandwidth that readers and the streams of others reach."""
    rate = catalog.accelerator(chip).required("memory_bandwidth")
    others = [value / rate for value in STREAMS.get(chip, {}).values()]
    return np.array([*readers().get(chip, {}).values(), *others])


def fits() -> dict[str, MemoryFit]:
    """The fit of each chip with casts or readers, with its errors as evidence."""
    lent, late = _left_out_errors()
    of_readers = gmean([searched(chip).efficiency / _fastest(chip) for chip in casts()])
    found = {}
    for chip in sorted({*casts(), *readers()}):
        if chip in casts():
            fit, what = searched(chip), "casts to fp8"
            errors, half = off(chip, fit), off(chip, searched(chip, half=True))
            held_out = half[~casts()[chip].is_fitted]
        else:
            fit, what = replace(left_out(chip), efficiency=of_readers * _fastest(chip)), "readers"
            errors = held_out = shares(chip) / fit.efficiency - 1
        apart = shares(chip) / fit.efficiency - 1
        source = f"{AICONFIGURATOR}: {len(errors)} {what}; experiments/published/fit_memory.py"
        widest = max(p90(held_out), p90(apart))
        evidence = evidence_of(
            source, DATE, errors, held_out, error_p90=widest, latency_p90=late, lent_p90=lent
        )
        figures = {name: short(getattr(fit, name)) for name in ("efficiency", "overhead", "l2")}
        best = short(max(fit.efficiency, *shares(chip)))
        found[chip] = replace(fit, **figures, best=best, evidence=evidence)
    return found


def _left_out_errors() -> tuple[float, float]:
    """Errors of left-out chips where bytes of the memory decide, and where the least time does."""
    small, errors = [], []
    for chip, of in casts().items():
        small += list(of.bytes <= KEPT * catalog.accelerator(chip).required("l2_cache"))
        errors += list(off(chip, left_out(chip)))
    return p90(np.array(errors)[~np.array(small)]), p90(np.array(errors)[small])


def _fastest(chip: str) -> float:
    return max(readers()[chip].values())


def report() -> list[str]:
    """A line per chip, and what the others say of it; the naive price is bytes at full rate."""
    head = (
        "chip",
        "share",
        "least",
        "L2",
        "n",
        "median",
        "worst",
        "p90",
        "naive",
        "left out",
        "bias",
    )
    rows: list[tuple[str, ...]] = [head]
    for chip, fit in fits().items():
        e, accelerator = fit.evidence, catalog.accelerator(chip)
        said: tuple[str, ...] = ("", "", "")
        if chip in casts():
            of, other = casts()[chip], off(chip, left_out(chip))
            naive = of.bytes / accelerator.required("memory_bandwidth") / of.seconds - 1
            said = tuple(f"{x:.1%}" for x in (*map(_median, (naive, other)), np.median(other)))
        rows.append(
            (chip, f"{fit.efficiency:.3f}", f"{fit.overhead * 1e6:.2f} us", f"{fit.l2:.1f}",
             str(e.samples), f"{e.median_error:.1%}", f"{e.max_error:.1%}", f"{e.error_p90:.1%}",
             *said)
        )  # fmt: skip
        rows += [("", f"{share:.3f}", kind) for kind, share in readers().get(chip, {}).items()]
    width = len(head)
    return list(columns([(*row, *[""] * (width - len(row))) for row in rows], left=(0, 2)))


def _median(errors: np.ndarray) -> float:
    return float(np.median(np.abs(errors)))


if __name__ == "__main__":
    print_or_write("memory", report, lambda: {chip: [fit] for chip, fit in fits().items()})
