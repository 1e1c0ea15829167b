"""How far a prediction can be trusted: its grade, and the range of its step time.

Every second of the step is priced by some figure, which has evidence: measurements with an error,
or a datasheet. Seconds that nothing waits for price nothing.

    grade    the weakest of all that prices at least 5 % of the step
    s        sum of seconds x half range of their evidence / sum of seconds
    range    step time / (1 + s) to step time x (1 + s)

Both sums leave out the host's seconds (calling the program, waiting for copies), which no evidence
here is about: they are taken to be as uncertain as the others are on average. A collective that is
priced by a line measured among other numbers of devices is extrapolated, as one of more bytes is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from scaling.profiles.profile import Evidence, Profile
from scaling.profiles.samples import Samples
from scaling.program.ir import Collective, Kernel, Number
from scaling.simulate.prediction import GRADES, Grade
from scaling.simulate.step import Priced, device_groups, running_collectives, running_kernels

NOTICED = 0.05  # share of the step from which on a figure counts for the grade
FEWEST = 3  # measurements below which a line through them says nothing about its error

# Half ranges in mean absolute errors: of a normally distributed error, which is 1.25 of its mean
# absolute value wide (the square root of pi / 2), two of them hold 89 %.
FACTOR = 2.0
# Half the range of a figure that nobody measured on the chip, relative. To take the efficiency of
# an H100's NVLink collectives for that of B200, GB200 and GB300 is wrong by 15 % in the mean:
# all-gather, reduce-scatter and all-reduce among 2 to 8, 16 MiB to 1 GiB, in XLA's default
# collective table (wheel jax-cuda12-pjrt 0.12.0.1). The best matrix products lie closer, at 78 to
# 88 % of the bf16 peak on A100, H100, H200 and B200 (stas00/ml-engineering,
# compute/accelerator/README.md).
UNMEASURED = FACTOR * 0.15


@dataclass(frozen=True)
class PricedShare:
    """Seconds of the step that one kernel, or waiting for one collective, takes."""

    step: Kernel | Collective
    evidence: Evidence  # what they rest on
    grade: Grade
    seconds: Number


def grade(priced: Priced) -> Grade:
    """That of the weakest evidence which prices a noticeable part of the step."""
    seconds: dict[tuple[Evidence, Grade], Number] = {}
    for share in priced_shares(priced):
        key = share.evidence, share.grade
        seconds[key] = seconds.get(key, 0.0) + share.seconds
    least = NOTICED * priced.timeline.total
    used = [found for (_, found), time in seconds.items() if np.any(time >= least)]
    return max(used, key=GRADES.index) if used else priced.profile.grade


def uncertainty(priced: Priced) -> Number:
    """Half the range of the step time, relative: the mean over all seconds that have evidence."""
    total: Number = 0.0
    weighted: Number = 0.0
    for share in priced_shares(priced):
        total = total + share.seconds
        weighted = weighted + half_range(share.evidence, share.grade) * share.seconds
    return weighted / total if np.all(total) else UNMEASURED


def priced_shares(priced: Priced) -> Iterator[PricedShare]:
    """Every part of the step that has a price; the host's is given, and left out."""
    timeline, largest = priced.timeline, _Largest(priced.profile)
    for kernel, _ in running_kernels(priced):
        if not kernel.asynchronous:
            evidence = priced.kernels[kernel.name].evidence
            found = _grade(evidence, largest.is_above_kernel(kernel))
            yield PricedShare(kernel, evidence, found, timeline.by_name[kernel.name])
    for collective, _ in running_collectives(priced):
        known = priced.collectives[collective.name].evidence
        if known is not None and collective.name in timeline.exposed_by_name:
            above = largest.is_above_collective(collective)
            found = _grade(known, above or is_of_another_shape(collective, priced))
            yield PricedShare(collective, known, found, timeline.exposed_by_name[collective.name])


def is_of_another_shape(collective: Collective, priced: Priced) -> bool:
    """Whether it is priced by a measured line of another number of ranks, or of groups at once."""
    if priced.collectives[collective.name].algorithm != "measured":
        return False  # priced link by link, which says how many devices share each
    count, ranks = device_groups(collective, priced.program.mesh).shape
    fits = priced.profile.collectives
    return (collective.kind, ranks, count) not in {(f.kind, f.ranks, f.groups) for f in fits}


def half_range(evidence: Evidence, found: Grade) -> float:
    """Of what rests on the evidence, relative."""
    half = evidence.error_p90
    error = evidence.held_out_error
    if error is None and evidence.samples >= FEWEST:
        error = evidence.mean_error
    if half is None and error is not None:
        half = FACTOR * error
    if found == "datasheet" or half is None:
        return UNMEASURED
    return max(half, UNMEASURED if found == "extrapolated" else 0.0)


def _grade(evidence: Evidence, above: bool) -> Grade:
    if above and evidence.grade != "datasheet":
        return "extrapolated"
    return evidence.grade


class _Largest:
    """The largest call of each kind that a profile was fitted to; smaller ones cost less."""

    def __init__(self, profile: Profile):
        samples: Samples = profile.samples
        self.matmul = _maxima((p.dtype, float(p.m * p.n * p.k)) for p in samples.matmul)
        self.keys = max((p.keys for p in samples.attention), default=None)
        self.head_dim = max((p.head_dim for p in samples.attention), default=None)
        self.memory = max((p.bytes for p in samples.memory), default=None)
        self.collective = _maxima((p.kind, p.bytes) for p in samples.collective)

    def is_above_kernel(self, kernel: Kernel) -> bool:
        """Whether a kernel is larger than all that were measured; False where that is not known.

        Of products one of the batch counts: what repeats is priced by its number.
        """
        if kernel.kind == "attention" and kernel.dims:
            _, _, _, keys, head_dim = kernel.dims
            return _above(keys, self.keys) or _above(head_dim, self.head_dim)
        if kernel.kind == "matmul" and kernel.dims:
            _, m, n, k = kernel.dims
            return _above(m * n * k, self.matmul.get(kernel.dtype))
        return not np.any(kernel.flops) and _above(kernel.bytes, self.memory)

    def is_above_collective(self, collective: Collective) -> bool:
        """The same of a collective's bytes."""
        return _above(collective.bytes, self.collective.get(collective.kind))


def _maxima(pairs: Iterator[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, size in pairs:
        found[key] = max(found.get(key, 0.0), size)
    return found


def _above(size: Number, largest: float | None) -> bool:
    return largest is not None and bool(np.any(size > largest))
