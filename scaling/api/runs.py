"""Runs that the API accepts, and values of run.json replaced by dotted key (`--set key=value`).

run     recipe name | file.py:function | run.json | its folder | mapping | Run
        | "custom", whose settings state the whole model
set     batch.global_batch=256   train.learning_rate=1e-4   remat=full   model.preset=llama3-1b
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from scaling.api.inputs import ClusterLike, MeshLike, as_axes, as_mesh, as_texts, axis_sizes
from scaling.api.public_api import entrance
from scaling.meshes.bandwidths import Measured, MeasuredCall, measured_calls
from scaling.meshes.cluster import Cluster
from scaling.meshes.errors import InputError, check_keys, reworded, whole_number
from scaling.meshes.reading import without_repeats
from scaling.meshes.shape import parse_mesh, parse_order
from scaling.models.config import ModelConfig
from scaling.profiles.calibrations import host_calibration
from scaling.run import Run, read_run, run_dict
from scaling.run.own import OwnRun, own_run
from scaling.run.recipes import resolve, with_steps

RunLike = Run | str | Path | Mapping[str, Any]
Settings = Mapping[str, Any] | Iterable[str]
WHERE = "--set"  # how messages call the place of the mistake
CUSTOM = "custom"  # a run without a recipe
CUSTOM_BATCH = {"global_batch": 1, "seq_len": 2048}
SHAPES = {"vocab_size": 32_000, "d_model": 4096, "n_layers": 32, "n_heads": 32, "d_ff": 11_008}


@entrance
def load_run(
    run: RunLike,
    *,
    mesh: MeshLike | None = None,
    device_order: str | Iterable[str] | None = None,
    set: Settings | None = None,
) -> Run:
    """Return the run that a name, a path or a mapping describes, with some values replaced.

    >>> import scaling as sc
    >>> sc.load_run("tiny", set={"batch.seq_len": 16}).batch.tokens
    128

    Args:
        run: recipe name, `file.py:function`, run.json or its folder, a mapping as in run.json, or
            "custom": every shape of the model is in `set`, nothing is taken from a recipe.
        mesh: replaces the run's whole mesh.
        device_order: mesh axes, outermost first; axes that are not named follow in default order.
        set: values by dotted key of run.json, as a mapping or as "key=value" texts.

    Raises:
        InputError: unknown name, key or axis (the nearest one is named), or a value of the wrong
            type.
    """
    if run == CUSTOM:
        run = custom_run(set or ())
    else:
        run = read_run(dict(run)) if isinstance(run, Mapping) else run
        run = apply_settings(run if isinstance(run, Run) else resolve(str(run)), set or ())
    if device_order is not None:
        order = parse_order(as_axes(device_order))
        shape = run.mesh and replace(run.mesh, device_order=order)
        run = replace(run, device_order=order, mesh=shape)
    return run if mesh is None else replace(run, mesh=as_mesh(mesh, run.device_order))


def load_trained(
    run: RunLike | OwnRun | Callable[..., Any],
    *,
    mesh: MeshLike | None,
    device_order: str | Iterable[str] | None,
    set: Settings | None,
    steps: int | None,
) -> Run | OwnRun:
    """Return the run that `train` is given: as `load_run`, or that of a function with a mesh.

    Raises:
        InputError: as `load_run`; a setting that the function does not take.
    """
    made = run if isinstance(run, OwnRun) else None
    if callable(run):
        made = own_run(run, parse_settings(set or ()))
        if made is None:
            raise InputError(f"{run.__name__} must take a mesh: def {run.__name__}(mesh)")
    elif isinstance(run, str | Path) and ".py:" in str(run):
        made = own_run(str(run), parse_settings(set or ()))
    if made is None:
        assert not callable(run) and not isinstance(run, OwnRun)
        return with_steps(load_run(run, mesh=mesh, device_order=device_order, set=set), steps)
    if device_order is not None:
        raise InputError("--device-order: write the axes of --mesh in their order, outermost first")
    return with_steps(made if mesh is None else replace(made, mesh=axis_sizes(mesh)), steps)


def check_named(cluster: ClusterLike | None, run: Run, place: Cluster) -> None:
    """Raise InputError where nobody has named this machine, and measuring it would take minutes."""
    stated = cluster if cluster is not None else run.cluster
    if stated is None and place.virtual_devices and host_calibration(place.devices) is None:
        raise InputError(
            "on which cluster? Name one, such as --cluster dgx-h100 (`scaling cluster list` has "
            "all), or --cluster host, this machine, which is then measured first"
        )


def timed_calls(measured: Measured | None, run: Run, cluster: object) -> tuple[MeasuredCall, ...]:
    """Return the calls that were timed: those given, else those of the run's own cluster."""
    if measured is not None:
        return measured_calls(measured)
    return run.cluster.measured if run.cluster is not None and cluster is None else ()


