"""Collectives inside a node where `scaling calibrate` measured them: lines, not algorithms.

    seconds = alpha + bytes / bandwidth

A line of m ranks stands for n ranks by the steps and the bytes of a ring:

    alpha x (n - 1) / (m - 1)      bytes x (1 - 1/n) / (1 - 1/m)      a permute has one step
"""

from dataclasses import dataclass
from math import log

import numpy as np

from scaling.meshes.errors import InputError
from scaling.profiles.profile import CollectiveFit, Profile
from scaling.program.ir import CollectiveKind, Number

STAND_IN: dict[CollectiveKind, CollectiveKind] = {"broadcast": "all-gather"}


@dataclass(frozen=True)
class MeasuredLine:
    """The measured line that prices a collective, and how it is carried over."""

    fit: CollectiveFit
    ranks: int  # of the groups that are priced
    kind: CollectiveKind  # that is priced

    @property
    def steps(self) -> float:
        """alpha of these ranks over that of the measured ones."""
        if self.fit.kind == "permute" or self.fit.ranks == self.ranks:
            return 1.0
        return (self.ranks - 1) / (self.fit.ranks - 1)

    @property
    def bytes(self) -> float:
        """Bytes that a rank moves over those of a call of the same size as it was measured."""
        if self.kind != self.fit.kind:  # a broadcast moves all bytes, an all-gather all but 1/m
            return 1 / (1 - 1 / self.fit.ranks)
        if self.fit.kind == "permute" or self.fit.ranks == self.ranks:
            return 1.0
        return (1 - 1 / self.ranks) / (1 - 1 / self.fit.ranks)

    def seconds(self, bytes: Number) -> Number:
        """Seconds of one call."""
        return self.steps * self.fit.alpha + fitted_bytes_time(self.fit, self.bytes * bytes)

    def least(self, bytes: Number) -> Number:
        """Seconds of the bytes alone, at the best bandwidth that was measured."""
        return self.bytes * bytes / max(self.fit.bandwidth, self.fit.cache_bandwidth or 0.0)

    @property
    def note(self) -> str:
        """Names the kind or ranks measured instead; "" if these ranks of this kind were."""
        if self.kind != self.fit.kind:
            return f", of an {self.fit.kind}: no {self.kind} was measured"
        return "" if self.fit.ranks == self.ranks else f", scaled to {self.ranks} by a ring's steps"


def measured_line(kind: CollectiveKind, groups: np.ndarray, profile: Profile) -> MeasuredLine:
    """The line of the most similar number of ranks, and then of groups.

    Raises:
        InputError: nothing of the kind was measured, nor of what can stand in for it.
    """
    count, ranks = groups.shape
    fits = [fit for fit in profile.collectives if fit.kind == kind]
    if not fits and kind in STAND_IN:
        fits = [fit for fit in profile.collectives if fit.kind == STAND_IN[kind]]
    if not fits:
        known = ", ".join(dict.fromkeys(fit.kind for fit in profile.collectives))
        raise InputError(
            f"profile {profile.name} has no {kind}; it has {known}; run `scaling calibrate`"
        )
    nearest = min(fits, key=lambda f: (abs(log(f.ranks / ranks)), abs(log(f.groups / count))))
    return MeasuredLine(nearest, ranks, kind)


def fitted_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of one call by a fit alone."""
    return fit.alpha + fitted_bytes_time(fit, bytes)


def fitted_bytes_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of the bytes of a call, without alpha."""
    if fit.cache_bandwidth is None:
        return bytes / fit.bandwidth
    near = np.minimum(bytes, fit.cache)
    return near / fit.cache_bandwidth + (bytes - near) / fit.bandwidth
