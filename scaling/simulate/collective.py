"""One collective on one cluster, priced at several sizes: what `scaling collective` prints.

    algorithm bandwidth = bytes / time
    bus bandwidth       = algorithm bandwidth x factor      (nccl-tests, doc/PERFORMANCE.md)
        all-reduce 2(n-1)/n;  all-gather, reduce-scatter, all-to-all (n-1)/n;  the others 1

For an all-to-all nccl-tests divides the per-rank buffer by the time, as here.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from scaling.collectives.algorithms import bus_factor
from scaling.collectives.cost import CollectiveCost, check_skew, collective_time
from scaling.collectives.explain import LevelTime, level_times
from scaling.collectives.nccl import NcclChoice, nccl_choices
from scaling.collectives.switches import SwitchBytes, switch_bytes
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, is_count
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import MeshShape, check_axes
from scaling.profiles.grades import Grade, half_range
from scaling.profiles.io import IDEAL_NAME
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS, CollectiveKind

FITTED = {"calibrated": "fitted", "extrapolated": "fitted"}  # times by figures of a grade
KEYS = (  # of the JSON of a price
    *("kind", "bytes", "ranks", "groups", "time", "time_low", "time_high", "algorithm_bandwidth"),
    *("bus_bandwidth", "algorithm", "protocol", "bottleneck", "lower_bound", "grade", "choice"),
    *("skew", "sent", "switches", "levels"),
)


@dataclass(frozen=True)
class Alternative:
    """A candidate that was not taken."""

    algorithm: str
    time: float  # s


@dataclass(frozen=True)
class AlgorithmChoice:
    """The selection of the algorithm of one call: that with the least time by fitted figures."""

    by: Literal["fastest", "measured", "none"]  # none: a group of one
    why: str  # a phrase
    alternatives: tuple[Alternative, ...]  # fastest first
    nccl: NcclChoice | None = None  # None: no NCCL there, or it does not rank such a collective


@dataclass(frozen=True)
class CollectivePrice:
    """One collective of one size, in bytes, seconds and bytes/s; the keys of its JSON.

    What explains the price (`choice`, `protocol`, `switches`, `levels`) is computed when asked for.
    """

    kind: CollectiveKind
    bytes: int  # as nccl-tests counts them
    ranks: int  # in a group
    groups: int  # that run at once
    time: float
    time_low: float
    time_high: float
    algorithm_bandwidth: float
    bus_bandwidth: float
    algorithm: str
    bottleneck: str
    lower_bound: float
    grade: str
    cost: CollectiveCost = field(repr=False, compare=False)
    devices: np.ndarray = field(repr=False, compare=False)  # ids [groups, members]
    cluster: Cluster = field(repr=False, compare=False)
    skew: float | None = None  # of an all-to-all that is skewed
    sent: int | None = None  # bytes, of an all-to-all that does not send to all: what is priced

    @property
    def priced_bytes(self) -> int:
        """The bytes that are sent."""
        return self.bytes if self.sent is None else self.sent

    @cached_property
    def choice(self) -> AlgorithmChoice:
        """The selection of the algorithm, and what NCCL's own table would take."""
        ranked = nccl_choices(self.kind, [self.bytes], self.devices, self.cluster)
        nccl, cost = ranked[0] if ranked else None, self.cost
        if not cost.candidates:
            by: Literal["measured", "none"] = "none" if cost.algorithm == "none" else "measured"
            return AlgorithmChoice(by, cost.bottleneck, (), nccl)
        others = [
            Alternative(other.algorithm, float(other.seconds(float(self.priced_bytes))))
            for other in cost.candidates
            if other.algorithm != cost.algorithm
        ]
        why = f"fastest of {len(others) + 1} by {FITTED.get(self.grade, self.grade)} time"
        if not others:
            why = "the only candidate that there are figures of"
        ordered = tuple(sorted(others, key=lambda other: other.time))
        return AlgorithmChoice("fastest", why, ordered, nccl)

    @property
    def protocol(self) -> str:
        """That NCCL's own table takes with this algorithm; "" where it takes another."""
        nccl = self.choice.nccl
        return nccl.protocol if nccl and nccl.algorithm == self.algorithm else ""

    @cached_property
    def switches(self) -> tuple[SwitchBytes, ...]:
        """The bytes through the busiest switch of every level, from the chips outwards."""
        return switch_bytes(self.kind, float(self.priced_bytes), self.devices, self.cluster)

    @cached_property
    def levels(self) -> tuple[LevelTime, ...]:
        """The links of every level that the algorithm loads, from the chips outwards."""
        return level_times(self.cost.chosen, self.priced_bytes)

    def to_dict(self) -> dict[str, Any]:
        """The price as JSON has it: without a skew or an NCCL choice where there is none."""
        document = {key: getattr(self, key) for key in KEYS}
        document["choice"] = asdict(self.choice)
        for key in ("switches", "levels"):
            document[key] = tuple(map(asdict, document[key]))
        for part, key in ((document, "skew"), (document, "sent"), (document["choice"], "nccl")):
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
    ranks, prices = int(groups.shape[1]), []
    for size in sizes:
        sent = round(part * size)
        cost = collective_time(kind, float(sent), groups, cluster, profile, algorithm, skew or 1.0)
        time, bound = float(cost.time), float(cost.lower_bound)
        grade: Grade = cost.evidence.grade if cost.evidence else "datasheet"
        if cost.extrapolated:
            grade = "extrapolated"
        spread = 1 + (half_range(cost.evidence, grade) if cost.evidence else 0.0)
        is_rule = profile.name == IDEAL_NAME  # which has no range
        bandwidth = sent / time if time else 0.0
        price = CollectivePrice(
            kind=kind,
            bytes=size,
            ranks=ranks,
            groups=len(groups),
            time=time,
            time_low=time if is_rule else max(time / spread, bound),
            time_high=time if is_rule else time * spread,
            algorithm_bandwidth=bandwidth,
            bus_bandwidth=bandwidth * bus_factor(kind, ranks),
            algorithm=cost.algorithm,
            bottleneck=cost.bottleneck,
            lower_bound=bound,
            grade=grade,
            cost=cost,
            devices=groups,
            cluster=cluster,
            skew=skew,
            sent=None if part == 1 else sent,
        )
        prices.append(price)
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
