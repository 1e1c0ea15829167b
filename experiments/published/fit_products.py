"""Fit the constants of matrix products on published tables: scaling/profiles/data/products.json.

    python -m experiments.published.fit_products [--write]

Tables: kernels/kernels_gemm.csv.gz (aiconfigurator in CUDA graphs, SimuMax's A100 PCIe) and, for
tf32 and as a check, matmul.csv (XLA's table of H100 and B200, wheel jax-cuda12-plugin 0.10.2, both
Apache-2.0). Per chip and format:

    stream     what products of at most 32 rows reach of the bandwidth, matrices of three caches
    sustained  what products of more than 3 ms reach of the peak, sides of 1,024 and more: they are
               replayed, under load for 0.1 s and longer
    efficiency, load, fill, overhead    searched on shorter products, which power does not hold

Rows that move more bytes than the memory can, found in the L2 cache by the harness's rotation, are
left out of the search. Errors are of half of the shapes, by hash, priced by a fit to the other
half. `best` is the fastest product of all sources. `ship_kernels` writes the ranges afterwards.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from experiments.published.csv_rows import rows_of
from experiments.published.kernel_tables import CASTS, read
from experiments.published.split import is_first
from experiments.published.tables import evidence_of, print_or_write, short
from scaling.meshes import catalog
from scaling.models.accounting.matrices import NUMBER_BYTES
from scaling.profiles.profile import Evidence, MatmulFit
from scaling.profiles.shipped import POWER, chip_profile, power_ratio
from scaling.program.ir import Kernel
from scaling.report.formatting import columns
from scaling.simulate.kernels import kernel_time

XLA = Path(__file__).parent / "matmul.csv"
TABLE = "ai-dynamo/aiconfigurator@095f58a5, TensorRT-LLM"
PCIE = "MooreThreads/SimuMax@4dcaae51, A100 PCIe"
SCRIPT = "experiments/published/fit_products.py"
SEARCH = "stas00/ml-engineering, compute/accelerator/README.md, commit 744d01e (mamf-finder.py)"
# TFLOP/s of the fastest product of a search on each chip, by one person
SEARCHED: Mapping[tuple[str, str], float] = {
    ("a100-sxm-80g", "bf16"): 271.2,
    ("h100-sxm", "bf16"): 794.5,
    ("h100-sxm", "fp8"): 1402.6,
    ("b200-sxm", "bf16"): 1745.0,
    ("b200-sxm", "fp8"): 3432.5,
    ("mi300x", "bf16"): 668.4,
}
# Another laboratory's B200 after a second of load, TFLOP/s (SimuMax): node and cooling differ.
OTHER_NODE = {"b200-sxm": 1050.0}
# Recipes of a source that are a format.
RECIPES = {"bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "nvfp4": "fp4"}
LONG, SIDE = 3e-3, 1024  # s, of a product that power holds; least side
SHORT = 1e-3  # s, of one that it does not
FEW_ROWS, CACHES, FEWEST = 32, 3, 5  # of products that measure the stream
DIGITS = 4  # of a figure
ROBUST = 0.1  # relative error from which on a shape weighs less (soft L1)
SEARCHES: tuple[str, ...] = ("efficiency", "overhead", "fill", "load")
STARTS = (  # kernels that fill their pipelines behind others, and that do not
    {"efficiency": 0.8, "overhead": 2e-6, "fill": 0.2e-6, "load": 150.0},
    {"efficiency": 0.8, "overhead": 1e-6, "fill": 3e-6, "load": 40.0},
)


@dataclass(frozen=True)
class Shapes:
    """Measured products of one chip and recipe; arrays [shapes]."""

    chip: str
    dtype: str
    kernel: Kernel
    cast: Kernel  # of the left operand, in the same time
    seconds: np.ndarray

    def part(self, chosen: np.ndarray) -> "Shapes":
        """Those that are chosen, [shapes] of bool."""
        dims = tuple(np.asarray(side)[chosen] for side in self.kernel.dims)
        cast = replace(self.cast, bytes=np.broadcast_to(self.cast.bytes, chosen.shape)[chosen])
        return Shapes(self.chip, self.dtype, product(self.dtype, *dims), cast, self.seconds[chosen])

    @property
    def rate(self) -> np.ndarray:
        """Fractions of the peak."""
        peak = catalog.accelerator(self.chip).peak(self.dtype)
        return self.kernel.flops / self.seconds / peak

    @property
    def is_first(self) -> np.ndarray:
        """Half of the shapes, by hash."""
        rows = np.stack(self.kernel.dims, axis=1).astype(int)
        return np.array([is_first(str(tuple(row))) for row in rows])


def product(dtype: str, batch: np.ndarray, m: np.ndarray, n: np.ndarray, k: np.ndarray) -> Kernel:
    """The kernel of a product, or of many as arrays; results of narrow formats are bf16."""
    operand = NUMBER_BYTES[dtype]
    moved = batch * (operand * (m * k + k * n) + max(operand, 2) * m * n)
    flops, dims = 2.0 * batch * m * n * k, (batch, m, n, k)
    return Kernel("dot", kind="matmul", flops=flops, bytes=moved, dtype=dtype, dims=dims)


@cache
def tables() -> dict[tuple[str, str], Shapes]:
    """Measured products by chip and the source's name of the format; XLA's are "xla FORMAT"."""
    found: dict[tuple[str, str], list[tuple[str, list[float]]]] = {}
    for row in read("kernels_gemm.csv.gz"):
        seconds = float(row["time_us"]) - float(row["cast_us"] or 0)
        sizes = [float(row[key]) for key in ("batch", "m", "n", "k")]
        key = row["gpu"], row["gemm_dtype"]
        found.setdefault(key, []).append((row["dtype"], [*sizes, seconds * 1e-6]))
    for row in rows_of(XLA):
        values = [float(row[key]) for key in ("batch", "m", "n", "k", "microseconds")]
        key = row["chip"], f"xla {row['dtype']}"
        found.setdefault(key, []).append((row["dtype"], [*values[:4], values[4] * 1e-6]))
    return {key: _shapes(*key, rows) for key, rows in found.items()}


def _shapes(chip: str, recipe: str, rows: list[tuple[str, list[float]]]) -> Shapes:
    dtype = rows[0][0]
    batch, m, n, k, seconds = np.array([values for _, values in rows]).T
    cast = Kernel("cast", kind="fusion", bytes=CASTS.get(recipe, 0) * m * k)
    return Shapes(chip, dtype, product(dtype, batch, m, n, k), cast, seconds)


def seconds(shapes: Shapes, fit: MatmulFit) -> np.ndarray:
    """What the shapes take by a fit."""
    chip = catalog.accelerator(shapes.chip)
    profile = replace(chip_profile(chip), matmul=(replace(fit, dtype=shapes.dtype),))
    time = kernel_time(shapes.kernel, chip, profile).time
    if np.any(shapes.cast.bytes):
        time = time + kernel_time(shapes.cast, chip, profile).time
    return np.asarray(time)


def log_errors(shapes: Shapes, fit: MatmulFit) -> np.ndarray:
    """log(priced / measured)."""
    return np.log(seconds(shapes, fit) / shapes.seconds)


def streamed(shapes: Shapes) -> float | None:
    """The median fraction of the bandwidth of products with few rows; None: hardly any is there."""
    chip = catalog.accelerator(shapes.chip)
    bandwidth, large = chip.required("memory_bandwidth"), CACHES * chip.required("l2_cache")
    chosen = np.asarray(shapes.kernel.dims[1] <= FEW_ROWS) & (shapes.kernel.bytes > large)
    share = shapes.kernel.bytes / shapes.seconds / bandwidth
    return float(np.median(share[chosen])) if chosen.sum() >= FEWEST else None


def sustained(shapes: Shapes) -> float:
    """The median fraction of the peak of products under long load."""
    sides = np.min(np.stack(shapes.kernel.dims[1:]), axis=0)
    return float(np.median(shapes.rate[(shapes.seconds > LONG) & (sides >= SIDE)]))


def searched(shapes: Shapes, base: MatmulFit, own: tuple[str, ...]) -> MatmulFit:
    """The base with the constants of these names searched."""
    chip = catalog.accelerator(shapes.chip)
    stream = (base.stream or 1) * chip.required("memory_bandwidth")
    short = shapes.part((shapes.seconds < SHORT) & (shapes.kernel.bytes / shapes.seconds < stream))
    burst = replace(base, sustained=1.0, best=1.0)

    def fit(x: np.ndarray) -> MatmulFit:
        values = dict(zip(own, np.exp(x).tolist(), strict=True))
        values["efficiency"] = min(values["efficiency"], 1.0)
        return replace(burst, **values)

    solve = lambda start: least_squares(
        lambda x: log_errors(short, fit(x)), np.log([start[name] for name in own]),
        loss="soft_l1", f_scale=ROBUST, diff_step=1e-3, max_nfev=40,
    )  # fmt: skip
    found = min(map(solve, STARTS), key=lambda found: found.cost)
    values = {name: getattr(fit(found.x), name) for name in own}
    return replace(base, **values)


def fitted(
    shapes: Shapes,
    like: MatmulFit | None,
    own: tuple[str, ...] = SEARCHES,
) -> MatmulFit:
    """The fit of a chip and format.

    Args:
        like: lends what is not in `own`, and the stream where the table does not measure it.
        own: names of the constants to search.
    """
    base = like or MatmulFit("", 0.8, Evidence("", "", "calibrated"), load=1.0)
    base = replace(base, dtype=shapes.dtype, stream=streamed(shapes) or base.stream)
    half = searched(shapes.part(shapes.is_first), base, own)
    half = replace(half, sustained=sustained(shapes.part(shapes.is_first)))
    final = replace(searched(shapes, base, own), sustained=sustained(shapes))
    off = np.abs(log_errors(shapes.part(~shapes.is_first), half))
    peak = catalog.accelerator(shapes.chip).peak(shapes.dtype)
    errors = np.expm1(log_errors(shapes, final))
    table = PCIE if shapes.chip == "a100-pcie-80g" else TABLE
    source = f"{table}: {len(errors)} products in {shapes.dtype}; {SCRIPT}"
    evidence = evidence_of(source, "2026-11", errors, np.expm1(off), digits=DIGITS)
    fastest = SEARCHED.get((shapes.chip, shapes.dtype), 0.0) * 1e12 / peak
    best = min(max(fastest, float(shapes.rate.max())), 1.0)
    return _rounded(replace(final, best=best, evidence=evidence))


def _rounded(fit: MatmulFit) -> MatmulFit:
    names = ("efficiency", "overhead", "fill", "load", "stream", "sustained", "best")
    values: dict[str, Any] = {name: short(getattr(fit, name), DIGITS) for name in names}
    return replace(fit, **values)


def called_by_xla(chip: str, fit: MatmulFit) -> tuple[MatmulFit, float, np.ndarray]:
    """XLA's table by the form: the fit, seconds of a call outside a graph, log errors.

    Of a format that has no other table, fit has its efficiency searched; else it is as given.
    """
    shapes = tables()[chip, f"xla {fit.dtype}"]
    burst = replace(fit, sustained=1.0, best=1.0)
    searches = fit.evidence.samples == 0

    def moved(x: np.ndarray) -> MatmulFit:
        share = min(float(np.exp(x[1])), 1.0) if searches else fit.efficiency
        return replace(burst, efficiency=share, overhead=fit.overhead + float(np.exp(x[0])))

    start = [np.log(2e-6), *([np.log(fit.efficiency)] if searches else [])]
    found = least_squares(
        lambda x: log_errors(shapes, moved(x)), start, loss="soft_l1", f_scale=ROBUST,
        diff_step=1e-3,
    )  # fmt: skip
    final = moved(found.x)
    return final, final.overhead - fit.overhead, log_errors(shapes, final)


def tensor_float(chip: str, like: MatmulFit) -> MatmulFit:
    """The fit in tf32, from XLA's table; all but its rate as in bf16."""
    start = replace(like, dtype="tf32", evidence=Evidence("", "2026-11", "calibrated"))
    fit, call, errors = called_by_xla(chip, start)
    off = np.abs(np.expm1(errors))
    source = (
        f"XLA's table (wheel jax-cuda12-plugin 0.10.2), {len(off)} products in tf32 without "
        f"{call * 1e6:.1f} us of a call outside a CUDA graph; the rest as in bf16"
    )
    p90 = np.expm1(np.quantile(np.abs(errors), 0.9))
    evidence = evidence_of(source, "2026-11", off, digits=DIGITS, error_p90=p90)
    best = float(tables()[chip, "xla tf32"].rate.max())
    limit = min(like.sustained * fit.efficiency / like.efficiency, 1.0)
    final = replace(
        like, dtype="tf32", efficiency=fit.efficiency, sustained=limit, best=best, evidence=evidence
    )
    return _rounded(final)


