"""The clusters that a plan is asked about, with the figures of their devices."""

from collections.abc import Callable, Iterable
from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.inputs import ClusterLike, Overrides, as_overrides
from scaling.api.runs import check_named
from scaling.api.whole_run import Operation
from scaling.meshes.accelerator import Accelerator
from scaling.meshes.bandwidths import MeasuredCall
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.planning.objectives import Tariff
from scaling.planning.sites import Site, node_counts
from scaling.profiles.prices import Price
from scaling.profiles.profile import Profile
from scaling.run import Run
from scaling.simulate.resolve import idle_nodes, target


def sites_of(
    run: Run,
    cluster: ClusterLike | Iterable[ClusterLike] | None,
    nodes: int | str | None,
    overrides: Overrides | None,
    calibration: Path | str | Profile | None,
    calls: tuple[MeasuredCall, ...],
    price: Callable[[Accelerator], Price | None],
    operation: Operation,
) -> tuple[list[Site], dict[str, ClusterLike | None], list[str]]:
    """The clusters that were named, each as it was typed by its name, and warnings.

    `price` is that of a chip for an hour in dollars; None: nobody states it.

    Raises:
        InputError: unknown names, one cluster twice, a range of nodes beside a mesh.
    """
    if isinstance(cluster, str):
        cluster = [name.strip() for name in cluster.split(",")]
        if not all(cluster):
            raise InputError("--cluster names nothing beside a comma: write NAME, or NAME,NAME")
    several = [cluster] if cluster is None or isinstance(cluster, Path | Cluster) else list(cluster)
    if calls and several[1:]:
        raise InputError("--measured is of one cluster: name that --cluster alone")
    counts = None if nodes is None else node_counts(nodes)
    if run.mesh and counts and counts[1:]:
        raise InputError(
            f"--nodes {nodes} and --mesh {run.mesh} contradict each other: the mesh says how many "
            "devices there are; leave one of them out"
        )
    typed: dict[str, ClusterLike | None] = {}
    sites, warnings = [], []
    for each in several:
        count = counts[-1] if counts else None
        place = target(run, each, count, as_overrides(overrides)).cluster
        if place.name in typed:
            raise InputError(f"--cluster names {place.name} twice; name it once")
        typed[place.name] = each
        if calibration is None:
            check_named(each, run, place)
        profile, notes = load_profile(place, calibration, measured=calls)
        warnings += [*notes, *(idle_nodes(run.mesh, place) if run.mesh else ())]
        chip = place.accelerator
        draw = operation.draw if chip.power and chip.peaks else None
        tariff = Tariff(chip.name, price(chip), draw, operation.goodput)
        sites.append(Site(run, place, counts or [place.nodes], profile, tariff))
    return sites, typed, warnings
