"""Fit matrix products on measured tables and write them into the shipped profiles.

    python -m experiments.published.fit_kernels [--write]

`matmul.csv` is XLA's default table of matrix products on H100 and B200 (375 shapes and formats of
256 to 4,096, batches of 1, 2 and 4), read from the text inside the wheel jax-cuda12-plugin 0.10.2
(Apache-2.0; openxla/xla). Its fp8 products on H100 are left out: they are above the chip's peak.
Per chip and format three figures are fitted: the rate of a busy core, the length of k that filling
its pipeline costs, and the time of a call. Half of the shapes, by hash, give the held-out error.

Chips and formats without a table take the fill time and the call of the nearest one, and the rate
of the fastest products that others published. `sustained` is what products reach that go on for
long, under the power limit; the table's are over before it counts. That of a B200 is fitted on
training runs (`fit_software`); where only the fastest product is known, long ones are taken to
reach of it what they do on an H100. `best` is the fastest product of all sources of a fit.
"""

import argparse
import csv
import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from experiments.published.tables import write_table
from scaling.meshes import catalog
from scaling.profiles.best_products import BEST, LONG, SEARCH, untimed
from scaling.profiles.profile import ANY, Evidence, MatmulFit, Profile
from scaling.profiles.shipped import shipped, shipped_names
from scaling.program.ir import Kernel
from scaling.report.formatting import columns
from scaling.simulate.kernels import kernel_time

TABLE = Path(__file__).parent / "matmul.csv"
TILE = (256, 128)  # the largest of CUTLASS's default kernels for Hopper
START = MatmulFit("bf16", 0.8, Evidence("", "", "calibrated"), 5e-6, (0.0, 0.0, 150.0), TILE)
SIZES = {"fp8": (1, 2), "bf16": (2, 2), "tf32": (4, 4)}  # bytes of an operand and of a result
ROBUST = 0.1  # relative error from which on a shape weighs less (soft L1)

XLA = "XLA's measured table of matrix products (wheel jax-cuda12-plugin 0.10.2), 256 to 4,096"
MARIN = "marin-community/marin, .agents/reports/gpu-hardware-target-report.md (2026-07-07)"
# Long products of equal sides, TFLOP/s, from MARIN.
LONG_TFLOPS = {"bf16": {8192: 753.3, 16384: 700.6}, "fp8": {8192: 1300.3, 16384: 1452.7}}
FROM_RUNS = "; sustained: fitted on training steps, experiments/published/fit_software.py"
# Shapes m, n, k of the best products (`scaling.profiles.best_products`).
BEST_SHAPES = {
    ("a100-sxm-80g", "bf16"): (1024, 10240, 5120),
    ("h100-sxm", "fp8"): (1024, 9216, 14336),
}


@dataclass(frozen=True)
class Shapes:
    """Measured products of one chip and format; arrays [shapes]."""

    kernel: Kernel
    seconds: np.ndarray
    is_fitted: np.ndarray  # by hash of the shape, for the held-out error


