"""Any jitted step on a cluster that need not exist: `predict_step`, `device_mesh`, `pretend`."""

import math
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.calibrate import load_profile
from scaling.api.hints import Branches, Kernels, Trips, as_hints
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    XlaOptions,
    as_options,
    axis_sizes,
    cluster_for,
    keep_devices_free,
    load_cluster,
)
from scaling.api.output_paths import write_text
from scaling.api.pricing import Pricing, step_figures
from scaling.api.public_api import entrance
from scaling.api.result import PredictionResult, priced_result
from scaling.compile.quiet import quiet
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError, nearest
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile

if TYPE_CHECKING:
    import jax

ONE_DEVICE = (
    "the step has no mesh: priced on one of {} devices; give --mesh, or arguments with shardings"
)


@entrance
def predict_step(
    step: Any,
    *arguments: Any,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: "MeshLike | jax.sharding.Mesh | None" = None,
    name: str = "step",
    tokens: float | None = None,
    model_flops: float | None = None,
    trips: Trips | None = None,
    kernels: Kernels | None = None,
    branches: Branches | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    what_if: str | Iterable[str] = (),
    memory_fraction: float | None = None,
    estimates: bool = False,
    options: XlaOptions | None = None,
    dump_hlo: Path | str | None = None,
    step_kwargs: Mapping[str, Any] | None = None,
    **keywords: Any,
) -> PredictionResult:
    """Predict one call of any jitted function on a cluster that need not exist.

    >>> import jax, jax.numpy as jnp
    >>> import scaling as sc
    >>> from jax.sharding import NamedSharding, PartitionSpec as P
    >>> mesh = sc.device_mesh("data=4,model=2", cluster="dgx-h100")
    >>> array = lambda shape, *spec: jax.ShapeDtypeStruct(
    ...     shape, jnp.bfloat16, sharding=NamedSharding(mesh, P(*spec)))
    >>> step = jax.jit(lambda x, w: x @ w)
    >>> p = sc.predict_step(step, array((512, 256), "data", "model"), array((256, 64), "model"),
    ...     cluster="dgx-h100")
    >>> [(c.kind, c.axis) for c in p.collectives]
    [('all-reduce', 'model')]

    Args:
        step: `jax.jit(...)`, donations included; `jax.pmap`, `nnx.jit`, Equinox's `filter_jit`; or
            the step lowered or compiled by you (`.lower(...)`, `.compile()`), which keeps whatever
            was set around its lowering. Its call is one training step.
        arguments, keywords: of the step, none if it is lowered: pytrees of arrays or of
            jax.ShapeDtypeStruct, with NamedShardings over a mesh of `device_mesh` or of devices
            that are present. Without any mesh the step is that of one device.
        cluster: catalogue name, TOML file or Cluster of the mesh's devices.
        nodes: number of hosts; None: as many as the mesh needs.
        mesh: for a step whose arguments carry no mesh, such as one with `in_shardings=P("data")`:
            a jax mesh, an abstract one too, or axes of any names as for `device_mesh`; set while
            the step is lowered.
        name: of the prediction.
        overrides, calibration, what_if, estimates, dump_hlo: as for `predict`.
        step_kwargs: keywords of the step that have a name of the above.

    Raises:
        InputError: not a jitted function, arguments that do not fit it, a mesh of another cluster.
    """
    figures = step_figures(what_if, tokens, model_flops, memory_fraction)
    hints = as_hints(trips, kernels, branches)
    _import_jax()
    _check_keywords(step, step_kwargs, keywords)
    words = {**keywords, **(step_kwargs or {})}
    if isinstance(mesh, MeshShape | str | Mapping):
        mesh = device_mesh(mesh, cluster, nodes)
    elif mesh is not None:
        mesh = _over_devices(mesh, cluster, nodes)
    from scaling.compile.jitted import devices_of, program_of, staged

    stated = load_cluster(cluster, nodes, overrides=overrides)
    made = staged(step, arguments, words, stated, mesh, as_options(options))
    place = cluster_for(devices_of(made), cluster, nodes, overrides)
    profile, warnings = load_profile(place, calibration, measured=measured)
    program, text = program_of(made, place, name, estimates, hints)
    write_text(dump_hlo, text)
    added = dict(getattr(made, "added", {}))
    figures |= {"warnings": tuple(warnings), "added_options": added, "text": text}
    if nodes is not None and nodes > 1 and devices_of(made) == 1:
        figures["notes"] = (ONE_DEVICE.format(place.devices),)
    return priced_result(Pricing(program, place, profile, **figures))


