"""Step time, memory and collectives of a run."""

import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from scaling.api.calibrate import load_profile
from scaling.api.inputs import (
    ClusterLike,
    MeshLike,
    Overrides,
    XlaOptions,
    as_options,
    as_overrides,
    keep_devices_free,
)
from scaling.api.output_paths import write_text
from scaling.api.pricing import Pricing, read_changes, with_step_error
from scaling.api.public_api import entrance, named_packages, python_words
from scaling.api.request import request
from scaling.api.result import PredictionResult, priced_result, priced_results
from scaling.api.runs import (
    CUSTOM,
    RunLike,
    Settings,
    check_named,
    load_run,
    parse_settings,
    timed_calls,
    with_batch,
)
from scaling.meshes.bandwidths import Measured
from scaling.meshes.errors import InputError, check_keys
from scaling.models.accounting.remat import AUTO
from scaling.profiles.profile import Profile
from scaling.run import OURS, Run
from scaling.run.attention import stored_scores
from scaling.run.recipes import has_default_batch
from scaling.simulate.resolve import Target, chosen_source, target, target_warnings
from scaling.simulate.what_if import changed

MOST_TRIES = 3  # programs that may be compiled to find one that fits
MOST_WAITING = 2048  # closed forms that wait to be priced side by side: ten seconds' work
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
    batch: int | None = None,
    seq_len: int | None = None,
    overrides: Overrides | None = None,
    calibration: Path | str | Profile | None = None,
    measured: Measured | None = None,
    what_if: str | Iterable[str] = (),
    causal_flops: bool = False,
    estimates: bool = False,
    options: XlaOptions | None = None,
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
        batch: sequences of a step on all devices: set batch.global_batch.
        seq_len: tokens of a sequence: set batch.seq_len.
        causal_flops: count half of attention in the model FLOPs.
        estimates: also keep XLA's own estimate of every operation, for `explain`.
        dump_hlo: write the compiled program's text to this file.

    Raises:
        InputError: unknown names, a mesh that does not fit; with source "compiled" a run that the
            trainer cannot run, or a chip that cannot be compiled for.
    """
    place, pricing, is_as_stated = _asked(load_profile, **locals())
    if is_as_stated:
        return priced_result(pricing(place.run, ""))
    return _first_that_fits(place, lambda run, note: priced_result(pricing(run, note)))


def predict_each(runs: Iterable[RunLike], **options: Any) -> Iterator[PredictionResult | Exception]:
    """Yield what `predict` returns or raises for each run, with the same options for all.

    Closed forms wait for up to MOST_WAITING others and are priced in arrays.
    """
    waiting: list[Pricing | Exception] = []
    profile_of = lru_cache(load_profile)  # of a cluster
    for run in runs:
        try:
            with python_words(), named_packages("predict"):
                given = inspect.signature(predict).bind(run, **options)
                given.apply_defaults()
                place, pricing, _ = _asked(profile_of, **given.arguments)
                waiting.append(pricing(place.run, ""))
        except Exception as error:
            waiting.append(error)
        if len(waiting) == MOST_WAITING or not _waits(waiting[-1]):
            yield from priced_results(waiting)
            waiting = []
    yield from priced_results(waiting)


def _asked(
    profile_of: Callable[..., tuple[Profile, list[str]]],
    run: RunLike,
    cluster: ClusterLike | None,
    nodes: int | None,
    mesh: MeshLike | None,
    source: str,
    set: Settings | None,
    device_order: str | Iterable[str] | None,
    batch: int | None,
    seq_len: int | None,
    overrides: Overrides | None,
    calibration: Path | str | Profile | None,
    measured: Measured | None,
    what_if: str | Iterable[str],
    causal_flops: bool,
    estimates: bool,
    options: XlaOptions | None,
    dump_hlo: Path | str | None,
) -> tuple[Target, Callable[[Run, str], Pricing], bool]:
    """Return where a run is priced, what its step is priced from, and whether all of it is stated.

    The second is a function of the run and of a note about what of it was changed.
    """
    check_keys([source], SOURCES, "--source", "source")
    changes = read_changes(what_if)
    set = with_batch(set, batch, seq_len)
    keep_devices_free()
    resolved = load_run(run, mesh=mesh, device_order=device_order, set=set)
    place = target(resolved, cluster, nodes, as_overrides(overrides))
    where = {"cluster": cluster, "nodes": nodes, "mesh": mesh, "device_order": device_order}
    how: dict[str, Any] = {"source": None if source == "auto" else source}
    how |= {"calibration": calibration, "measured": measured}
    given = as_options(options)
    how |= {"what_if": changes, "causal_flops": causal_flops, "options": given}
    asked = request(run, **where, set=set, overrides=overrides, **how)
    source, notes_of_source = (source, []) if source == "stored" else chosen_source(place, source)
    chosen = ""
    if place.run.remat == AUTO:
        from scaling.planning.remat import with_remat

        with_policy, chosen = with_remat(place.run, place.mesh, place.cluster)
        place = replace(place, run=with_policy)
        asked = asked.changed(set={"remat": str(with_policy.remat)})
    if calibration is None:
        check_named(cluster, resolved, place.cluster)
    calls = timed_calls(measured, resolved, cluster)
    profile, warnings = profile_of(place.cluster, calibration, measured=calls)
    if not place.cluster.virtual_devices:
        profile = with_step_error(profile, resolved.software)
    changed(place.cluster, profile, changes)  # raises before anything is compiled
    if source != "compiled" and (dump_hlo is not None or given):
        what = {"analytic": "a closed form", "stored": "a stored program"}[source]
        name, lacks = ("--option", "is not compiled") if given else ("--dump-hlo", "has no HLO")
        raise InputError(f"{name}: {what} {lacks}; use --source compiled")

    def pricing(run: Run, note: str) -> Pricing:
        start, text = time.monotonic(), ""
        on = run, place.mesh, place.cluster
        if source == "analytic":
            from scaling.analytic.program import closed_form

            program = closed_form(*on)
        elif source == "stored":
            from scaling.training.program import stored_program_of_run

            program = stored_program_of_run(*on)
        else:
            from scaling.training.program import program_of_run

            program, text = program_of_run(*on, estimates, given)
        write_text(dump_hlo, text)
        notes = (*target_warnings(place), *([note] if note else []), *notes_of_source, *warnings)
        if run.software == OURS and not place.cluster.virtual_devices:
            notes += tuple(stored_scores(run, place.cluster.accelerator.compute_capability))
        return Pricing(
            *(program, place.cluster, profile, run, changes, causal_flops),
            warnings=notes,
            chosen=chosen,
            compile_seconds=time.monotonic() - start,
            request=asked.changed(set=_settings(place.run, run)) if note else asked,
        )

    stated = {key.partition(".")[0] for key in parse_settings(set or ())}
    is_own = isinstance(run, Mapping | Run) or run == CUSTOM or not has_default_batch(str(run))
    is_as_stated = source == "stored" or is_own or bool(stated & {"batch", "remat"})
    return place, pricing, is_as_stated


def _first_that_fits(
    place: Target, priced: Callable[[Run, str], PredictionResult]
) -> PredictionResult:
    """Return the price of a recipe, or with the microbatches and remat with which it first fits.

    A closed form chooses; the program of the prediction confirms, at most MOST_TRIES times. Where
    nothing fits, the recipe is priced as it is.
    """
    from scaling.planning.fitting import fitting_runs

    tries, most = 0, math.inf  # bytes of the closed form
    for run, peak in fitting_runs(place.run, place.mesh, place.cluster):
        if peak > most:
            continue
        prediction = priced(run, _note(place.run, run))
        if prediction.memory.fits is not False:
            return prediction
        tries += 1
        if tries == MOST_TRIES:
            break
        most = peak - (float(prediction.memory.peak) - float(prediction.memory.capacity or 0.0))
    return priced(place.run, "")


def _waits(one: Pricing | Exception) -> bool:
    """Return whether others can be read first: what is compiled takes long enough."""
    return isinstance(one, Exception) or one.program.source == "analytic"


def _settings(recipe: Run, run: Run) -> dict[str, Any]:
    """Return what differs from the recipe's own run, by key of run.json."""
    both = {
        "batch.microbatches": (recipe.batch.microbatches, run.batch.microbatches),
        "remat": (str(recipe.remat), str(run.remat)),
    }
    return {key: now for key, (before, now) in both.items() if now != before}


def _note(recipe: Run, run: Run) -> str:
    """Return a sentence about what was taken instead of the recipe's, and how to have that."""
    now, before = _settings(recipe, run), _settings(run, recipe)
    if not now:
        return ""
    taken = " and ".join(f"{key}={value}" for key, value in now.items())
    again = " ".join(f"--set {key}={value}" for key, value in before.items())
    return f"{taken}, as the recipe's own step does not fit in memory; {again} prices that"
