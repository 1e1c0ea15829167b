"""The catalogue: accelerators and clusters as data files; every figure has a source and a date."""

from scaling.meshes.catalog.lint import lint_cluster as lint_cluster
from scaling.meshes.catalog.load import accelerator as accelerator
from scaling.meshes.catalog.load import accelerator_names as accelerator_names
from scaling.meshes.catalog.load import check as check
from scaling.meshes.catalog.load import load as load
from scaling.meshes.catalog.load import names as names
from scaling.meshes.catalog.load import one_host as one_host
from scaling.meshes.catalog.load import warnings_of as warnings_of
from scaling.meshes.catalog.overrides import parse_overrides as parse_overrides
