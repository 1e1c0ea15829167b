"""One collective on one cluster, priced at several sizes: what `scaling collective` answers.

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth x factor      (nccl-tests, doc/PERFORMANCE.md)
        all-reduce 2(n-1)/n;  all-gather, reduce-scatter, all-to-all (n-1)/n;  the others 1

For an all-to-all nccl-tests divides the per-rank buffer by the time, as here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scaling.collectives.cost import CollectiveCost, collective_time
from scaling.collectives.nccl.ranking import NcclChoice, nccl_choices
from scaling.collectives.selection import Chosen, chosen, chosen_dict
from scaling.collectives.skew import check_skew
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import AXES, MeshShape
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind
from scaling.simulate.uncertainty import half_range


@dataclass(frozen=True)
class Answer:
    """One size. Bytes, seconds, bytes/s."""

    kind: str
    bytes: int  # as nccl-tests counts them
    ranks: int  # in a group
    groups: int  # that run at once
    time: float
    time_low: float
    time_high: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    algorithm: str
    protocol: str
    bottleneck: str
    lower_bound: float
    grade: str
    choice: Chosen  # of the algorithm and the protocol
    skew: float | None = None  # of an all-to-all, where one was asked for


def groups_of(
    cluster: Cluster, mesh: MeshShape | None = None, axes: Sequence[str] = ()
) -> np.ndarray:
    """Device ids [groups, members]: of the mesh's axes, or of the whole cluster.

    Args:
        cluster: with at least as many devices as the mesh.
        mesh: on the first devices of the cluster, in its device order.
        axes: over which the collective runs; () all of the mesh.

    Raises:
        InputError: the mesh does not fit, or axes without one.
    """
    if mesh is None:
        if axes:
            raise InputError(
                f"--axis {','.join(axes)} needs --mesh, such as --mesh data=4,tensor=8"
            )
        return np.arange(cluster.devices)[None]
    check_keys(axes, AXES, "--axis")
    return groups_on(mesh, axes or [axis for axis, n in mesh.sizes.items() if n > 1], cluster)


def ask(
    kind: CollectiveKind,
    sizes: Sequence[int],
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    algorithm: str = "auto",
    skew: float | None = None,
) -> list[Answer]:
    """Price every size by itself, so that each says its own algorithm and bottleneck.

    Args:
        kind, groups, cluster, profile, algorithm: as for `collective_time`.
        sizes: bytes.
        skew: of an all-to-all, what its busiest receivers get over the mean; None: as the others.

    Raises:
        InputError: no such kind or algorithm, one that cannot run there, or a skew of a
            collective that has none.
    """
    check_keys([kind], COLLECTIVE_KINDS, "collective")
    if skew is not None:
        check_skew(kind, skew, groups.shape[1])
    picks: Sequence[NcclChoice | None] = nccl_choices(kind, sizes, groups, cluster) or [None] * len(
        sizes
    )
    answers = []
    for size, pick in zip(sizes, picks, strict=True):
        cost = collective_time(kind, float(size), groups, cluster, profile, algorithm, skew or 1.0)
        answers.append(replace(_answer(kind, size, groups, cost, pick), skew=skew))
    return answers


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes over the busiest link of a ring per byte of the call."""
    lacking = (ranks - 1) / ranks
    return {"all-reduce": 2 * lacking, "permute": 1.0, "broadcast": 1.0}.get(kind, lacking)


def answer_dict(answer: Answer) -> dict[str, Any]:
    """The answer as JSON has it: without a skew where none was asked for."""
    document = asdict(answer)
    if answer.skew is None:
        del document["skew"]
    return {**document, "choice": chosen_dict(document["choice"])}


def _answer(
    kind: CollectiveKind,
    size: int,
    groups: np.ndarray,
    cost: CollectiveCost,
    pick: NcclChoice | None,
) -> Answer:
    time, bound = float(cost.time), float(cost.lower_bound)
    grade = cost.evidence.grade if cost.evidence else "datasheet"
    spread = 1 + (half_range(cost.evidence, grade) if cost.evidence else 0.0)
    bandwidth = size / time if time else 0.0
    ranks = int(groups.shape[1])
    return Answer(
        kind=kind,
        bytes=size,
        ranks=ranks,
        groups=len(groups),
        time=time,
        time_low=max(time / spread, bound),
        time_high=time * spread,
        algorithm_bandwidth=bandwidth,
        bus_bandwidth=bandwidth * bus_factor(kind, ranks),
        algorithm=cost.algorithm,
        protocol=cost.protocol,
        bottleneck=cost.bottleneck,
        lower_bound=bound,
        grade=grade,
        choice=chosen(cost, size, grade, pick),
    )
