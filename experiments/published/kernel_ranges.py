"""Ranges of kernels, from the errors of published ones.

    1 + h = 1 + s x late + (1 - s) x wide          s: share of a call that is latency

(`scaling.simulate.uncertainty.kernel_half_range`). Of all pairs that hold `HELD` of the rows of
every kind that a fit prices (large products, small ones, those of few rows), the one with the least
mean range is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.meshes import catalog
from scaling.profiles.shipped import is_asynchronous

HELD = 0.9  # share of the rows of each kind that a range holds
FEWEST = 10  # rows of a kind from which on it counts
NEARLY = 1e-3  # least share of latency that is told from none
WIDER = np.geomspace(1, 1000, 140)  # candidates of `wide`, over the least


@dataclass(frozen=True)
class Points:
    """Rows of one kind on one chip; arrays [rows]."""

    kind: str
    chip: str
    error: np.ndarray  # log of measured over what was predicted, beyond what no program states
    share: np.ndarray  # of the predicted time that is latency


Key = tuple[str, ...]
# The other recipe of fp8, with casts: a range of plain fp8 holds the median of its errors.
BLOCKS = " in blocks"


def fit_of(kind: str) -> Key | None:
    """Table of the store and the key of the fit that prices a kind; None: another table.

    Both recipes of fp8 are priced alike, one scale for a tensor and one for each block (`BLOCKS`).
    "product bf16, large" -> products, bf16; "attention bf16, decode" -> attention, decode, bf16.
    """
    words, _, sizes = kind.partition(", ")
    name, _, dtype = words.partition(" ")
    if name == "product":
        return "products", dtype.removesuffix(BLOCKS)
    if name == "attention":
        return "attention", sizes.partition(",")[0], dtype
    return None


def alike(points: Sequence[Points], key: Key, chips: int = 1) -> list[Points]:
    """The points of a fit, or of the next like it on so many chips: all formats, all of a table."""
    for length in range(len(key), 0, -1):
        same = (p for p in points if (fit_of(p.kind) or ())[:length] == key[:length])
        found = [p for p in same if BLOCKS not in p.kind]
        if len({p.chip for p in found}) >= chips:
            break
    return found


def is_near(one: str, other: str) -> bool:
    """True if the matrix units of two chips are fed in the same way, so that either may lend."""
    return len({is_asynchronous(catalog.accelerator(name)) for name in (one, other)}) == 1


def half_ranges(points: Sequence[Points], least: float = 0.02) -> tuple[float, float]:
    """`wide` and `late`; `wide` is at least `least`, and `late` at least `wide`.

    They hold `HELD` of the rows of each kind on each chip.
    """
    kinds = {key: joined([p for p in points if _of(p) == key]) for key in _kinds(points)}
    every = joined(points)
    best, found = np.inf, (np.inf, np.inf)
    for wide in least * WIDER:
        late = max(wide, *(_late(own, wide) for own in kinds.values()))
        mean = float(np.mean(np.log1p(every.share * late + (1 - every.share) * wide)))
        if mean < best:
            best, found = mean, (float(wide), float(late))
    return found


def held(points: Points, wide: float, late: float) -> np.ndarray:
    """Whether each row lies in its range."""
    half = points.share * late + (1 - points.share) * wide
    return np.asarray(np.abs(points.error) <= np.log1p(half))


def joined(points: Sequence[Points]) -> Points:
    """Points of several chips or kinds as one."""
    arrays = (np.concatenate([getattr(p, name) for p in points]) for name in ("error", "share"))
    return Points(points[0].kind, points[0].chip, *arrays)


def _of(points: Points) -> Key:
    return points.kind, points.chip


def _kinds(points: Sequence[Points]) -> list[Key]:
    """Kinds and chips with enough rows; all of them where none has."""
    counts = {_of(p): 0 for p in points}
    for p in points:
        counts[_of(p)] += len(p.error)
    return [key for key, n in counts.items() if n >= FEWEST] or list(counts)


def _late(own: Points, wide: float) -> float:
    """The least `late` with which a range holds enough rows."""
    half = np.expm1(np.abs(own.error))
    beyond = half - (1 - own.share) * wide
    needed = np.where(own.share > NEARLY, beyond / np.maximum(own.share, NEARLY), np.inf)
    needed = np.where(half <= (1 - own.share) * wide, 0.0, needed)
    return float(np.quantile(needed, HELD, method="higher"))
