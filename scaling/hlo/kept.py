"""Compiled texts that come with the package: those of a compiler that few readers have.

scaling/hlo/kept/VERSIONS/NAME.hlo.gz      made by `python -m experiments.tpu_matmuls`
"""

import gzip
from collections.abc import Mapping
from functools import cache

from scaling.meshes.reading import PACKAGE

ENDING = ".hlo.gz"
KEPT_CHIP = "tpu-v5e"  # that they were compiled for


@cache
def kept_texts() -> Mapping[str, str]:
    """Return the text of each module by its name."""
    folders = (folder for folder in (PACKAGE / "hlo" / "kept").iterdir() if folder.is_dir())
    files = (file for folder in folders for file in folder.iterdir())
    found = {f.name.removesuffix(ENDING): f for f in files if f.name.endswith(ENDING)}
    return {name: gzip.decompress(file.read_bytes()).decode() for name, file in found.items()}