def apply_settings(run: Run, settings: Settings) -> Run:
    """Return the run with some values replaced.

    Args:
        settings: dotted key of run.json -> value, or texts "key=value" whose values are JSON, else
            plain strings.

    Raises:
        InputError: an unknown key (the nearest one is named), a value of the wrong type, or a key
            that is given twice.
    """
    values = parse_settings(settings)
    return read_run(_changed(run_dict(run), values), WHERE) if values else run


def custom_run(settings: Settings) -> Run:
    """Return the run whose model is stated by the settings alone; one sequence of 2,048 tokens.

    Raises:
        InputError: as of `apply_settings`, or shapes of the model are missing.
    """
    document = {"name": CUSTOM, "model": {}, "batch": dict(CUSTOM_BATCH)}
    document = _changed(document, parse_settings(settings))
    given = document["model"]
    stated = given if isinstance(given, dict) and not {"preset", "config"} & set(given) else SHAPES
    check_keys(stated, (field.name for field in fields(ModelConfig)), f"{WHERE} model")
    missing = [name for name in SHAPES if name not in stated]
    if missing:
        example = " ".join(f"--set model.{name}={SHAPES[name]}" for name in missing)
        raise InputError(f"custom: the model lacks {', '.join(missing)}; add for example {example}")
    return read_run(document, WHERE)


def with_batch(settings: Settings | None, batch: int | None, seq_len: int | None) -> Settings:
    """Return settings with those that --batch and --seq-len are short for."""
    short = (("--batch", "global_batch", batch), ("--seq-len", "seq_len", seq_len))
    given = [(option, f"batch.{key}", value) for option, key, value in short if value is not None]
    if not given:
        return settings or ()
    values = parse_settings(settings or ())
    for option, key, value in given:
        if {key, "batch"} & set(values):
            raise InputError(f"{option} {value} is short for {WHERE} {key}={value}: give one")
        values[key] = whole_number(option, value)
    return values


def parse_settings(settings: Settings) -> dict[str, Any]:
    """Return key -> value; see `apply_settings`."""
    if isinstance(settings, Mapping):
        as_texts(settings, WHERE, "batch.global_batch")
        return dict(settings)
    values: dict[str, Any] = {}
    for text in as_texts(settings, WHERE, "batch.global_batch=256"):
        key, equals, value = text.partition("=")
        key = key.strip()
        if not key or not equals:
            raise InputError(f"{WHERE} {text}: write key=value, such as batch.global_batch=256")
        if key in values:
            raise InputError(f"{WHERE}: key {key!r} is given twice")
        with reworded(f"{WHERE} {key}: "):
            values[key] = _json_or_text(value.strip())
    return values


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=without_repeats)
    except InputError:
        raise
    except (ValueError, RecursionError):
        return text


def _changed(document: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run.json document with values set in it; `model.preset` replaces the whole model.

    A mesh and a device order may be written as --mesh and --device-order take them.
    """
    for key in sorted(values, key=lambda key: key not in ("model", "model.preset")):
        value = values[key]
        if key == "mesh" and isinstance(value, str):
            value = parse_mesh(value).sizes
        elif key == "device_order":
            value = parse_order(as_axes(value))
        is_preset = key == "model.preset"
        *path, last = ["model"] if is_preset else key.split(".")
        table = document
        for depth, name in enumerate(path):
            inner = table.setdefault(name, {})
            if inner is None:  # an optional table that the run does not have, such as model.moe
                inner = table[name] = {}
            if not isinstance(inner, dict):
                where = ".".join(path[: depth + 1])
                raise InputError(f"{WHERE} {key}: {where} is a value, not a table")
            table = inner
        table[last] = {"preset": value} if is_preset else value
    return document
