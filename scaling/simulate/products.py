"""Seconds of a matrix product: tiles over cores in waves, a memory beside them, a limit of power.

    busy   = least over tiles and splits of  waves x (k / parts x step + fill) + parts' sum
    step   = max(2 rows columns / rate of a core, (rows + columns) x bytes / load of a core)
    time   = max(hypot(busy, bytes / (bandwidth x stream)), FLOPs / (peak x sustained)) + overhead

The result is cut into tiles of rows x columns, which cores take in waves; the last costs a whole
one (NVIDIA, "Matrix Multiplication Background User's Guide", February 2023, section 3). For each
step along k a core multiplies, and loads a row and a column of its tile, whichever takes longer:
small tiles are bound by their loads. Where tiles are fewer than cores, several cores share the
products of one (split-K), and their sums are added at the end. Cores and memory work at once, but
not fully: where both take as long, a product takes longer, as the sum of squares describes.

The constants of a chip are `MatmulFit`'s; the form is the same for all of them. It was found on
half of the rows of experiments/published/kernels/kernels_gemm.csv.gz (fit_products.py there).
"""

from functools import reduce

import numpy as np

from scaling.meshes.accelerator import Accelerator
from scaling.models.accounting.matrices import NUMBER_BYTES
from scaling.profiles.profile import MatmulFit
from scaling.program.ir import Number

# Tiles along the shorter and the longer side of the result. Lists of their own for each generation,
# with 256 x 256 of Blackwell's pairs of cores, describe the tables no better than these five.
TILES = ((128, 256), (128, 128), (64, 128), (64, 64), (16, 64))
SHORTEST = 256  # steps along k, of a part: CUTLASS's tiles are 64 to 128 deep, pipelines 3 to 4
SPLIT = 2e-6  # s, the sum of parts; fitted: 1.6 to 2.4 us on all four chips with a table


def busy_time(
    fit: MatmulFit,
    flops: Number,
    dims: tuple[Number, ...],
    dtype: str,
    peak: float,
    chip: Accelerator,
) -> Number:
    """Seconds for which a product keeps the cores busy, at full clock.

    Args:
        flops: of the product.
        dims: batch, m, n, k; () if they are unknown.
        dtype: of the operands.
        peak: FLOP/s.

    Without `load`, or on a chip whose cores or clock are not stated, no tiles are counted.
    """
    rate = fit.efficiency * peak
    if not dims:
        return flops / rate
    batch, m, n, k = dims
    if fit.load is None or chip.cores is None or chip.clock is None:
        half_m, half_n, half_k = fit.half_sizes
        return flops / (rate * m / (m + half_m) * n / (n + half_n) * k / (k + half_k))
    load, width = fit.load * chip.clock, NUMBER_BYTES.get(dtype, 4)
    short, long = np.minimum(m, n), np.maximum(m, n)
    times: list[Number] = []
    for rows, columns in TILES:
        step = max(2 * rows * columns / rate * chip.cores, (rows + columns) * width / load)
        tiles = batch * np.ceil(short / rows) * np.ceil(long / columns)
        waves = np.ceil(tiles / chip.cores)
        parts = np.maximum(np.minimum(np.floor(chip.cores / tiles), k / SHORTEST), 1)
        times += [waves * (k * step + fit.fill), waves * (k / parts * step + fit.fill) + SPLIT]
    return reduce(np.minimum, times) * flops / (2 * batch * m * n * k)


def long_run_rate(fit: MatmulFit) -> float:
    """The fraction of the peak that no product exceeds: under the power limit, or ever measured."""
    return min(fit.sustained, fit.best)
