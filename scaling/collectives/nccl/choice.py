"""What NCCL would choose: the least of its own estimates; and what that takes by fitted figures.

NCCL ranks by its table (`collectives.nccl.tuning`); how long the winner takes is for the figures
of a profile to say. Where the profile has none for what NCCL chooses, the fastest way is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.collectives.candidates import Way, ways
from scaling.collectives.nccl.communicator import VENDOR, communicator
from scaling.collectives.nccl.tuning import KINDS, Pair, estimates
from scaling.collectives.nccl.versions import NEWEST, constants_of
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.link_fits import algorithms
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind, Number


@dataclass(frozen=True, eq=False)
class Ranking:
    """NCCL's estimates of all that can run."""

    version: str
    pairs: tuple[Pair, ...]  # in NCCL's order: of equals the first is taken
    seconds: np.ndarray  # [pairs, sizes]

    def chosen(self) -> np.ndarray:
        """Of every size, which pair: the one with the least estimate."""
        return np.argmin(self.seconds, axis=0)


@dataclass(frozen=True, eq=False)
class Followed:
    """Seconds by fitted figures of what NCCL chooses."""

    seconds: np.ndarray  # [sizes]
    way: Way  # at the largest size
    why: str  # in words, at the largest size


def ranking(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    version: str = "",
    asked: str = "auto",
) -> Ranking | None:
    """NCCL's estimates; None where it has none.

    Args:
        kind: of the collective; all-to-all and permute are sends, which NCCL does not rank.
        bytes: one size or several.
        groups: device ids, [groups, members].
        cluster: where they are; without NVIDIA GPUs there is no NCCL.
        version: of NCCL; "": the newest known.
        asked: an algorithm that NCCL is held to, or "auto".

    Raises:
        InputError: an unknown version.
    """
    constants = constants_of(version or NEWEST)
    comm = communicator(groups, cluster, constants.version)
    if comm is None:
        return None
    sizes = np.atleast_1d(np.asarray(bytes, float))
    found = estimates(kind, sizes, comm, constants)
    kept = {pair: times for pair, times in found.items() if asked in ("auto", pair[0])}
    if not kept:
        return None
    return Ranking(constants.version, tuple(kept), np.array(list(kept.values())))


def check_has_nccl(cluster: Cluster) -> None:
    """Raise InputError where NCCL has nothing to choose."""
    if cluster.accelerator.vendor != VENDOR:
        raise InputError(
            f"{cluster.name} has no {VENDOR} GPUs, so that NCCL chooses nothing there; "
            "leave out --choice nccl"
        )


def as_nccl(
    kind: CollectiveKind,
    bytes: Number,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    usable: Sequence[Way],
    version: str = "",
    asked: str = "auto",
) -> Followed:
    """The ways that NCCL chooses, size by size, with their fitted times.

    Args:
        usable: ways that are open, one of which is taken where NCCL's own has no figures.
        kind, bytes, groups, cluster, version, asked: as for `ranking`.
        profile: the figures.

    Raises:
        InputError: an unknown version.
    """
    found = ranking(kind, bytes, groups, cluster, version, asked)
    sizes = np.atleast_1d(np.asarray(bytes, float))
    times = np.array([way.seconds(sizes) for way in usable])
    if found is None:
        reason = f"NCCL does not rank {kind}" if kind not in KINDS else f"NCCL has no {asked} here"
        return _fastest(usable, times, sizes, reason)
    picks, largest = found.chosen(), int(np.argmax(sizes))
    seconds, best = times.min(axis=0), None
    for number in np.unique(picks):
        way = _way(found.pairs[number], kind, groups, cluster, profile, usable)
        if way is not None:
            seconds = np.where(picks == number, way.seconds(sizes), seconds)
        if number == picks[largest]:
            best = way
    if best is None:
        name = " ".join(found.pairs[picks[largest]])
        reason = f"NCCL {found.version} takes {name}, which profile {profile.name} has no fit of"
        return Followed(seconds, _fastest(usable, times, sizes, "").way, f"{reason}: the fastest")
    return Followed(seconds, best, f"as NCCL {found.version} chooses by its own table")


def _fastest(usable: Sequence[Way], times: np.ndarray, sizes: np.ndarray, reason: str) -> Followed:
    best = int(np.argmin(times[:, int(np.argmax(sizes))]))
    return Followed(times.min(axis=0), usable[best], f"{reason}: the fastest")


def _way(
    pair: Pair,
    kind: CollectiveKind,
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    usable: Sequence[Way],
) -> Way | None:
    """The way of that algorithm and protocol, also where it is never the fastest; None: no fit."""
    algorithm, protocol = pair
    found = [way for way in usable if (way.algorithm, way.protocol) == pair]
    if found:
        return found[0]
    known = any(way.algorithm == algorithm for way in usable)
    if known or algorithm not in algorithms(profile, kind):  # what holds for any is no fit of it
        return None
    try:
        others = ways(kind, groups, cluster, profile, algorithm)
    except InputError:  # the profile has no figures of it
        return None
    return next((way for way in others if way.protocol == protocol), None)
