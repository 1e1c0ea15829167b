"""Least squares of relative errors: seconds = a + b x work with a, b >= 0.

    minimise  sum over samples of ((a + b x work) / seconds - 1)^2

so that a microsecond counts as much in a small call as a millisecond in a large one. `parts` does
the same for a sum of several kinds of work.
"""

from dataclasses import replace

import numpy as np
from scipy.optimize import nnls

from scaling.profiles.profile import Evidence

FASTEST = 1e18  # per second: stands for "no time at all was seen"; no machine counts as fast
CACHES = tuple(2.0**i for i in range(15, 28))  # 32 KiB to 128 MiB
CLOSE = 0.01  # root mean square of relative errors at which a fit needs no more parameters
MOST_ROUNDS = 1000  # of the active-set method; five kinds of work take about five
ALIKE = 1e-12  # relative determinant below which all samples count as of one size


def scored(evidence: Evidence, predicted: np.ndarray, measured: np.ndarray) -> Evidence:
    """The evidence with the errors of a fit filled in."""
    errors = np.abs(predicted / measured - 1)
    return replace(
        evidence,
        samples=len(measured),
        median_error=float(np.median(errors)),
        mean_error=float(errors.mean()),
        max_error=float(errors.max()),
    )


def lines(work: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(a, b, loss), [...] each, of seconds = a + b x work with a and b >= 0.

    Least squares of relative errors; work is [..., samples], of as many candidates as there are.
    """
    x, y = work / seconds, 1 / seconds  # of b and of a: both sides divided by the measured time
    xx, xy, yy = (x * x).sum(-1), (x * y).sum(-1), (y * y).sum(-1)
    sx, sy = x.sum(-1), y.sum(-1)
    determinant = np.maximum(xx * yy - xy * xy, ALIKE * xx * yy)
    a = np.clip((sy * xx - sx * xy) / determinant, 0, sy / yy)
    b = np.clip((sx - a * xy) / xx, 0, None)
    loss = ((a[..., None] * y + b[..., None] * x - 1) ** 2).sum(-1)
    return a, b, loss


def line_or_knee(
    moved: np.ndarray, seconds: np.ndarray
) -> tuple[float, float, float, float | None]:
    """(overhead, s per byte, cache, bytes/s in it): a line, or a knee if that halves its loss.

    A line has a cache of 0 bytes and None; the seconds per byte of a knee are those beyond it.
    """
    alpha, per_byte, loss = map(float, lines(moved, seconds))
    caches = [c for c in CACHES if min((moved <= c).sum(), (moved > c).sum()) >= 2]
    if caches and loss >= len(moved) * CLOSE**2:
        work = lambda cache: np.stack([moved**0, moved, np.maximum(moved - cache, 0)], axis=1)
        solved = [(*parts(work(cache), seconds), cache) for cache in caches]
        (overhead, near, beyond), least, cache = min(solved, key=lambda solution: solution[1])
        if least <= loss / 2:
            return overhead, near + beyond, cache, rate(near)
    return alpha, per_byte, 0.0, None


def parts(
    work: np.ndarray, seconds: np.ndarray, known: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """(seconds per unit of each kind of work, loss): least squares of relative errors, none < 0.

    Args:
        work: [samples, kinds].
        seconds: [samples].
        known: [samples], seconds among them that are accounted for.
    """
    relative = work / seconds[:, None]
    size = np.linalg.norm(relative, axis=0)
    size[size == 0] = 1.0
    solution, residual = nnls(relative / size, 1 - known / seconds, maxiter=MOST_ROUNDS)
    return solution / size, residual**2


def rate(seconds_per_unit: float) -> float:
    """Units per second, at most FASTEST."""
    return 1 / max(float(seconds_per_unit), 1 / FASTEST)
