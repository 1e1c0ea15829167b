"""Write fitted figures into the shipped tables of kernels, scaling/profiles/data."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from scaling.profiles.shipped import DATA


def write_table(name: str, fits: Mapping[str, Iterable[Any]]) -> None:
    """Write data/NAME.json anew: the fits of each chip, without fields at their default."""
    rows = [{"chip": chip} | _stated(fit) for chip, own in fits.items() for fit in own]
    (DATA / f"{name}.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _stated(fit: Any) -> dict[str, Any]:
    """The fields of a fit, and of its evidence, that are not at their default."""
    stated = {f.name: getattr(fit, f.name) for f in fields(fit)}
    stated = {f.name: stated[f.name] for f in fields(fit) if stated[f.name] != f.default}
    return {key: _stated(value) if is_dataclass(value) else value for key, value in stated.items()}
