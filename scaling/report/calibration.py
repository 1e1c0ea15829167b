"""A calibration in a table: each fit with its number of samples and its errors."""

from scaling.profiles.profile import Evidence, Profile
from scaling.report.formatting import columns

HEAD = ("fit", "samples", "median error", "mean", "worst", "left out (mean)")


def table(profile: Profile) -> str:
    """Return one line per fit; the last column is the mean error on samples left out of the fit."""
    fits = [(f"matmul {fit.dtype}", fit.evidence) for fit in profile.matmul]
    fits += [("memory", profile.memory.evidence), ("vector units", profile.vector.evidence)]
    fits += [(f"attention {fit.direction}", fit.evidence) for fit in profile.attention]
    fits += [
        (f"{fit.kind} x{fit.ranks} in {fit.groups}", fit.evidence) for fit in profile.collectives
    ]
    if profile.dispatch is not None:
        fits.append(("calling a program", profile.dispatch.evidence))
    if profile.step is not None:
        fits.append(("whole steps", profile.step.evidence))
    lines = columns([HEAD, *(_row(name, evidence) for name, evidence in fits)])
    return "\n".join([f"{profile.machine}, {profile.date}", *lines])


def _row(name: str, evidence: Evidence) -> tuple[str, ...]:
    e = evidence
    errors = (e.median_error, e.mean_error, e.max_error, e.held_out_error)
    return (name, f"{e.samples}", *("-" if each is None else f"{each:.1%}" for each in errors))
