"""Step time, memory and collectives of a run."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from scaling.api.calibrate import load_profile
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    RunLike,
    as_overrides,
    keep_devices_free,
    load_run,
)
from scaling.api.pricing import Pricing, with_step_error
from scaling.api.public_api import entrance
from scaling.api.request import request
from scaling.api.result import PredictionResult, priced_result
from scaling.api.settings import Settings, as_texts
from scaling.meshes.errors import InputError, check_keys
from scaling.meshes.reading import writing
from scaling.profiles.profile import Profile
from scaling.simulate.resolve import chosen_source, target, target_warnings
from scaling.simulate.what_if import changed, check_changes

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
        cluster: catalogue name (`scaling cluster list`) or TOML file, or a Cluster; None: the
            run's, else host, this machine.
        source: where the step comes from. compiled: the trainer's own step; analytic: a closed
            form, also of other software; auto: compiled where the trainer can run it and the target
            can be compiled for; stored: a compiled program that comes with the package, priced
            without JAX.
        causal_flops: count half of attention in the model FLOPs.
        estimates: also keep XLA's own estimate of every operation, for `explain`.
        options: of XLA, by name without dashes, for the compiled program: besides the trainer's
            (`scaling.compile.options`), or instead of them.
        dump_hlo: write the compiled program's text to this file.

    Raises:
        InputError: unknown names, a mesh that does not fit; with source "compiled" a run that the
            trainer cannot run, or a chip that cannot be compiled for.
    """
    check_keys([source], SOURCES, "--source", "source")
    changes = read_changes(what_if)
    keep_devices_free()
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    place = target(resolved, cluster, nodes, as_overrides(overrides))
    where = {"cluster": cluster, "nodes": nodes, "mesh": mesh, "device_order": device_order}
    how: dict[str, Any] = {"source": None if source == "auto" else source}
    how |= {"calibration": calibration, "what_if": changes, "causal_flops": causal_flops}
    asked = request(run, **where, set=set, overrides=overrides, **how)
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
        from scaling.analytic.program import closed_form

        program = closed_form(place.run, place.mesh, place.cluster)
    elif source == "stored":
        from scaling.training.program import stored_program_of_run

        program = stored_program_of_run(place.run, place.mesh, place.cluster)
    else:
        from scaling.training.program import program_of_run

        program, text = program_of_run(place.run, place.mesh, place.cluster, estimates, options)
        write_text(dump_hlo, text)
    seconds = time.monotonic() - start
    notes = (*target_warnings(place), *notes_of_source, *warnings)
    return priced_result(
        Pricing(
            *(program, place.cluster, profile, place.run, changes, causal_flops, notes),
            compile_seconds=seconds,
            request=asked,
        )
    )


def read_changes(what_if: str | Iterable[str]) -> tuple[str, ...]:
    """Return the changes; raise InputError for one that cannot be read."""
    changes = as_texts(what_if, "--what-if", "network x2")
    check_changes(changes)
    return changes


def write_text(path: Path | str | None, text: str) -> None:
    if path is not None:
        with writing(Path(path)):
            Path(path).write_text(text, encoding="utf-8")