@entrance
def device_mesh(
    mesh: MeshLike, cluster: ClusterLike, nodes: int | None = None
) -> "jax.sharding.Mesh":
    """Return a jax mesh over the devices of a cluster that need not exist.

    >>> import scaling as sc
    >>> dict(sc.device_mesh("data=2,model=8", cluster="dgx-h100", nodes=2).shape)
    {'data': 2, 'model': 8}

    Args:
        mesh: axes of any names and their sizes, outermost first.
        cluster: catalogue name, TOML file or Cluster.
        nodes: number of hosts; None: as many as the mesh needs.

    Raises:
        InputError: more devices than the cluster has, or no compiler for its chip.
    """
    _import_jax()
    from scaling.compile import jitted

    axes = axis_sizes(mesh)
    return jitted.mesh(axes, cluster_for(math.prod(axes.values()), cluster, nodes, None))


@entrance
def pretend(
    cluster: ClusterLike, nodes: int | None = None, *, overrides: Overrides | None = None
) -> AbstractContextManager[list[Any]]:
    """Return a context in which `jax.devices()` are those of a cluster that need not exist.

    A framework's own code then makes its meshes, shapes and shardings for that cluster, unmodified,
    up to the lowering of its step. Values are computed on this machine's CPU; arrays that are put
    on absent devices, or made there by a jitted function, are jax.ShapeDtypeStruct, which here does
    what arrays do, except for having values.

    >>> import jax
    >>> import scaling as sc
    >>> with sc.pretend("gb200-nvl72", nodes=4) as devices:
    ...     mesh = jax.make_mesh((2, 8), ("data", "model"))
    ...     counts = jax.device_count(), jax.process_count(), len(jax.local_devices())
    >>> counts, mesh.size, len(devices)
    ((16, 4, 4), 16, 16)

    Args:
        cluster: catalogue name, TOML file or Cluster.
        nodes: number of hosts; None: 1, or those of the Cluster.
        overrides: figures of the cluster, such as {"gpus_per_node": 4}.

    Raises:
        InputError: no compiler for the cluster's chip; another thread or task is inside of one.
    """
    _import_jax()
    from scaling.compile.pretend.pretend import Pretending

    return Pretending(load_cluster(cluster, nodes, overrides=overrides))


def _over_devices(mesh: Any, cluster: ClusterLike, nodes: int | None) -> "jax.sharding.Mesh | None":
    """A jax mesh, that of the cluster's devices for an abstract one; None for an empty one."""
    import jax

    from scaling.meshes.devices import over_devices

    if not isinstance(mesh, jax.sharding.Mesh | jax.sharding.AbstractMesh):
        raise InputError(f"mesh={mesh!r} must be a jax mesh or axes such as 'data=8'")
    if mesh.empty:
        return None
    if isinstance(mesh, jax.sharding.Mesh):
        return mesh
    return over_devices(mesh, device_mesh(dict(mesh.shape), cluster, nodes).devices.tolist())


def _import_jax() -> None:
    """Import jax for the CPU; what its CUDA libraries write on a machine without GPUs is kept.

    Raises InputError under a jax that is too old.
    """
    keep_devices_free()
    with quiet():
        from scaling.meshes.devices import check_version
    check_version()


def _check_keywords(step: Any, step_kwargs: Any, keywords: Mapping[str, Any]) -> None:
    if step_kwargs is not None and not isinstance(step_kwargs, Mapping):
        raise InputError(f"step_kwargs={step_kwargs!r} must be a mapping of the step's keywords")
    for twice in set(step_kwargs or ()) & set(keywords):
        raise InputError(f"{twice} is given twice: as a keyword and in step_kwargs")
    try:
        theirs = signature(step).parameters
    except (TypeError, ValueError):  # lowered, or hidden by a decorator
        return
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in theirs.values()):
        return
    ours = [p.name for p in signature(predict_step).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for name in keywords:
        if name not in theirs:
            valid = [*theirs, *ours]
            raise InputError(
                f"neither the step nor predict_step has {name!r}; {nearest(name, valid)}"
            )
