"""One collective on one cluster, priced at several sizes: what `scaling collective` prints.

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth x factor      (nccl-tests, doc/PERFORMANCE.md)
        all-reduce 2(n-1)/n;  all-gather, reduce-scatter, all-to-all (n-1)/n;  the others 1

For an all-to-all nccl-tests divides the per-rank buffer by the time, as here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.candidates import FASTEST
from scaling.collectives.contention import link_loads, place_groups, split_loads
from scaling.collectives.cost import CollectiveCost, check_skew, collective_time
from scaling.collectives.nccl.ranking import NcclChoice, nccl_choices
from scaling.collectives.selection import AlgorithmChoice, algorithm_choice
from scaling.collectives.switches import SwitchBytes, switch_bytes
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, is_count
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import MeshShape, check_axes
from scaling.profiles.io import IDEAL_NAME
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind
from scaling.simulate.prediction import Grade
from scaling.simulate.uncertainty import half_range


@dataclass(frozen=True)
class LevelTime:
    """The busiest links of a level in one call, as if no other level bound it."""

    level: str
    bytes: float  # over them, one direction
    bandwidth: float  # bytes/s, at their full rate
    time: float  # s, of the bytes alone


@dataclass(frozen=True)
class CollectivePrice:
    """One collective of one size, in bytes, seconds and bytes/s; the keys of its JSON."""

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
    protocol: str  # that NCCL's own table takes with this algorithm; "" where it takes another
    bottleneck: str
    lower_bound: float
    grade: str
    choice: AlgorithmChoice  # of the algorithm
    skew: float | None = None  # of an all-to-all that is skewed
    sent: int | None = None  # bytes, of an all-to-all that does not send to all: what is priced
    switches: tuple[SwitchBytes, ...] = ()  # of every level, from the chips outwards
    levels: tuple[LevelTime, ...] = ()  # that the algorithm loads, from the chips outwards

    def to_dict(self) -> dict[str, Any]:
        """The price as JSON has it: without a skew or an NCCL choice where there is none."""
        document = asdict(self)
        keys = ((document, "skew"), (document, "sent"), (document["choice"], "nccl"))
        for part, key in keys:
            if part[key] is None:
                del part[key]
        return document


def collective_groups(
    cluster: Cluster, mesh: MeshShape | None = None, axes: Sequence[str] = ()
) -> np.ndarray:
    """Device ids [groups, members]: of the mesh's axes (() all), or of the whole cluster.

    The mesh lies on the first devices of the cluster, in its device order.

    Raises:
        InputError: the mesh does not fit, or axes without one.
    """
    if mesh is None:
        if axes:
            raise InputError(
                f"--axis {','.join(axes)} needs --mesh, such as --mesh data=4,tensor=8"
            )
        return np.arange(cluster.devices)[None]
    check_axes(axes, "--axis")
    return groups_on(mesh, axes or [axis for axis, n in mesh.sizes.items() if n > 1], cluster)


def listed_groups(text: str, cluster: Cluster) -> np.ndarray:
    """Device ids [groups, members] from `1,2`, or `0,1:2,3` for several groups at once.

    Raises:
        InputError: what is no number of a device of the cluster, a device twice, unequal groups.
    """
    groups = [[word.strip() for word in group.split(",")] for group in text.split(":")]
    for word in (word for group in groups for word in group):
        if not is_count(word) or int(word) >= cluster.devices:
            raise InputError(
                f"--devices {text}: {word!r} is none of the {cluster.devices} devices, counted "
                "from 0; write --devices 0,1, or --devices 0,1:2,3 for two groups at once"
            )
    ids = [[int(word) for word in group] for group in groups]
    every = [device for group in ids for device in group]
    if twice := [device for device in every if every.count(device) > 1]:
        raise InputError(f"--devices {text}: device {twice[0]} is there twice")
    if len({len(group) for group in ids}) > 1:
        sizes = ", ".join(str(len(group)) for group in ids)
        raise InputError(f"--devices {text}: groups of {sizes} devices; all must have as many")
    return np.array(ids)


def collective_prices(
    kind: CollectiveKind,
    sizes: Sequence[int],
    groups: np.ndarray,
    cluster: Cluster,
    profile: Profile,
    algorithm: str = "auto",
    skew: float | None = None,
    part: float = 1.0,
) -> list[CollectivePrice]:
    """The price of every size by itself, so that each has its own algorithm and bottleneck.

    Arguments are those of `collective_time`; skew None: an even collective. `part` is the part of
    its buffer that a member of an all-to-all sends (`active_part`).

    Raises:
        InputError: no such kind or algorithm, one that cannot run there, or a skew of a
            collective that has none.
    """
    check_keys([kind], COLLECTIVE_KINDS, "collective")
    if skew is not None:
        check_skew(kind, skew, groups.shape[1])
    ranked = nccl_choices(kind, sizes, groups, cluster)
    choices: Sequence[NcclChoice | None] = ranked or [None] * len(sizes)
    prices = []
    for size, choice in zip(sizes, choices, strict=True):
        sent = round(part * size)
        cost = collective_time(kind, float(sent), groups, cluster, profile, algorithm, skew or 1.0)
        price = _price(kind, sent, groups, cost, choice, skew)
        if profile.name == IDEAL_NAME:  # a rule has no range
            price = replace(price, time_low=price.time, time_high=price.time)
        switches = switch_bytes(kind, float(sent), groups, cluster)
        dense = None if part == 1 else sent
        split = algorithm == FASTEST
        levels = level_times(kind, sent, groups, cluster, cost.algorithm, split)
        prices.append(replace(price, bytes=size, sent=dense, switches=switches, levels=levels))
    return prices


def active_part(active: int, ranks: int, random: bool = False) -> float:
    """Part of an all-to-all's dense buffer that is sent to `active` of its `ranks` destinations.

    min(k/N, 1) of k destinations that differ; 1 - ((N-1)/N)^k of k drawn at random, some of them
    twice ("How to Scale Your Model", gpus.md, section on collectives inside a node, 2026-06).

    Raises:
        InputError: fewer than one destination.
    """
    if active < 1:
        raise InputError(f"--active {active} must be at least 1 of the {ranks} destinations")
    return 1 - ((ranks - 1) / ranks) ** active if random else min(active / ranks, 1.0)


def level_times(
    kind: CollectiveKind,
    bytes: float,
    groups: np.ndarray,
    cluster: Cluster,
    algorithm: str,
    split: bool = False,
) -> tuple[LevelTime, ...]:
    """Every level that an algorithm loads; none where a machine was measured instead.

    Args:
        kind, bytes, groups, cluster: as of `collective_time`.
        algorithm: that runs.
        split: whether a permute's messages go over all shortest ways of a torus.
    """
    if algorithm not in ALGORITHMS:
        return ()
    placement = place_groups(groups.astype(int), cluster)
    loads = link_loads(kind, placement, algorithm)
    if split:
        loads = split_loads(kind, placement, loads)
    return tuple(
        LevelTime(at.name, bytes * load.share, at.bandwidth, bytes * load.share / at.bandwidth)
        for at, load in loads
        if load.share > 0
    )


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Bytes over the busiest link of a ring per byte of the call."""
    lacking = (ranks - 1) / ranks
    return {"all-reduce": 2 * lacking, "permute": 1.0, "broadcast": 1.0}.get(kind, lacking)


def _price(
    kind: CollectiveKind,
    size: int,
    groups: np.ndarray,
    cost: CollectiveCost,
    nccl: NcclChoice | None,
    skew: float | None,
) -> CollectivePrice:
    time, bound = float(cost.time), float(cost.lower_bound)
    grade: Grade = cost.evidence.grade if cost.evidence else "datasheet"
    if cost.extrapolated:
        grade = "extrapolated"
    spread = 1 + (half_range(cost.evidence, grade) if cost.evidence else 0.0)
    bandwidth = size / time if time else 0.0
    ranks = int(groups.shape[1])
    return CollectivePrice(
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
        protocol=nccl.protocol if nccl and nccl.algorithm == cost.algorithm else "",
        bottleneck=cost.bottleneck,
        lower_bound=bound,
        grade=grade,
        choice=algorithm_choice(cost, size, grade, nccl),
        skew=skew,
    )
