"""The catalogue: accelerators and clusters as data files; every figure has a source and a date."""

from scaling.meshes.catalog.lint import lint_cluster
from scaling.meshes.catalog.load import (
    accelerator,
    accelerator_names,
    check,
    load,
    names,
    one_host,
    warnings_of,
)
from scaling.meshes.catalog.overrides import parse_overrides

__all__ = [
    "accelerator",
    "accelerator_names",
    "check",
    "lint_cluster",
    "load",
    "names",
    "one_host",
    "parse_overrides",
    "warnings_of",
]
