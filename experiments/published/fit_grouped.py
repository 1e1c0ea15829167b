"""Fit products of experts on published records and write them into the shipped table.

    python -m experiments.published.fit_grouped [--write]

A grouped product is priced as one product of all rows whose tiles have their matrix each, with two
figures beside those of products (`scaling.simulate.products`): its `share` of their rates, by chip,
and the least `fill` of a wave of tiles, one for all chips. They come from software that trains:

* `grouped.csv`, the autotuning records of tokamax 0.0.17 (its wheel, Apache-2.0, 2026-10), median
  of five calls: bf16 products of even groups by its Triton kernels on H100, B200 and A100. Of a
  shape that stands there several times the fastest call is taken. Left out are records of quantized
  operands and of one full group among empty ones. The gradient of inputs transposes the matrices
  first, and the grid of both has a program per tile, column and *group*: `idle` seconds of each
  that has no rows are fitted beside.
* `kernels/kernels_experts.csv.gz`, products of Transformer Engine on an A100 PCIe (SimuMax); the
  gradient of weights is added to a sum in fp32.
* `experts_layers`, whole layers of inference software on B200: its share is that with which they
  have no bias in the median over software, many rows, even loads, bf16. Tokamax's records of that
  silicon count for GB200, and what borrows from it: published steps of Megatron there agree with
  them. Both shares are in the range of B200.

Half of tokamax's shapes, by hash, give the held-out error. Layers of other chips are not fitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import gmean

from experiments.published.csv_rows import rows_of
from experiments.published.experts_layers import FEW_ROWS, groups, layer_seconds, rows_of_each
from experiments.published.kernel_tables import read
from experiments.published.split import is_first
from experiments.published.tables import evidence_of, p90, print_or_write, short
from scaling.meshes import catalog
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Evidence, GroupedFit, Profile
from scaling.profiles.shipped import GROUPED_FORMAT, of_groups
from scaling.program.ir import Kernel, Number
from scaling.program.ops import matmul
from scaling.report.formatting import columns
from scaling.simulate.kernels import kernel_time, memory_time

TABLE = Path(__file__).parent / "grouped.csv"
DIMS = ("groups", "m", "n", "k")
RECORDED = ("h100-sxm", "b200-sxm")  # chips with more than a handful of tokamax's records
SAME = {"b200-sxm": "gb200"}  # silicon of records -> the chip whose figure they give
TRAINED = "a100-pcie-80g"  # the chip of Transformer Engine's
BF16, FP32 = 2, 4  # bytes
ROBUST = 0.1  # relative error from which on a record weighs less (soft L1)
TOKAMAX = "tokamax 0.0.17, its autotuning records of Triton's grouped products"
SIMUMAX = "MooreThreads/SimuMax@4dcaae51, grouped products of Transformer Engine"
SCRIPT = "experiments/published/fit_grouped.py"
LAYERS = "aiconfigurator, whole layers of experts in bf16"
SHARES = np.geomspace(0.3, 1.0, 61)  # among which that of layers is searched
NOTHING = Evidence("", "", "calibrated")


@dataclass(frozen=True)
class Records:
    """Measured products of one chip; arrays [records]."""

    chip: str
    kernel: Kernel
    idle_programs: np.ndarray
    copied: np.ndarray  # bytes
    seconds: np.ndarray
    is_fitted: np.ndarray  # by hash of the shape, for the held-out error
    product: np.ndarray  # "forward", "inputs' gradient", "weights' gradient"


@cache
def records(chip: str) -> Records:
    """Tokamax's records of a chip."""
    rows = [row for row in rows_of(TABLE) if row["chip"] == chip]
    number = lambda name: np.array([float(row[name]) for row in rows])
    groups, m, n, k = (number(name) for name in DIMS)
    kind = np.array([row["product"] for row in rows])
    tiles = np.ceil(groups * m / number("block_m")) * np.ceil(n / number("block_n"))
    return Records(
        chip,
        product(groups, m, n, k),
        np.where(kind == "weights' gradient", 0, tiles * (groups - 1)),
        np.where(kind == "inputs' gradient", 2 * BF16 * groups * n * k, 0),
        number("milliseconds") * 1e-3,
        np.array([is_first(repr([row[d] for d in DIMS])) for row in rows]),
        kind,
    )


