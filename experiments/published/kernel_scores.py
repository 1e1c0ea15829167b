"""Errors of published kernels as they are priced, each chip left out in turn.

    now         with the chip's own profile, as `sc.kernel` prices
    left out    with what it would borrow if nobody had measured it: its rows are taken out of all
                tables of the store (`scaling.profiles.shipped`)
    roofline    FLOPs over the peak or bytes over the bandwidth, the larger

An error is predicted / measured - 1. All rows of a chip, software and kind are one array kernel.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from unittest.mock import patch

import numpy as np

import scaling as sc
from experiments.published.kernel_ranges import Points, alike, fit_of, half_ranges, held, is_near
from experiments.published.kernel_tables import Rows, tables
from scaling.meshes import catalog
from scaling.meshes.accelerator import Accelerator
from scaling.profiles import shipped
from scaling.profiles.grades import UNMEASURED
from scaling.profiles.io import profile_of
from scaling.profiles.profile import Profile
from scaling.program.ir import Kernel, Number
from scaling.simulate.kernels import format_peak, kernel_time
from scaling.simulate.uncertainty import kernel_ends, kernel_range, latency_share

SAMPLES = 2  # rows of a group that are asked of sc.kernel too


@dataclass(frozen=True)
class Score:
    """Errors of one chip with one software in one kind; arrays [rows]."""

    kind: str
    chip: str
    software: str
    measured: np.ndarray
    error: np.ndarray
    inside: np.ndarray
    left_out: np.ndarray  # error without the chip's own rows
    left_inside: np.ndarray
    roofline: np.ndarray
    beyond: np.ndarray  # log of measured over predicted that no end explains, as `Points` has it
    share: np.ndarray  # of the time that is latency
    left_beyond: np.ndarray  # the same without the chip's own rows
    left_share: np.ndarray


def scores(kind: str = "", chip: str = "") -> list[Score]:
    """The scores of all keys of the tables whose kind and chip have these words in them."""
    chosen = [r for r in tables() if kind in r.key.kind and chip in r.key.chip]
    by_chip: dict[str, list[Rows]] = defaultdict(list)
    for rows in chosen:
        by_chip[rows.key.chip].append(rows)
    found = []
    for name, own in by_chip.items():
        if name not in catalog.accelerator_names():
            continue
        place = catalog.accelerator(name)
        profiles = profile_of(place), without(place)
        found += [_score(rows, place, *profiles) for rows in own]
    joined = _joined(found)
    return [replace(one, left_inside=_left_inside(one, joined)) for one in joined]


def without(chip: Accelerator) -> Profile:
    """What is assumed of a chip whose own measurements are taken from the store.

    A table of one chip keeps it.
    """
    whole = shipped.table
    own = lambda rows: {other: fits for other, fits in rows.items() if other != chip.name}
    others = lambda name: own(whole(name)) or whole(name)
    with patch.object(shipped, "table", others):
        return profile_of(chip)


def _score(rows: Rows, chip: Accelerator, own: Profile, borrowed: Profile) -> Score:
    kernel, measured = rows.kernel(chip), rows.seconds
    time, low, high, *points = _priced(kernel, rows, chip, own)
    _check(rows, time)
    left, left_low, left_high, *left_points = _priced(kernel, rows, chip, borrowed)
    within = lambda low, high: (low <= measured) & (measured <= high)
    return Score(
        rows.key.kind,
        chip.name,
        rows.key.software,
        measured,
        time / measured - 1,
        within(low, high),
        left / measured - 1,
        within(left_low, left_high),
        _roofline(kernel, rows, chip, own) / measured - 1,
        *points,
        *left_points,
    )


def _priced(kernel: Kernel, rows: Rows, chip: Accelerator, profile: Profile) -> list[np.ndarray]:
    """Seconds of the rows with their casts, both ends of their range, and their `Points`."""
    cost = kernel_time(kernel, chip, profile)
    ends: list[Number] = [cost.time, *kernel_range(kernel, cost, chip, profile)]
    ends += kernel_ends(kernel, cost, chip, profile)
    if np.any(rows.cast):
        cast = Kernel("cast", kind="fusion", bytes=rows.cast)
        beside = kernel_time(cast, chip, profile)
        more = [beside.time, *kernel_range(cast, beside, chip, profile), beside.time, beside.time]
        ends = [a + b for a, b in zip(ends, more, strict=True)]
    *ends, least, most = ends
    beyond = np.log(rows.seconds / np.clip(rows.seconds, least, most))
    ends += [beyond, latency_share(kernel, cost, chip, profile)]
    return [np.broadcast_to(each, rows.seconds.shape) for each in ends]


def _roofline(kernel: Kernel, rows: Rows, chip: Accelerator, profile: Profile) -> np.ndarray:
    bandwidth = chip.required("memory_bandwidth")
    time = (kernel.bytes + rows.cast) / bandwidth
    if np.any(kernel.flops):
        flops = kernel.flops * (kernel.visible if kernel.kind == "attention" else 1.0)
        time = np.maximum(time, flops / format_peak(chip, kernel.dtype, profile))
    return np.broadcast_to(time, rows.seconds.shape)


def _check(rows: Rows, times: np.ndarray) -> None:
    """The same seconds from `sc.kernel`, for the first and the last row."""
    if rows.more or np.any(rows.cast):
        return
    key = rows.key
    for at in np.unique(np.linspace(0, len(times) - 1, SAMPLES).astype(int)):
        sizes = [float(values[at]) for values in rows.sizes.values()]
        said = sc.kernel(
            key.question, sizes, dtype=key.dtype, accelerator=key.chip, **dict(key.options)
        )
        assert np.isclose(float(said), times[at], rtol=1e-12), (key, sizes, float(said), times[at])


def _joined(found: Iterable[Score]) -> list[Score]:
    """Scores of one kind, chip and software as one."""
    by_key: dict[tuple[str, str, str], list[Score]] = defaultdict(list)
    for one in found:
        by_key[one.kind, one.chip, one.software].append(one)
    arrays = [f.name for f in fields(Score) if f.name not in ("kind", "chip", "software")]
    joined = [
        Score(*key, *(np.concatenate([getattr(one, name) for one in own]) for name in arrays))
        for key, own in by_key.items()
    ]
    return sorted(joined, key=lambda one: (one.kind, one.chip, one.software))


def points(of: Score, left: bool = False) -> Points:
    """The errors of a score, or those without the chip's own rows, as ranges are made of them."""
    error, share = (of.left_beyond, of.left_share) if left else (of.beyond, of.share)
    return Points(of.kind, of.chip, error, share)


def _left_inside(one: Score, every: Iterable[Score]) -> np.ndarray:
    """Whether rows of a left-out chip lie in the range that the other left-out chips give.

    Where these have no such kernels: in that of its price.
    """
    if (key := fit_of(one.kind)) is None:
        return one.left_inside
    near = [s for s in every if s.chip != one.chip and is_near(s.chip, one.chip)]
    others = [points(s, left=True) for s in near if fit_of(s.kind) == key]
    if not (others := alike(others, key)):
        return one.left_inside
    return held(points(one, left=True), *half_ranges(others, least=UNMEASURED))
