"""A run as the document of run.json, read and written. A key that is not known is an error."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from scaling.meshes.catalog.overrides import parse_overrides
from scaling.meshes.durable import write_json
from scaling.meshes.errors import InputError, check_keys, reworded
from scaling.meshes.reading import read, read_json
from scaling.meshes.shape import AXES, MeshShape, check_axes
from scaling.models.accounting.remat import SavedTensors, parse_remat
from scaling.models.config import with_positions
from scaling.models.presets import model_from
from scaling.run.run import Batch, Run


def read_run(data: Any, where: str = "run.json") -> Run:
    """Return the run that the mapping of a run.json describes.

    Raises:
        InputError: unknown or missing keys (the nearest valid one is named), values of the wrong
            type, a sequence beyond the model's learned positions.
    """
    if not isinstance(data, dict):
        raise InputError(f"{where}: expected a table of keys, got {data!r}")
    if "function" in data:
        raise InputError(
            f"{where} is a run of {data['function']}, whose model is not ours: train, price and "
            "compare take it"
        )
    check_keys(data, (f.name for f in fields(Run)), where)
    for key in ("model", "batch"):
        if key not in data:
            raise InputError(f"{where}: missing {key!r}")
    values = {k: v for k, v in data.items() if k not in ("model", "mesh")}
    batch = read(Batch, data["batch"], f"{where}: batch")
    model = model_from(data["model"], f"{where}: model")
    with reworded(f"{where}: model: "):
        model = with_positions(model, batch.seq_len)
    values.update(name=data.get("name", "run"), model=model, batch=batch, mesh=_mesh(data, where))
    remat = data.get("remat")  # a policy's name, or `SavedTensors` from a text, a list or a table
    if isinstance(remat, str):
        values["remat"] = parse_remat(remat)
    elif isinstance(remat, dict | list | tuple):
        table = remat if isinstance(remat, dict) else {"save": remat}
        values["remat"] = read(SavedTensors, table, f"{where}: remat")
    if "cluster" in data:
        values["cluster"] = _with_numbers(data["cluster"], f"{where}: cluster")
    return read(Run, values, where)


def load_run(path: Path) -> Run:
    """Return the run that a run.json file describes."""
    return read_run(read_json(path), str(path))


def run_dict(run: Run) -> dict[str, Any]:
    """Return the document of run.json, every field written out; `read_run` reads it back."""
    data = json.loads(json.dumps(asdict(run)))  # with lists for tuples
    if run.cluster is None:
        del data["cluster"]
    if run.mesh is None:
        del data["mesh"]
    else:
        del data["mesh"]["device_order"]
    return data


def save_run(run: Run, path: Path) -> None:
    """Write run.json."""
    write_json(path, run_dict(run))


def _mesh(data: dict[str, Any], where: str) -> MeshShape | None:
    order = data.get("device_order", AXES)
    if "mesh" not in data or data["mesh"] is None:
        return None
    if not isinstance(data["mesh"], dict):
        raise InputError(f"{where}: mesh: expected a table of axis sizes, got {data['mesh']!r}")
    check_axes(data["mesh"], f"{where}: mesh")
    return read(MeshShape, {**data["mesh"], "device_order": order}, f"{where}: mesh")


def _with_numbers(cluster: Any, where: str) -> Any:
    """Return the table with overrides as numbers, also of texts such as "400Gb/s"."""
    overrides = cluster.get("overrides") if isinstance(cluster, dict) else None
    if not isinstance(overrides, dict):
        return cluster
    texts = [f"{key}={value}" for key, value in overrides.items() if isinstance(value, str)]
    try:
        return {**cluster, "overrides": {**overrides, **parse_overrides(texts)}}
    except InputError as error:
        raise InputError(f"{where}: overrides: {str(error).removeprefix('--override ')}") from None