@cache
def trained() -> Records:
    """Transformer Engine's products."""
    rows = [row for row in read("kernels_experts.csv.gz") if row["kind"] == "product"]
    groups, m, n, k = (np.array([float(row[name]) for row in rows]) for name in DIMS)
    stages = {"fwd": "forward", "bwd_grad_act": "inputs' gradient"}
    kind = np.array([stages.get(row["software"].split()[-1], "weights' gradient") for row in rows])
    inwards, summed = kind == "inputs' gradient", kind == "weights' gradient"
    one_of = lambda forward, inputs, weights: np.where(
        summed, weights, np.where(inwards, inputs, forward)
    )
    dims = groups, one_of(m, m, k), one_of(n, k, n), one_of(k, n, m)
    time, none = np.array([float(row["time_us"]) for row in rows]) * 1e-6, np.zeros(len(rows))
    results = np.where(summed, 2 * FP32, BF16)
    return Records(TRAINED, product(*dims, results), none, none, time, none == 0, kind)


def records_of(chip: str) -> Records:
    """The records of a chip: Transformer Engine's on an A100 PCIe, tokamax's on others."""
    return trained() if chip == TRAINED else records(chip)


def product(groups: Number, m: Number, n: Number, k: Number, results: Number = BF16) -> Kernel:
    """The kernel of products in bf16, or of many as arrays; bytes of each result."""
    kernel = matmul("grouped", (groups, m, n, k), GROUPED_FORMAT, (BF16, BF16, 0), grouped=True)
    return replace(kernel, bytes=kernel.bytes + results * groups * m * n)


def seconds(of: Records, fit: GroupedFit, idle: float = 0.0) -> np.ndarray:
    """Predicted seconds of each record."""
    accelerator = catalog.accelerator(of.chip)
    own: Profile = profile_of(accelerator)
    profile = replace(own, grouped=tuple(of_groups(one, fit, own.memory) for one in own.matmul))
    copies = memory_time(of.copied, accelerator, profile.memory)
    time = kernel_time(of.kernel, accelerator, profile).time + copies + idle * of.idle_programs
    return np.asarray(time)


@cache
def fitted(chip: str, fill: float | None = None, half: bool = False) -> tuple[GroupedFit, float]:
    """The figures of a chip's records, or of half of them, and seconds of an idle program."""
    of = records_of(chip)
    rows = of.is_fitted if half else np.ones(len(of.seconds), bool)

    def made(x: np.ndarray) -> tuple[GroupedFit, float]:
        share, idle, waves = map(float, np.exp(x))
        return GroupedFit(min(share, 1.0), waves if fill is None else fill, NOTHING), idle

    def errors(x: np.ndarray) -> np.ndarray:
        return np.log(seconds(of, *made(x)) / of.seconds)[rows]

    start = np.log([0.9, 1e-9, 2e-6])
    return made(least_squares(errors, start, loss="soft_l1", f_scale=ROBUST, diff_step=1e-3).x)


def fill_of_all() -> float:
    """The least fill of a wave: the geometric mean of the chips with tokamax's records."""
    return short(gmean([fitted(chip)[0].fill for chip in RECORDED]))


def off(chip: str, fit: GroupedFit, idle: float) -> np.ndarray:
    """Predicted over measured seconds of a chip's records, less one."""
    of = records_of(chip)
    return seconds(of, fit, idle) / of.seconds - 1


def fits() -> Mapping[str, GroupedFit]:
    """The fit of each chip, with its errors as evidence."""
    left = [off(chip, *left_out(chip)) for chip in (*RECORDED, TRAINED)]
    lent = p90(np.concatenate(left))
    found = {SAME.get(chip, chip): by_records(chip, lent) for chip in (*RECORDED, TRAINED)}
    return found | {"b200-sxm": by_layers("b200-sxm", found[SAME["b200-sxm"]])}