def tables() -> dict[tuple[str, str], Shapes]:
    """The measured products by chip and format."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            values = [float(row[key]) for key in ("batch", "m", "n", "k", "microseconds")]
            found.setdefault((row["chip"], row["dtype"]), []).append(values)
    return {key: _shapes(key[1], np.array(rows)) for key, rows in found.items()}


def _shapes(dtype: str, rows: np.ndarray) -> Shapes:
    *dims, microseconds = rows.T
    first = [hashlib.sha256(str(tuple(map(int, d))).encode()).digest()[0] for d in rows[:, :4]]
    return Shapes(product(dtype, *dims), microseconds * 1e-6, np.array(first) < 128)


def product(dtype: str, batch: np.ndarray, m: np.ndarray, n: np.ndarray, k: np.ndarray) -> Kernel:
    """The kernel of a product, or of many as arrays."""
    operand, result = SIZES[dtype]
    moved = batch * (operand * (m * k + k * n) + result * m * n)
    flops = 2.0 * batch * m * n * k
    return Kernel(
        "dot", kind="matmul", flops=flops, bytes=moved, dtype=dtype, dims=(batch, m, n, k)
    )


def fitted(chip: str, dtype: str, shapes: Shapes) -> MatmulFit:
    """The fit to all shapes; its evidence has the errors, one of them of the held-out half."""

    def errors(fit: MatmulFit) -> np.ndarray:
        profile = replace(shipped(chip), matmul=(fit,))
        time = kernel_time(shapes.kernel, catalog.accelerator(chip), profile).time
        return np.log(time / shapes.seconds)

    def search(rows: np.ndarray) -> MatmulFit:
        start = np.log([START.efficiency, START.overhead, START.half_sizes[2]])
        solve = least_squares(
            lambda x: errors(_with(dtype, x))[rows], start, loss="soft_l1", f_scale=ROBUST,
            diff_step=1e-3,
        )  # fmt: skip
        return _with(dtype, solve.x)

    everywhere = np.ones(len(shapes.seconds), bool)
    final, half = search(everywhere), search(shapes.is_fitted)
    off = np.abs(np.expm1(errors(final)))
    held_out = np.abs(np.expm1(errors(half)))[~shapes.is_fitted]
    evidence = Evidence(
        source=f"{XLA}; {len(off)} shapes in {dtype}; experiments/published/fit_kernels.py",
        date="2026-11",
        grade="calibrated",
        samples=len(off),
        median_error=float(np.median(off)),
        mean_error=float(off.mean()),
        max_error=float(off.max()),
        held_out_error=float(held_out.mean()),
        error_p90=float(np.quantile(off, 0.9)),
    )
    chip_peak = catalog.accelerator(chip).peak(dtype)
    fastest = float(np.max(shapes.kernel.flops / shapes.seconds)) / chip_peak
    return replace(final, evidence=evidence, best=_best(chip, dtype, fastest))


def _best(chip: str, dtype: str, *shares: float) -> float:
    """The largest share of the peak that a source saw; the search's among them."""
    searched = BEST.get(chip, {}).get(dtype, 0.0) / catalog.accelerator(chip).peak(dtype)
    return float(f"{max((searched, *shares)):.4g}")


def _with(dtype: str, x: np.ndarray) -> MatmulFit:
    efficiency, overhead, half = np.exp(x)
    return replace(
        START, dtype=dtype, efficiency=min(float(f"{efficiency:.4g}"), 1.0),
        overhead=float(f"{overhead:.3g}"), half_sizes=(0.0, 0.0, float(f"{half:.4g}")),
    )  # fmt: skip


def like(fit: MatmulFit, chip: str, of: str, dtype: str) -> MatmulFit:
    """A fit for another chip or format: equal fill time, and the rate of its best product."""
    to, own = catalog.accelerator(chip), catalog.accelerator(of)
    per_core = to.peak(dtype) / (to.cores or 1) / (own.peak(fit.dtype) / (own.cores or 1))
    half = float(f"{fit.half_sizes[2] * per_core:.4g}")
    shape, best = BEST_SHAPES[chip, dtype], BEST[chip][dtype]
    moved = replace(
        fit, dtype=dtype, efficiency=1.0, half_sizes=(0.0, 0.0, half), sustained=1.0, best=1.0
    )
    profile = replace(shipped(chip), matmul=(moved,))
    kernel = product(dtype, *(np.array(float(d)) for d in (1, *shape)))
    cost = kernel_time(kernel, to, profile)
    share = float(cost.compute / (kernel.flops / best - cost.overhead))
    source = (
        f"{SEARCH}, {best / 1e12:g} TFLOP/s at {'x'.join(map(str, shape))}; fill time and call "
        f"assumed as in {fit.dtype} on {of}: {XLA}"
    )
    evidence = Evidence(source, "2026-11", "datasheet")
    return replace(
        moved, efficiency=float(f"{share:.4g}"), best=_best(chip, dtype), evidence=evidence
    )


def sustained_as_on_h100(fit: MatmulFit) -> MatmulFit:
    """The fit with long products at the share of the best one that they reach on an H100."""
    note = f"; long products assumed at {LONG:.2f} of it, as on h100-sxm ({MARIN})"
    evidence = replace(fit.evidence, source=fit.evidence.source + note)
    return untimed(replace(fit, sustained=float(f"{LONG * fit.best:.4g}"), evidence=evidence))


