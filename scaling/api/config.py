"""The resolved run.json of a run, each value with where it came from."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scaling.api.inputs import MeshLike
from scaling.api.public_api import entrance
from scaling.api.runs import RunLike, Settings, load_run, parse_settings
from scaling.meshes.reading import read_json
from scaling.meshes.result import Result
from scaling.meshes.shape import MeshShape
from scaling.models.presets import preset
from scaling.run import Batch, Run, run_dict
from scaling.run.parallelism.rules import with_zero_stage
from scaling.run.recipes import file_of

REQUIRED = ("name", "batch.global_batch", "batch.seq_len")  # values of run.json without a default
WIDTH = 60  # of a value, from which its origin no longer stands in line with the others


@dataclass(frozen=True, repr=False)
class Config(Result):
    """A whole run.json; prints as a value a line, with its origin."""

    document: dict[str, Any]
    origins: tuple[tuple[str, str, str], ...]  # dotted key, JSON value, origin

    def to_dict(self) -> dict[str, Any]:
        """Return the run.json, without the origins."""
        return self.document

    def line(self) -> str:
        return f"run.json of {self.document['name']}"

    def __str__(self) -> str:
        width = min(WIDTH, max(len(f"{key} = {value}") for key, value, _ in self.origins))
        return "\n".join(
            f"{f'{key} = {value}'.ljust(width)}  # {origin}" for key, value, origin in self.origins
        )


@entrance
def config(
    run: RunLike,
    mesh: MeshLike | None = None,
    *,
    device_order: str | Iterable[str] | None = None,
    set: Settings | None = None,
) -> Config:
    """Return the whole description of a run, each value with where it came from.

    >>> import scaling as sc
    >>> found = sc.config("tiny", set={"batch.seq_len": 16})
    >>> next(origin for origin in found.origins if origin[0] == "batch.seq_len")
    ('batch.seq_len', '16', '--set batch.seq_len')

    Args:
        run: recipe name, `file.py:function`, run.json, its folder, or a Hugging Face config.json.

    Raises:
        InputError: unknown names, keys or axes (the nearest one is named).
    """
    loaded = load_run(run, mesh=mesh, device_order=device_order, set=set)
    document = run_dict(with_zero_stage(loaded, loaded.mesh or MeshShape()))
    replaced = [name for name, value in (("mesh", mesh), ("device_order", device_order)) if value]
    source, stated, has_preset = _source(str(run), run_dict(loaded))
    changed = parse_settings(set or ()).keys()
    rows = []
    for key, value in leaves(document):
        tables = {key, *(key.rsplit(".", n)[0] for n in range(1, key.count(".") + 1))}
        if option := next((name for name in replaced if name in tables), None):
            origin = f"--{option.replace('_', '-')}"
        elif settings := tables & changed:
            origin = f"--set {max(settings, key=len)}"
        elif key.startswith("model.") and "model.preset" in changed:
            origin = "--set model.preset"
        elif tables & stated:
            origin = source
        else:
            origin = "preset" if key.startswith("model.") and has_preset else "default"
        rows.append((key, json.dumps(value), origin))
    return Config(document, tuple(rows))


def _source(name: str, document: Mapping[str, Any]) -> tuple[str, set[str], bool]:
    """Return the place that a run is read from, the keys it states, and if its model is a preset.

    A recipe or a function states what differs from the default.
    """
    path = file_of(name)
    data = read_json(path) if path is not None and path.suffix == ".json" else None
    if data is not None and not ("model_type" in data and "batch" not in data):
        model = data.get("model")
        return str(path), set(dict(leaves(data))), isinstance(model, dict) and "preset" in model
    model = preset("tiny" if path is not None else name)
    defaults = dict(leaves(run_dict(Run("", model, Batch(1, 1)))))
    chosen = {
        key
        for key, value in leaves(document)
        if key in REQUIRED or key not in defaults or value != defaults[key]
    }
    if data:  # a Hugging Face config.json, which describes a model and nothing else
        return str(path), {"model"}, False
    if path is not None:
        return name, chosen | {"model"}, False
    return f"recipe {name}", chosen, True


def leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) for every value of run.json that is not a table with keys."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