def by_layers(chip: str, recorded: GroupedFit) -> GroupedFit:
    """The share with which a chip's whole layers have no bias, in a range that holds `recorded`."""
    by_software = [
        many
        for (gpu, _, dtype, load), rows in groups()
        if (gpu, dtype, load) == (chip, "bf16", "even")
        and (many := [row for row in rows if rows_of_each(row) > FEW_ROWS])
    ]
    accelerator = catalog.accelerator(chip)
    profile = profile_of(accelerator)
    measured = [np.array([float(r["time_us"]) * 1e-6 for r in rows]) for rows in by_software]

    def errors(share: float) -> np.ndarray:
        """Log errors of each software's median."""
        fit = replace(recorded, share=share)
        grouped = tuple(of_groups(one, fit, profile.memory) for one in profile.matmul)
        tried = replace(profile, grouped=grouped)
        priced = [layer_seconds(rows, accelerator, tried) for rows in by_software]
        return np.array([np.median(np.log(p / m)) for p, m in zip(priced, measured, strict=True)])

    share = short(float(min(SHARES, key=lambda one: abs(np.median(errors(one))))))
    off = np.expm1(np.array([*errors(share), np.log(share / recorded.share)]))
    source = f"{LAYERS}: {len(by_software)} software; {TOKAMAX}: {recorded.share:.2f}; {SCRIPT}"
    evidence = evidence_of(source, "2026-11", off, off, error_p90=p90(off), lent_p90=p90(off))
    return GroupedFit(share, recorded.fill, evidence)


def by_records(chip: str, lent: float) -> GroupedFit:
    """The fit of a chip's records; `lent` is the error of chips that are left out."""
    of, fill = records_of(chip), fill_of_all()
    fit, idle = fitted(chip, fill)
    fit = replace(fit, share=short(fit.share))
    errors = off(chip, fit, idle)
    half = off(chip, *fitted(chip, fill, half=True))
    held_out = half[~of.is_fitted] if chip in RECORDED else errors
    source, date = (TOKAMAX, "2026-10") if chip in RECORDED else (SIMUMAX, "2026-11")
    where = f" on {chip}, the same silicon" * (chip in SAME)
    # One laboratory's kernel is not all that a chip may run: never narrower than left-out chips.
    widest = max(lent, p90(errors))
    source = f"{source}{where}: {len(errors)} shapes; {SCRIPT}"
    evidence = evidence_of(source, date, errors, held_out, error_p90=widest, lent_p90=widest)
    return replace(fit, evidence=evidence)


def left_out(chip: str) -> tuple[GroupedFit, float]:
    """The figures of a chip without its records: geometric means of the others'."""
    others = [fitted(one)[0] for one in (*RECORDED, TRAINED) if one != chip]
    share = gmean([fit.share for fit in others])
    fill = gmean([fitted(one)[0].fill for one in RECORDED if one != chip])
    return GroupedFit(share, fill, NOTHING), fitted(chip, fill)[1]


def report() -> list[str]:
    """A line per chip and product, with the others' share ("left out"), and by the roofline."""
    head = ("chip", "product", "share", "fill", "n", "median", "bias", "worst", "inside")
    rows: list[tuple[str, ...]] = [(*head, "left out", "bias", "roofline")]
    found = fits()
    for chip in (*RECORDED, TRAINED):
        fit, of = found[SAME.get(chip, chip)], records_of(chip)
        idle, accelerator = fitted(chip, fit.fill)[1], catalog.accelerator(chip)
        most = 1 + (fit.evidence.error_p90 or 0.0)
        own, left = off(chip, fit, idle), off(chip, *left_out(chip))
        least = np.maximum(
            of.kernel.flops / accelerator.peak(GROUPED_FORMAT),
            of.kernel.bytes / accelerator.required("memory_bandwidth"),
        )
        for name in dict.fromkeys(of.product):
            one = of.product == name
            e, inside = own[one], (own[one] < most - 1) & (own[one] > 1 / most - 1)
            said = (np.median(np.abs(e)), np.median(e), e[np.argmax(np.abs(e))], inside.mean())
            others = (np.median(np.abs(left[one])), np.median(left[one]))
            naive = np.median(np.abs(least / of.seconds - 1)[one])
            numbers = [f"{value:.1%}" for value in (*said, *others, naive)]
            figures = f"{fit.share:.3f}", f"{fit.fill * 1e6:.2f} us", str(one.sum())
            rows.append((chip, str(name), *figures, *numbers))
    layers = found["b200-sxm"]
    row = ("b200-sxm", "whole layers", f"{layers.share:.3f}", f"{layers.fill * 1e6:.2f} us")
    rows.append((*row, *[""] * (len(rows[0]) - len(row))))
    return list(columns(rows, left=(0, 1)))


if __name__ == "__main__":
    print_or_write("grouped", report, lambda: {chip: [fit] for chip, fit in fits().items()})
