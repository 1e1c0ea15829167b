"""Step time, memory and collectives of a run, of any jitted step, or of a dumped HLO text."""

import math
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.calibrate import load_profile
from scaling.api.entrance import entrance
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    RunLike,
    as_overrides,
    axis_sizes,
    cluster_for,
    keep_devices_free,
    load_run,
)
from scaling.api.result import (
    PredictionResult,
    Pricing,
    closed_form,
    priced_result,
    with_step_error,
)
from scaling.api.settings import Settings, as_texts
from scaling.hlo.parse import UnknownHlo
from scaling.hlo.reader import read_program
from scaling.meshes.errors import InputError, check_keys, is_count
from scaling.meshes.reading import read_text, writing
from scaling.meshes.shape import MeshShape
from scaling.profiles.profile import Profile
from scaling.simulate.resolve import chosen_source, target, target_warnings
from scaling.simulate.what_if import changed, check_changes

if TYPE_CHECKING:
    import jax

SOURCES = ("auto", "analytic", "compiled", "stored")


@entrance
def predict(
    run: RunLike,
    cluster: ClusterLike | None = None,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    source: str = "auto",
    set: Settings | None = None,
    *,
    device_order: str | Iterable[str] | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    what_if: str | Iterable[str] = (),
    causal_flops: bool = False,
    estimates: bool = False,
    options: Mapping[str, bool | str | int] | None = None,
    dump_hlo: Path | str | None = None,
) -> PredictionResult:
    """Predict step time, memory and collectives of a run on a cluster that need not exist.

    The trainer's own step is compiled for the cluster, without its devices, and kept on disk; what
    the trainer does not run is priced from a closed form (`scaling.analytic.program`). If JAX is
    not imported yet, it is set to the CPU (JAX_PLATFORMS=cpu), so that devices stay free.

    >>> import scaling as sc
    >>> p = sc.predict("tiny", cluster="dgx-h100", mesh="fsdp=8")
    >>> p.devices, p.memory.fits, p.collectives[0].axis
    (8, True, 'fsdp')
    >>> faster = p.what_if("nvlink x2")
    >>> faster.step_time <= p.step_time
    True

    Args:
        run: recipe name, `file.py:function`, run.json or its folder, mapping, or Run.
        cluster: catalogue name, TOML file or Cluster; None: the run's, else "host", this machine.
        nodes: number of hosts; None: the run's, else 1.
        mesh: replaces the run's mesh; without either, all devices are `fsdp`.
        device_order: axes, outermost first; see `load_run`.
        set: values of the run by dotted key; see `load_run`.
        overrides: figures of the cluster by key, such as {"memory": "40GB"}.
        source: "compiled" is the trainer's own step, "analytic" a closed form, of other software
            too; "auto" compiles where that can be; "stored" takes a compiled program that comes
            with the package and needs no JAX (`scaling.program.stored`).
        calibration: a Profile, or a file of `scaling calibrate`, to price with.
        what_if: figures to multiply, such as "network x2".
        causal_flops: count half of attention in the model FLOPs.
        estimates: also keep XLA's own estimate of every operation, for `explain`.
        options: of XLA, by name without dashes, for the compiled program: besides the trainer's
            (`scaling.compile.options`), or instead of them.
        dump_hlo: file to which the compiled program's text is written.

    Raises:
        InputError: unknown names, a mesh that does not fit; with source "compiled" a run that the
            trainer cannot run, or a chip that cannot be compiled for.
    """
    check_keys([source], SOURCES, "--source", "source")
    changes = _changes(what_if)
    keep_devices_free()
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    place = target(resolved, cluster, nodes, as_overrides(overrides))
    source, notes_of_source = (source, []) if source == "stored" else chosen_source(place, source)
    profile, warnings = load_profile(place.cluster, calibration)
    if not place.cluster.virtual_devices:
        profile = with_step_error(profile, resolved.software)
    changed(place.cluster, profile, changes)  # raises before anything is compiled
    if dump_hlo is not None and source != "compiled":
        what = {"analytic": "a closed form", "stored": "a stored program"}[source]
        raise InputError(f"--dump-hlo: {what} has no HLO; use --source compiled")
    start = time.monotonic()
    if source == "analytic":
        program = closed_form(place.run, place.mesh, place.cluster)
    elif source == "stored":
        from scaling.train.program import stored_program_of_run

        program = stored_program_of_run(place.run, place.mesh, place.cluster)
    else:
        from scaling.train.program import program_of_run

        program, text = program_of_run(place.run, place.mesh, place.cluster, estimates, options)
        _write_text(dump_hlo, text)
    seconds = time.monotonic() - start
    notes = (*target_warnings(place), *notes_of_source, *warnings)
    where = (place.cluster, profile, place.run)
    return priced_result(Pricing(program, *where, changes, causal_flops, notes, seconds))