def in_proportion(chip: str, dtype: str, of: str, fit: MatmulFit) -> MatmulFit:
    """The fit of a chip of which only the best product of a search is known, as on another chip."""
    share = lambda name: SEARCHED[name, dtype] * 1e12 / catalog.accelerator(name).peak(dtype)
    ratio = share(chip) / share(of)
    source = f"{SEARCH}: {SEARCHED[chip, dtype]} TFLOP/s; the rest assumed as on {of}"
    return _rounded(
        replace(
            fit,
            efficiency=fit.efficiency * ratio,
            sustained=fit.sustained * ratio,
            best=share(chip),
            evidence=Evidence(source, "2026-11", "datasheet", error_p90=0.3),
        )
    )


@cache
def fits() -> dict[str, tuple[MatmulFit, ...]]:
    """The fits of all chips, the first of each in bf16."""
    found: dict[str, dict[str, MatmulFit]] = {}
    shapes = tables()
    for chip in ("a100-sxm-80g", "a100-pcie-80g", "l40s", "h100-sxm", "b200-sxm"):
        own: dict[str, MatmulFit] = {}
        for recipe, dtype in RECIPES.items():
            if (chip, recipe) in shapes:
                lender, names = own.get("bf16"), SEARCHES
                if chip == "a100-pcie-80g":  # few small ones, called without a graph
                    lender, names = found["a100-sxm-80g"]["bf16"], SEARCHES[:1]
                own[dtype] = fitted(shapes[chip, recipe], lender, names)
        if (chip, "xla tf32") in shapes:
            own["tf32"] = tensor_float(chip, own["bf16"])
        found[chip] = own
    found["mi300x"] = {
        "bf16": in_proportion("mi300x", "bf16", "h100-sxm", found["h100-sxm"]["bf16"])
    }
    return {chip: tuple(own.values()) for chip, own in sorted(found.items())}


