"""Fit grouped products on published records and write them into the shipped profiles.

    python -m experiments.published.fit_grouped [--write]

`grouped.csv` has the autotuning records of tokamax 0.0.17 (its wheel, Apache-2.0, 2026-10), median
of five calls: bf16 products of even groups by its Triton kernels on H100, B200 and A100. Of a shape
that stands there several times the fastest call is taken. Left out are records of quantized
operands and of one full group among empty ones. A record is priced as

    seconds = grouped product (`scaling.simulate.kernels`)
            + idle programs x `idle`       its grid has a program per tile, column and *group*
            + copy of the matrices         the gradient of inputs transposes them first

of which the kernels of `scaling.models.moe.triton_products` have the first line alone: none of them
has been timed. Half of the shapes, by hash, give the held-out error.
"""

import argparse
import csv
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from experiments.published.fit_products import ROBUST
from experiments.published.tables import write_table
from scaling.meshes import catalog
from scaling.profiles.profile import Evidence, MatmulFit
from scaling.profiles.shipped import shipped
from scaling.program.ir import Kernel, Number
from scaling.report.formatting import columns
from scaling.simulate.kernels import kernel_time, memory_time

TABLE = Path(__file__).parent / "grouped.csv"
DIMS = ("groups", "m", "n", "k")
FITTED = ("h100-sxm", "b200-sxm")  # chips with more than a handful of records
BF16 = 2  # bytes
START = (0.7, 20.0, 200.0, 1e-9)  # efficiency, half m, half k, seconds of an idle program
SOURCE = "tokamax 0.0.17, its autotuning records of Triton's grouped products"


@dataclass(frozen=True)
class Records:
    """Measured products of one chip; arrays [records]."""

    kernel: Kernel
    idle_programs: np.ndarray
    copied: np.ndarray  # bytes
    seconds: np.ndarray
    is_fitted: np.ndarray  # by hash of the shape, for the held-out error


def records(chip: str) -> Records:
    """The records of a chip."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["chip"] == chip]
    number = lambda name: np.array([float(row[name]) for row in rows])
    groups, m, n, k = (number(name) for name in DIMS)
    of = lambda product: np.array([row["product"] == product for row in rows])
    tiles = np.ceil(groups * m / number("block_m")) * np.ceil(n / number("block_n"))
    first = [hashlib.sha256(repr([row[d] for d in DIMS]).encode()).digest()[0] for row in rows]
    return Records(
        product(groups, m, n, k),
        np.where(of("weights' gradient"), 0, tiles * (groups - 1)),
        np.where(of("inputs' gradient"), 2 * BF16 * groups * n * k, 0),
        number("milliseconds") * 1e-3,
        np.array(first) < 128,
    )


def product(groups: Number, m: Number, n: Number, k: Number) -> Kernel:
    """The kernel of products in bf16, or of many as arrays."""
    moved = BF16 * groups * (m * k + k * n + m * n)
    flops = 2.0 * groups * m * n * k
    dims = groups, m, n, k
    return Kernel("grouped", kind="grouped", flops=flops, bytes=moved, dtype="bf16", dims=dims)


def seconds(of: Records, chip: str, fit: MatmulFit, idle: float) -> np.ndarray:
    """Predicted seconds of each record."""
    accelerator, profile = catalog.accelerator(chip), replace(shipped(chip), grouped=(fit,))
    copies = memory_time(of.copied, accelerator, profile.memory)
    time = kernel_time(of.kernel, accelerator, profile).time + copies + idle * of.idle_programs
    return np.asarray(time)


def fitted(chip: str) -> tuple[MatmulFit, float]:
    """The fit to all records of a chip, errors as its evidence; and seconds of an idle program."""
    of = records(chip)

    def unpacked(x: np.ndarray) -> tuple[MatmulFit, float]:
        efficiency, half_m, half_k, idle = np.exp(x)
        short = lambda value: float(f"{value:.4g}")
        halves = short(half_m), 0.0, short(half_k)
        base = next(fit for fit in shipped(chip).matmul if fit.dtype == "bf16")
        made = replace(
            base,
            efficiency=min(1.0, short(efficiency)),
            half_sizes=halves,
            best=1.0,
            load=None,
            stream=None,
            fill=0.0,
        )
        return made, float(idle)

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log(seconds(of, chip, *unpacked(x)) / of.seconds)

    def search(rows: np.ndarray) -> np.ndarray:
        return least_squares(
            lambda x: errors(x)[rows], np.log(START), loss="soft_l1", f_scale=ROBUST, diff_step=1e-3
        ).x

    final, half = search(np.ones(len(of.seconds), bool)), search(of.is_fitted)
    off, held_out = (np.abs(np.expm1(errors(x))) for x in (final, half))
    evidence = Evidence(
        source=f"{SOURCE}: {len(off)} shapes in bf16; experiments/published/fit_grouped.py",
        date="2026-10",
        grade="calibrated",
        samples=len(off),
        median_error=float(np.median(off)),
        mean_error=float(off.mean()),
        max_error=float(off.max()),
        held_out_error=float(held_out[~of.is_fitted].mean()),
        error_p90=float(np.quantile(off, 0.9)),
    )
    fit, idle = unpacked(final)
    fastest = np.max(of.kernel.flops / of.seconds) / catalog.accelerator(chip).peak("bf16")
    return replace(fit, evidence=evidence, best=float(f"{fastest:.4g}")), idle


def fits() -> dict[str, tuple[MatmulFit, ...]]:
    """A fit for every chip with enough records."""
    return {chip: (fitted(chip)[0],) for chip in FITTED}


def report() -> list[str]:
    """A line per chip; the naive price is that of a dense product of the same FLOPs."""
    head = ("chip", "rate", "half m", "half k", "idle program", "n", "median", "held out", "dense")
    rows: list[tuple[str, ...]] = [head]
    for chip in FITTED:
        fit, idle = fitted(chip)
        of, e = records(chip), fit.evidence
        dense = kernel_time(
            replace(of.kernel, kind="matmul"), catalog.accelerator(chip), shipped(chip)
        )
        naive = np.abs(np.asarray(dense.time) / of.seconds - 1)
        rows.append(
            (chip, f"{fit.efficiency:.3f}", *(f"{fit.half_sizes[i]:.0f}" for i in (0, 2)),
             f"{idle * 1e9:.2f} ns", str(e.samples), f"{e.median_error:.1%}",
             f"{e.held_out_error:.1%}", f"{naive[~of.is_fitted].mean():.1%}")
        )  # fmt: skip
    return list(columns(rows, left=(0,)))


def main(arguments: list[str] | None = None) -> None:
    """Print the fits; with --write, put them into the shipped profiles."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.fit_grouped")
    parser.add_argument("--write", action="store_true", help="write scaling/profiles/data")
    write = parser.parse_args(arguments).write
    print("\n".join(report()))
    if write:
        write_table("grouped", fits())


if __name__ == "__main__":
    main()
