"""Accelerator files of the catalogue (accelerators/*.toml).

name = "my-gpu"
vendor = "NVIDIA"
[peaks]
bf16 = "165TFLOP/s"          # dense
[figures]
memory = "24GiB"
memory_bandwidth = { value = 1.008e12, source = "a key of [sources]" }
"""

from dataclasses import dataclass, replace
from typing import Any

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, peak_name, with_figures
from scaling.meshes.catalog.figures import CatalogueFile, figure
from scaling.meshes.errors import check_keys
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.reading import read

TABLES = ("peaks", "figures", "sources")


@dataclass(frozen=True)
class AcceleratorFile:
    """The keys of accelerators/*.toml before its tables: TABLES."""

    name: str
    vendor: str
    title: str = ""


def read_accelerator(file: CatalogueFile) -> tuple[Accelerator | None, dict[str, SourcedValue]]:
    """The accelerator, None if there are problems, and all figures that could be read."""
    peaks, figures = file.table("peaks"), file.table("figures")
    top = {key: value for key, value in file.data.items() if key not in TABLES}
    facts = file.attempt(read, AcceleratorFile, top, file.where)
    file.attempt(check_keys, figures, FIGURE_NAMES, f"{file.where}: figures")
    labelled = [(peak_name(dtype), f"peaks.{dtype}", value) for dtype, value in peaks.items()]
    labelled += [(name, f"figures.{name}", value) for name, value in figures.items()]
    stated = {}
    for name, label, value in labelled:
        read_figure = file.attempt(file.figure, value, f"{file.where}: {label}", name)
        if read_figure is not None:
            stated[name] = read_figure
    if facts is None or file.messages:
        return None, stated
    chip = Accelerator(facts.name, facts.title or facts.name, facts.vendor, peaks={})
    whole: dict[str, Any] = {
        name: int(value.value) for name, value in stated.items() if figure(name).whole
    }
    return replace(with_figures(chip, stated), **whole), stated
