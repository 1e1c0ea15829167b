"""Price of one collective on a cluster."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.api.calibrate import load_profile
from scaling.api.inputs import ClusterLike, MeshLike, Overrides, as_axes, as_mesh, load_cluster
from scaling.api.public_api import Drawn, entrance, warn
from scaling.collectives.algorithms import ALGORITHMS
from scaling.collectives.candidates import BEST_POSSIBLE
from scaling.meshes import catalog
from scaling.meshes.bandwidths import Measured
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, whole_number
from scaling.meshes.shape import parse_order
from scaling.meshes.units import format_size, format_time, parse_size, parse_sweep
from scaling.profiles.profile import Profile
from scaling.program.ir import COLLECTIVE_KINDS
from scaling.simulate.collective import (
    CollectivePrice,
    active_part,
    collective_groups,
    collective_prices,
    listed_groups,
)

if TYPE_CHECKING:
    from scaling.pictures.shapes import Picture


@dataclass(frozen=True, repr=False, kw_only=True)
class CollectiveResult(Drawn, CollectivePrice):
    """A price that prints as the page of `scaling collective`; see `CollectivePrice`."""

    priced: "partial[list[CollectivePrice]]" = field(compare=False)  # of a list of sizes

    to_dict = CollectivePrice.to_dict

    def at(self, bytes: int | str) -> "CollectiveResult":
        """Return the price of the same collective at another size, such as "56MiB"."""
        size = parse_size(bytes) if isinstance(bytes, str) else whole_number("bytes", bytes)
        return CollectiveResult(**vars(self.priced([size])[0]), priced=self.priced)

    def picture(self) -> "Picture":
        """Return bandwidth over size, from 1 KiB to this one."""
        from scaling.pictures.curves import bandwidth
        from scaling.report.collective import heading

        sizes = parse_sweep(f"1KiB:{self.bytes}") if self.bytes > 1024 else [self.bytes]
        prices = [self.at(size) for size in sizes]
        return bandwidth(prices, heading(prices, self.cluster, None))

    def __str__(self) -> str:
        from scaling.report.collective import page

        return page([self], self.cluster)

    def line(self) -> str:
        return (
            f"{self.kind} of {format_size(self.bytes)} over {self.ranks} ranks of "
            f"{self.cluster.name}: {format_time(self.time)}"
        )


@entrance
def price_collective(
    kind: str,
    bytes: int | str,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    axis: str | Iterable[str] | None = None,
    algorithm: str = "auto",
    *,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    ideal: bool = False,
    skew: float | None = None,
    devices: str | None = None,
    active: int | None = None,
    random: bool = False,
    hops: bool = False,
) -> CollectiveResult:
    """Price one collective: seconds, bandwidths, algorithm, lower bound.

    >>> import scaling as sc
    >>> price = sc.price_collective("all-gather", "56MiB", cluster="dgx-h100", nodes=16,
    ...     mesh="fsdp=16,tensor=8", axis="fsdp")
    >>> price.ranks, price.groups
    (16, 8)
    >>> price.time > price.lower_bound
    True

    Args:
        kind: one of all-reduce, all-gather, reduce-scatter, all-to-all, permute or broadcast.
        bytes: size as nccl-tests counts it, a number or a text such as 56MiB.
        cluster: catalogue name or TOML file, or a Cluster.
        nodes: number of hosts; None: 1.
        mesh: axis sizes on the first devices; None: one group of all devices.
        axis: axes of the mesh that the collective runs over, joined by commas; None: all.
        algorithm: one of auto, ring, tree, nvls, nvls-tree, sharp, hierarchical, pairwise, pat or
            one-way-ring.
        device_order: axes of the mesh joined by commas, outermost first.
        ideal: the textbook's rule: no latency, every link at its full bandwidth, the fastest of all
            algorithms that they can run; sums in switches only by name (nvls, sharp).
        skew: of an all-to-all, what the busiest member of each group receives over the mean, 1 to
            the number of members.
        devices: device ids of one group, 1,2, or of several at once, 0,1:2,3; instead of a mesh.
        active: of an all-to-all, destinations that each member sends to, as experts of a token.
        random: with `active`, those destinations are drawn at random, some of them twice.
        hops: with `ideal`, take at least the latency of the hops, max(T_hop x hops, V/W).

    Warns:
        UserWarning: a figure that no machine has, a calibration of another machine or version.

    Raises:
        InputError: unknown names, a mesh that does not fit, an algorithm that cannot run there.
    """
    check_keys([kind], COLLECTIVE_KINDS, "collective")
    check_keys([algorithm], ("auto", *ALGORITHMS), "algorithm")
    if device_order and mesh is None:
        raise InputError(
            f"--device-order {','.join(as_axes(device_order))} orders the axes of a mesh: "
            "add --mesh"
        )
    if devices is not None and (mesh is not None or axis is not None):
        raise InputError(f"--devices {devices} names the groups: leave --mesh and --axis out")
    if active is not None and kind != "all-to-all":
        raise InputError(f"--active {active} is for all-to-all; {kind} has no destinations to omit")
    if random and active is None:
        raise InputError("--random says how destinations are drawn: add --active, such as 8")
    if hops and not ideal:
        raise InputError("--hops adds hops to the textbook's rule: add --ideal; else they count")
    place = load_cluster(cluster, nodes, overrides=overrides)
    doubts = [] if isinstance(cluster, Cluster) else catalog.warnings_of(cluster, place)
    shape = None if mesh is None else as_mesh(mesh, parse_order(as_axes(device_order)))
    groups = collective_groups(place, shape, as_axes(axis, "--axis"))
    if devices is not None:
        groups = listed_groups(devices, place)
    profile, more = load_profile(place, calibration, ideal, hops, measured)
    priced = partial(
        collective_prices,
        kind,  # type: ignore[arg-type]
        groups=groups,
        cluster=place,
        profile=profile,
        algorithm=BEST_POSSIBLE if ideal and algorithm == "auto" else algorithm,
        skew=skew,
        part=1.0 if active is None else active_part(active, groups.shape[1], random),
    )
    size = parse_size(bytes) if isinstance(bytes, str) else whole_number("bytes", bytes)
    price = CollectiveResult(**vars(priced([size])[0]), priced=priced)
    warn(doubts + more)
    return price
