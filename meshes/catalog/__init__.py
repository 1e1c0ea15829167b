"""The catalogue: accelerators and clusters as data files; every figure has a source and a date."""

from scaling.meshes.catalog.checks import check
from scaling.meshes.catalog.load import accelerator, accelerator_names, doubts, load, names
from scaling.meshes.catalog.overrides import parse_overrides

__all__ = [
    "accelerator",
    "accelerator_names",
    "check",
    "doubts",
    "load",
    "names",
    "parse_overrides",
]
