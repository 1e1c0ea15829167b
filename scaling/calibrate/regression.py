"""Least squares of relative errors: seconds = a + b x work with a, b >= 0.

    minimise  sum over samples of ((a + b x work) / seconds - 1)^2

so that a microsecond counts as much in a small call as a millisecond in a large one. `parts` does
the same for a sum of any few kinds of work.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from scaling.profiles.profile import Evidence

FASTEST = 1e18  # per second: stands for "no time at all was seen"; no machine counts as fast
CACHES = tuple(2.0**i for i in range(15, 28))  # 32 KiB to 128 MiB
CLOSE = 0.01  # root mean square of relative errors at which a fit needs no more parameters
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


def line(work: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float]:
    """(a, b, loss) of seconds = a + b x work, a and b >= 0, least squares of relative errors."""
    a, b, loss = lines(work[None, :], seconds)
    return float(a[0]), float(b[0]), float(loss[0])


def lines(
    work: np.ndarray, seconds: np.ndarray, fixed: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`line` for many candidates: work [candidates, samples] -> three arrays [candidates].

    With `fixed`, a is that and only b is fitted.
    """
    x, y = work / seconds, 1 / seconds  # of b and of a: both sides divided by the measured time
    xx, xy, yy = (x * x).sum(-1), (x * y).sum(-1), (y * y).sum(-1)
    sx, sy = x.sum(-1), y.sum(-1)
    determinant = np.maximum(xx * yy - xy * xy, ALIKE * xx * yy)
    a = np.clip((sy * xx - sx * xy) / determinant, 0, sy / yy)
    if fixed is not None:
        a = np.full_like(a, fixed)
    b = np.clip((sx - a * xy) / xx, 0, None)
    loss = ((a[..., None] * y + b[..., None] * x - 1) ** 2).sum(-1)
    return a, b, loss


def knee(moved: np.ndarray, seconds: np.ndarray) -> tuple[float, float, float, float] | None:
    """(s per byte near, s per byte far, overhead, cache), if that halves the loss of a line."""
    loss = line(moved, seconds)[-1]
    candidates = [_cached(moved, seconds, cache) for cache in CACHES]
    *solution, cached_loss = min(candidates, key=lambda c: c[-1])
    if loss < len(moved) * CLOSE**2 or cached_loss > loss / 2:
        return None
    near, far, overhead, cache = solution
    return near, far, overhead, cache


def _cached(
    moved: np.ndarray, seconds: np.ndarray, cache: float
) -> tuple[float, float, float, float, float]:
    """(s per byte near, s per byte far, overhead, cache, loss); far is never faster than near."""
    inside = moved <= cache
    if inside.sum() < 2 or (~inside).sum() < 2:
        return 1.0, 1.0, 0.0, cache, np.inf
    overhead, near, _ = line(moved[inside], seconds[inside])
    beyond = seconds[~inside] - overhead - near * cache
    far = float(np.median(beyond / (moved[~inside] - cache)))
    if near <= 0 or far < near:
        return 1.0, 1.0, 0.0, cache, np.inf
    held = np.minimum(moved, cache)
    predicted = overhead + near * held + far * (moved - held)
    return near, far, overhead, cache, float(((predicted / seconds - 1) ** 2).sum())


def parts(
    work: np.ndarray, seconds: np.ndarray, known: np.ndarray | float = 0.0
) -> tuple[np.ndarray, float]:
    """(seconds per unit of each kind of work, loss): least squares of relative errors, none < 0.

    The best solution is that of ordinary least squares for those kinds whose share is positive in
    it (the others are 0): it is the best among all choices of kinds.

    Args:
        work: [samples, kinds], not more than about six kinds.
        seconds: [samples].
        known: [samples], seconds among them that are accounted for.
    """
    wanted = 1 - known / seconds
    relative = work / seconds[:, None]
    size = np.linalg.norm(relative, axis=0)
    scaled = relative / np.where(size > 0, size, 1.0)
    best, least = np.zeros(work.shape[1]), float((wanted**2).sum())
    for kinds in _choices(size):
        solution = np.linalg.lstsq(scaled[:, kinds], wanted, rcond=None)[0]
        loss = float(((scaled[:, kinds] @ solution - wanted) ** 2).sum())
        if loss < least and (solution >= 0).all():
            best, least = np.zeros(work.shape[1]), loss
            best[kinds] = solution / size[kinds]
    return best, least


def _choices(size: np.ndarray) -> Iterator[list[int]]:
    """Yields every set of the kinds of work that occur."""
    present = [int(i) for i in np.flatnonzero(size)]
    for count in range(1, len(present) + 1):
        yield from map(list, combinations(present, count))


def rate(seconds_per_unit: float) -> float:
    """Units per second, at most FASTEST."""
    return 1 / max(float(seconds_per_unit), 1 / FASTEST)


def share_of(seconds_per_unit: float, stated: float | None) -> tuple[float, float]:
    """(fraction of the stated rate, that rate), or (1, the fitted rate) where none is stated."""
    own = rate(seconds_per_unit)
    return (1.0, own) if stated is None else (min(own / stated, 1.0), stated)