@entrance
def predict_step(
    step: Any,
    *arguments: Any,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: "MeshLike | jax.sharding.Mesh | None" = None,
    name: str = "step",
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    what_if: str | Iterable[str] = (),
    estimates: bool = False,
    options: Mapping[str, bool | str | int] | None = None,
    dump_hlo: Path | str | None = None,
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
        step: `jax.jit(...)`, donations included; its call is one training step.
        arguments: pytrees of jax.ShapeDtypeStruct with NamedShardings over one mesh, of devices
            that are present or made by `device_mesh`.
        cluster: catalogue name, TOML file or Cluster of the mesh's devices.
        nodes: number of hosts; None: as many as the mesh needs.
        mesh: for a step whose arguments carry no mesh, such as one with `in_shardings=P("data")`:
            a jax mesh, or axes of any names as for `device_mesh`; set while the step is lowered.
        name: of the prediction.
        overrides, calibration, what_if, estimates, options, dump_hlo: as for `predict`.

    Raises:
        InputError: not a jitted function, arguments without a mesh, a mesh of another cluster.
    """
    changes = _changes(what_if)
    keep_devices_free()
    from scaling.compile.jitted import program_and_text
    from scaling.compile.lower import mesh_of

    if isinstance(mesh, MeshShape | str | Mapping):
        mesh = device_mesh(mesh, cluster, nodes)
    over = mesh or mesh_of(arguments)
    place = cluster_for(over.size, cluster, nodes, overrides)
    profile, warnings = load_profile(place, calibration)
    program, text = program_and_text(step, arguments, place, name, estimates, over, options)
    _write_text(dump_hlo, text)
    return priced_result(
        Pricing(program, place, profile, changes=changes, warnings=tuple(warnings))
    )


@entrance
def predict_hlo(
    text: Path | str,
    cluster: ClusterLike,
    nodes: int | None = None,
    mesh: MeshLike | None = None,
    *,
    name: str = "",
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    what_if: str | Iterable[str] = (),
) -> PredictionResult:
    """Predict the program of a scheduled HLO text, such as XLA dumps; needs no JAX.

    >>> import scaling as sc
    >>> text = '''HloModule step, is_scheduled=true, num_partitions=8
    ... ENTRY %main (x: f32[1024]) -> f32[1024] {
    ...   %x = f32[1024]{0} parameter(0)
    ...   ROOT %double = f32[1024]{0} add(%x, %x)
    ... }'''
    >>> sc.predict_hlo(text, cluster="dgx-h100", mesh="data=8").devices
    8

    Args:
        text: the text, or the path of a file with it ("after optimizations", scheduled).
        cluster: catalogue name, TOML file or Cluster.
        nodes: number of hosts; None: as many as the mesh needs.
        mesh: axes of any names, outermost first: "data=8,model=8" or a mapping; None: one axis
            `data` over the program's partitions.
        name: of the prediction; "": the file's name.
        overrides, calibration, what_if: as for `predict`.

    Raises:
        InputError: no such file, a mesh larger than the cluster, a text that is not scheduled HLO.
    """
    changes = _changes(what_if)
    body, title = _hlo_text(text)
    devices = _partitions(body, title)
    axes = {"data": devices} if mesh is None else axis_sizes(mesh)
    if math.prod(axes.values()) != devices:
        raise InputError(
            f"{title} is a program of {devices} partitions, the mesh "
            f"{','.join(f'{a}={n}' for a, n in axes.items())} has {math.prod(axes.values())} "
            f"devices: use axis sizes that multiply to {devices}"
        )
    place = cluster_for(devices, cluster, nodes, overrides)
    profile, warnings = load_profile(place, calibration)
    try:
        program = read_program(body, axes, name or title)
    except UnknownHlo as error:
        raise InputError(f"{title}: {error}") from None
    return priced_result(
        Pricing(program, place, profile, changes=changes, warnings=tuple(warnings))
    )


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
    keep_devices_free()
    from scaling.compile import jitted

    axes = axis_sizes(mesh)
    return jitted.mesh(axes, cluster_for(math.prod(axes.values()), cluster, nodes, None))


def _changes(what_if: str | Iterable[str]) -> tuple[str, ...]:
    """Return the changes; raise InputError for one that cannot be read."""
    changes = as_texts(what_if, "--what-if", "network x2")
    check_changes(changes)
    return changes


def _partitions(text: str, title: str) -> int:
    """Return the number of devices of an HLO module, from its first line."""
    first = text.lstrip().partition("\n")[0]
    if not first.startswith("HloModule"):
        raise InputError(f"{title} is no HLO text: its first line does not begin with HloModule")
    if "is_scheduled=true" not in first:
        raise InputError(
            f"{title} is not scheduled: take XLA's dump after optimizations (is_scheduled=true)"
        )
    counts = re.findall(r"\b(?:num_partitions|replica_count)=(\d+)", first)
    if not all(map(is_count, counts)):
        raise InputError(f"{title} names a number of devices of {max(map(len, counts)):,} digits")
    return math.prod(map(int, counts))


def _hlo_text(text: Path | str) -> tuple[str, str]:
    """Return the HLO text and a name for it."""
    if isinstance(text, str) and "\n" in text:
        return text, "hlo"
    path = Path(text)
    return read_text(path), path.stem


def _write_text(path: Path | str | None, text: str) -> None:
    if path is not None:
        with writing(Path(path)):
            Path(path).write_text(text, encoding="utf-8")
