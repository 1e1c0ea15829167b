"""Collectives inside a node where `scaling calibrate` measured them: lines, not algorithms."""

from math import log

import numpy as np

from scaling.meshes.errors import InputError
from scaling.profiles.profile import CollectiveFit, Profile
from scaling.program.ir import CollectiveKind, Number


def nearest_fit(kind: CollectiveKind, groups: np.ndarray, profile: Profile) -> CollectiveFit:
    """The line that was measured for the most similar number of ranks and groups.

    Raises:
        InputError: nothing of the kind was measured.
    """
    count, ranks = groups.shape
    fits = [fit for fit in profile.collectives if fit.kind == kind]
    if not fits:
        known = ", ".join(dict.fromkeys(fit.kind for fit in profile.collectives))
        raise InputError(
            f"profile {profile.name} has no {kind}; it has {known}; run `scaling calibrate`"
        )
    return min(fits, key=lambda f: (abs(log(f.ranks / ranks)), abs(log(f.groups / count))))


def fitted_time(fit: CollectiveFit, bytes: Number) -> Number:
    """Seconds of one call by a fit alone."""
    if fit.cache_bandwidth is None:
        return fit.alpha + bytes / fit.bandwidth
    near = np.minimum(bytes, fit.cache)
    return fit.alpha + near / fit.cache_bandwidth + (bytes - near) / fit.bandwidth