def sustained(fit: MatmulFit, chip: str) -> MatmulFit:
    """The fit with the rate of a long product that was published."""
    measured = LONG_TFLOPS[fit.dtype]
    tflops = max(measured.items())[1]
    share = tflops * 1e12 / catalog.accelerator(chip).peak(fit.dtype)
    note = f"; sustained: {tflops} TFLOP/s at sides of {max(measured)}, {MARIN}"
    evidence = replace(fit.evidence, source=fit.evidence.source + note)
    best = max(fit.best, float(f"{share * max(measured.values()) / tflops:.4g}"))
    return replace(fit, sustained=float(f"{share:.4g}"), best=best, evidence=evidence)


def sustaining(fit: MatmulFit, share: float) -> MatmulFit:
    """The fit of a chip whose sustained rate was fitted on training runs."""
    source = fit.evidence.source.removesuffix(FROM_RUNS) + FROM_RUNS
    evidence = replace(fit.evidence, source=source)
    return replace(fit, sustained=float(f"{share:.4g}"), evidence=evidence)


def profiles() -> dict[str, Profile]:
    """The shipped profiles with their products fitted anew."""
    fits = {key: fitted(*key, shapes) for key, shapes in tables().items()}
    h100 = fits["h100-sxm", "bf16"]
    hopper = (
        sustained(h100, "h100-sxm"),
        sustained(like(h100, "h100-sxm", "h100-sxm", "fp8"), "h100-sxm"),
        fits["h100-sxm", "tf32"],
    )
    products = {
        "a100-sxm-80g": (sustained_as_on_h100(like(h100, "a100-sxm-80g", "h100-sxm", "bf16")),),
        "h100-sxm": hopper,
        "b200-sxm": tuple(
            sustaining(fits["b200-sxm", dtype], shipped("b200-sxm").matmul[0].sustained)
            for dtype in ("bf16", "fp8", "tf32")
        ),
    }
    return {
        chip: replace(
            shipped(chip),
            matmul=(*found, _other_formats(found[0])),
        )
        for chip, found in products.items()
    }


def _as_on(chip: str, evidence: Evidence) -> Evidence:
    return Evidence(f"assumed as on {chip}: {evidence.source}", evidence.date, "datasheet")


def _other_formats(fit: MatmulFit) -> MatmulFit:
    source = f"assumed as in {fit.dtype}: {fit.evidence.source}"
    known = fit.evidence.error_p90 if fit.evidence.grade == "datasheet" else None
    evidence = Evidence(source, fit.evidence.date, "datasheet", error_p90=known)
    return replace(fit, dtype=ANY, evidence=evidence)


def report() -> list[str]:
    """A line per fit."""
    head = ("chip", "format", "busy core", "sustained", "half k", "call", "n", "median", "held out")
    rows: list[tuple[str, ...]] = [head]
    for chip, profile in profiles().items():
        for fit in profile.matmul:
            e = fit.evidence
            said = [
                f"{x:.1%}" if x is not None else "-" for x in (e.median_error, e.held_out_error)
            ]
            rows.append(
                (chip, fit.dtype, f"{fit.efficiency:.3f}", f"{fit.sustained:.3f}",
                 f"{fit.half_sizes[2]:.0f}", f"{fit.overhead * 1e6:.1f} us", str(e.samples), *said)
            )  # fmt: skip
    return list(columns(rows, left=(0, 1)))


def main(arguments: list[str] | None = None) -> None:
    """Print the fits; with --write, put them into the shipped profiles."""
    parser = argparse.ArgumentParser(prog="python -m experiments.published.fit_kernels")
    parser.add_argument("--write", action="store_true", help="write scaling/profiles/data")
    write = parser.parse_args(arguments).write
    print("\n".join(report()))
    if write:
        own = profiles()
        products = {chip: own[chip].matmul[:-1] for chip in shipped_names()}
        write_table("products", products)


if __name__ == "__main__":
    main()
