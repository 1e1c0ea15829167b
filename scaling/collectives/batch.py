"""Many collectives at once: calls of any kind, size and groups, each distinct question priced once.

    calls     all-reduce 1 MB, tensor    all-gather 8 MB, fsdp    all-reduce 2 MB, tensor    ..
    groups    [64, 8]                    [8, 64]                  the same as the first
    priced    all-reduce of [1, 2] MB    all-gather of [8] MB

Calls of one kind in the same devices become one array of bytes for
`scaling.collectives.cost.collective_time`, so that the seconds are those of that function, call by
call. Axes of different meshes often are the same groups: what counts are the devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scaling.collectives.cost import collective_time
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.meshes.placement import check_fits
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.program.ir import CollectiveKind


@dataclass(frozen=True)
class Axes:
    """Groups along axes of a mesh on the first devices of a cluster, in its device order."""

    mesh: MeshShape
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a collective in all its groups."""

    kind: CollectiveKind
    bytes: float  # as in `scaling.collectives.cost.collective_time`
    groups: np.ndarray | Axes  # device ids, int [groups, members]; or axes of a mesh
    algorithm: str = "auto"
    skew: float = 1.0  # of an all-to-all


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of every call, in their order: float arrays [calls]."""

    time: np.ndarray
    lower_bound: np.ndarray  # no latency, every link at its full bandwidth


Question = tuple[CollectiveKind, str, float, bytes, tuple[int, ...]]


def collective_times(calls: Sequence[Call], cluster: Cluster, profile: Profile) -> Times:
    """Price every call by itself, as if nothing else ran.

    Args:
        calls: of any kinds, sizes and groups.
        cluster: where the devices are.
        profile: what its links achieve.

    Raises:
        InputError: a mesh that does not fit, or what `collective_time` refuses of a call, named.
    """
    found = Times(np.zeros(len(calls)), np.zeros(len(calls)))
    for group, places in _alike(calls, cluster):
        first = calls[places[0]]
        sizes = np.array([calls[place].bytes for place in places], float)
        try:
            cost = collective_time(
                first.kind, sizes, group, cluster, profile, first.algorithm, skew=first.skew
            )
        except InputError as error:
            raise InputError(f"call {places[0]}, {first.kind}: {error}") from None
        found.time[places], found.lower_bound[places] = cost.time, cost.lower_bound
    return found


def _alike(calls: Sequence[Call], cluster: Cluster) -> list[tuple[np.ndarray, list[int]]]:
    """Groups of devices, and the calls that ask the same about them but for the bytes."""
    devices: dict[Axes | int, tuple[np.ndarray, bytes]] = {}  # of axes, or of one array
    questions: dict[Question, tuple[np.ndarray, list[int]]] = {}
    for place, call in enumerate(calls):
        name = call.groups if isinstance(call.groups, Axes) else id(call.groups)
        if name not in devices:
            groups = _groups(call.groups, cluster)
            devices[name] = groups, groups.tobytes()
        groups, ids = devices[name]
        question = call.kind, call.algorithm, call.skew, ids, groups.shape
        questions.setdefault(question, (groups, []))[1].append(place)
    return list(questions.values())


def _groups(groups: np.ndarray | Axes, cluster: Cluster) -> np.ndarray:
    if not isinstance(groups, Axes):
        return np.asarray(groups)
    check_fits(groups.mesh, cluster)
    return groups.mesh.groups(groups.names)
