"""How far each axis of a mesh can be cut."""

from collections.abc import Iterable
from pathlib import Path

from scaling.api.calibrate import load_profile
from scaling.api.inputs import ClusterLike, MeshLike, Overrides, as_overrides, load_cluster
from scaling.api.public_api import entrance, warn
from scaling.api.runs import RunLike, Settings, load_run, timed_calls
from scaling.meshes import catalog
from scaling.meshes.bandwidths import Measured
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError
from scaling.profiles.profile import Profile
from scaling.questions.answer import Answer
from scaling.questions.limits import limits as answer_limits


@entrance
def limits(
    run: RunLike,
    cluster: ClusterLike | None = None,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    set: Settings | None = None,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
) -> Answer:
    """Return the batch from which communication is hidden, and the limits of every axis.

    >>> import scaling as sc
    >>> found = sc.limits("llama3-70b", cluster="dgx-h100", nodes=128)
    >>> round(found["rule"].ideal), round(found["largest tensor axis"]["rule"].ideal, 1)
    (2474, 13.0)

    Args:
        mesh: axis sizes such as data=64,tensor=8, whose limits are asked; None: the run's, else all
            places on the cluster.

    Warns:
        UserWarning: a figure that no machine has, a calibration of another machine or version.

    Raises:
        InputError: unknown names, a mesh that does not fit, one device.
    """
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    calls = timed_calls(measured, resolved, cluster)
    stated = resolved.cluster if cluster is None else None
    if stated is not None:
        cluster, nodes = stated.file or stated.name or "", nodes or stated.nodes
        overrides = {**stated.overrides, **as_overrides(overrides)}
    if cluster is None:
        raise InputError("limits are those of a cluster: add --cluster, such as --cluster dgx-h100")
    place = load_cluster(cluster, nodes, overrides=overrides)
    if place.virtual_devices:
        raise InputError(
            f"{place.name} is this machine, whose links the catalogue does not have: name another "
            "--cluster (scaling cluster list)"
        )
    doubts = [] if isinstance(cluster, Cluster) else catalog.warnings_of(cluster, place)
    profile, more = load_profile(place, calibration, measured=calls)
    warn(doubts + more)
    return answer_limits(resolved, place, profile)