def power_exponents() -> Iterator[tuple[str, str, float]]:
    """POWER by pairs of chips: of boards of equal silicon, and of generations alike in all else."""
    for one, other in (("a100-sxm-80g", "a100-pcie-80g"), ("h100-sxm", "b200-sxm")):
        shares = fits()[one][0].sustained / fits()[other][0].sustained
        ratio = power_ratio(catalog.accelerator(one), catalog.accelerator(other))
        yield one, other, float(np.log(shares) / np.log(ratio))


def report() -> Iterator[str]:
    """A line per fit, then what is known of the form."""
    rows: list[tuple[str, ...]] = [
        ("chip", "format", "efficiency", "sustained", "stream", "load", "fill", "call", "best",
         "n", "median", "held out")
    ]  # fmt: skip
    percent = lambda x: f"{x:.1%}" if x is not None else "-"
    for chip, own in fits().items():
        for fit in own:
            e = fit.evidence
            rows.append(
                (chip, fit.dtype, f"{fit.efficiency:.3f}", f"{fit.sustained:.3f}",
                 f"{fit.stream:.3f}", f"{fit.load:.0f} B", f"{fit.fill * 1e6:.2f} us",
                 f"{fit.overhead * 1e6:.2f} us", f"{fit.best:.3f}", str(e.samples),
                 percent(e.median_error), percent(e.held_out_error))
            )  # fmt: skip
    yield from columns(rows, left=(0, 1))
    for one, other, exponent in power_exponents():
        yield f"long products follow power^{exponent:.2f}: {one}, {other} ({POWER} is taken)"
    for chip in ("h100-sxm", "b200-sxm"):
        for fit in fits()[chip]:
            if (chip, f"xla {fit.dtype}") in tables() and fit.dtype != "tf32":
                _, call, errors = called_by_xla(chip, fit)
                yield (
                    f"XLA's table, {chip} {fit.dtype}: median {np.median(np.abs(errors)):.1%} with "
                    f"{call * 1e6:.1f} us for a call outside a graph"
                )


if __name__ == "__main__":
    print_or_write("products", report, fits)
