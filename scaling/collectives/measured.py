"""Collectives inside a node where `scaling calibrate` measured them: lines, not algorithms.

    seconds = alpha + bytes / bandwidth

A line of m ranks stands for n ranks by the steps and the bytes of a ring:

    alpha x (n - 1) / (m - 1)      bytes x (1 - 1/n) / (1 - 1/m)      a permute has one step
                                   (a broadcast moves all bytes, an all-gather all but 1/m)
"""

from dataclasses import dataclass
from math import log

import numpy as np

from scaling.collectives.algorithms import bus_factor
from scaling.meshes.errors import InputError
from scaling.profiles.profile import CollectiveFit, Profile
from scaling.program.ir import CollectiveKind, Number

STAND_IN: dict[CollectiveKind, CollectiveKind] = {"broadcast": "all-gather"}


@dataclass(frozen=True)
class MeasuredLine:
    """The measured line that prices a collective, and how it is carried over."""

    fit: CollectiveFit
    steps: float = 1.0  # alpha of these ranks over that of the measured ones
    bytes: float = 1.0  # that a rank moves over those of a call of the same size as measured
    note: str = ""  # of the kind or ranks measured instead

    def seconds(self, bytes: Number) -> Number:
        """Seconds of one call."""
        return self.steps * self.fit.alpha + fitted_bytes_time(self.fit, self.bytes * bytes)

    def least(self, bytes: Number) -> Number:
        """Seconds of the bytes alone, at the best bandwidth that was measured."""
        return self.bytes * bytes / max(self.fit.bandwidth, self.fit.cache_bandwidth or 0.0)


def measured_line(kind: CollectiveKind, groups: np.ndarray, profile: Profile) -> MeasuredLine:
    """The line of the most similar number of ranks, then of groups; InputError if there is none."""
    count, ranks = groups.shape
    fits = [fit for fit in profile.collectives if fit.kind == kind]
    fits = fits or [fit for fit in profile.collectives if fit.kind == STAND_IN.get(kind)]
    if not fits:
        known = ", ".join(dict.fromkeys(fit.kind for fit in profile.collectives))
        raise InputError(
            f"profile {profile.name} has no {kind}; it has {known}; run `scaling calibrate`"
        )
    fit = min(fits, key=lambda f: (abs(log(f.ranks / ranks)), abs(log(f.groups / count))))
    rings = fit.ranks != ranks and kind != "permute"
    steps = (ranks - 1) / (fit.ranks - 1) if rings else 1.0
    note = f", scaled to {ranks} by a ring's steps" if fit.ranks != ranks else ""
    if fit.kind != kind:
        note = f", of an {fit.kind}: no {kind} was measured"
    return MeasuredLine(fit, steps, bus_factor(kind, ranks) / bus_factor(fit.kind, fit.ranks), note)


def fitted_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of one call by a fit alone."""
    return fit.alpha + fitted_bytes_time(fit, bytes)


def fitted_bytes_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of the bytes of a call, without alpha."""
    if fit.cache_bandwidth is None:
        return bytes / fit.bandwidth
    near = np.minimum(bytes, fit.cache)
    return near / fit.cache_bandwidth + (bytes - near) / fit.bandwidth
