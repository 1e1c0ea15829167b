"""Fit how a rate follows the power limit, on steps of six small models under limits of four GPUs.

    python -m experiments.published.fit_power                                     seconds

    rate(limit) / rate(draw) = ((limit / draw - idle) / (1 - idle)) ^ (1 / exponent)

`draw` is the power of the same training without a limit below the largest. What is above `idle` is
of the clock and of the square of its voltage, which falls with it: an exponent of one to three.
`kernels/power_limit.csv.gz` (Zeus, NSDI 2023; ml-energy/zeus, Apache-2.0) has V100, A40, P100 and
Quadro RTX 6000; each is left out in turn. Beside it: a rate in proportion to the limit.
"""

from collections import defaultdict
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from experiments.published.csv_rows import rows_of
from scaling.profiles.power import rate_under
from scaling.report.formatting import columns

TABLE = Path(__file__).parent / "kernels/power_limit.csv.gz"
BINDS = 0.98, 0.9  # a limit below so much of the draw, of which so much is drawn, is what binds
FEWEST = 4  # limits of one training
ROBUST = 0.1  # relative error from which on a row weighs less (soft L1)
START, LOW, HIGH = (0.2, 2.0), (0.0, 1.0), (0.25, 4.0)  # idle, exponent; least limit is 0.3 of draw


def trainings() -> dict[str, list[list[tuple[float, ...]]]]:
    """By GPU its trainings: limit, seconds and watts of each, the largest limit first."""
    found: dict[tuple[str, ...], list[tuple[float, ...]]] = defaultdict(list)
    for row in rows_of(TABLE):
        key = tuple(row[k] for k in ("gpu", "dataset", "network", "batch_size", "optimizer"))
        figures = (row[k] for k in ("power_limit", "time_per_epoch", "average_power"))
        found[key].append(tuple(map(float, figures)))
    by_gpu: dict[str, list[list[tuple[float, ...]]]] = defaultdict(list)
    for (gpu, *_), rows in found.items():
        if len(rows) >= FEWEST:
            by_gpu[gpu].append(sorted(rows, reverse=True))
    return by_gpu


def shares() -> dict[str, np.ndarray]:
    """By GPU [rows, 2]: limit over draw, rate over that at the largest limit."""
    return {
        gpu: np.array(
            [
                (limit / draw, fastest / seconds)
                for (_, fastest, draw), *limited in each
                for limit, seconds, power in reversed(limited)
                if limit < BINDS[0] * draw and power > BINDS[1] * limit
            ]
        )
        for gpu, each in trainings().items()
    }


def fitted(rows: np.ndarray) -> np.ndarray:
    """Idle share and exponent."""
    return least_squares(
        lambda x: np.log(rate_under(rows[:, 0], *x) / rows[:, 1]),
        START, bounds=(LOW, HIGH), loss="soft_l1", f_scale=ROBUST,
    ).x  # fmt: skip


def report() -> list[str]:
    """A line per GPU that is left out, and one for the fit to all."""
    by_gpu = shares()
    every = np.concatenate(list(by_gpu.values()))
    head = ("left out", "idle", "exponent", "n", "median", "90 %", "in proportion")
    lines: list[tuple[str, ...]] = [head]
    for gpu, rows in {"": every, **by_gpu}.items():
        rest = np.concatenate([r for name, r in by_gpu.items() if name != gpu])
        idle, exponent = fitted(rest)
        off = np.abs(rate_under(rows[:, 0], idle, exponent) / rows[:, 1] - 1)
        naive = np.median(np.abs(rows[:, 0] / rows[:, 1] - 1))
        errors = (f"{x:.1%}" for x in (np.median(off), np.quantile(off, 0.9), naive))
        lines.append((gpu or "none", f"{idle:.2f}", f"{exponent:.2f}", str(len(rows)), *errors))
    return list(columns(lines, left=(0,)))


if __name__ == "__main__":
    print("\n".join(report()))
