"""Accelerator files of the catalogue (accelerators/*.toml).

name = "my-gpu"
vendor = "NVIDIA"
[peaks]
bf16 = "165TFLOP/s"          # dense
[figures]
memory = "24GiB"
memory_bandwidth = { value = 1.008e12, source = "a key of [sources]" }
"""

from dataclasses import dataclass
from typing import Any

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, peak_name
from scaling.meshes.catalog.entries import figure_from, read_sources, read_table
from scaling.meshes.catalog.schema import figure
from scaling.meshes.errors import Problems, check_keys
from scaling.meshes.provenance import SourcedValue
from scaling.meshes.reading import read

TABLES = ("peaks", "figures", "sources")


@dataclass(frozen=True)
class AcceleratorFile:
    """The keys of accelerators/*.toml before its tables: TABLES."""

    name: str
    vendor: str
    title: str = ""


def read_accelerator(
    data: Any, where: str, problems: Problems
) -> tuple[Accelerator | None, dict[str, SourcedValue]]:
    """The accelerator, None if there are problems, and all figures that could be read."""
    sources = read_sources(data, where, problems)
    peaks, figures = (read_table(data, name, where, problems) for name in ("peaks", "figures"))
    top = {key: value for key, value in data.items() if key not in TABLES}
    file = problems.attempt(read, AcceleratorFile, top, where)
    problems.attempt(check_keys, figures, FIGURE_NAMES, f"{where}: figures")
    labelled = [(peak_name(dtype), f"peaks.{dtype}", value) for dtype, value in peaks.items()]
    labelled += [(name, f"figures.{name}", value) for name, value in figures.items()]
    stated = {}
    for name, label, value in labelled:
        read_figure = problems.attempt(figure_from, value, sources, f"{where}: {label}", name)
        if read_figure is not None:
            stated[name] = read_figure
    if file is None or problems.messages:
        return None, stated
    numbers: dict[str, Any] = {
        name: int(stated[name].value) if figure(name).whole else stated[name].value
        for name in figures
    }
    accelerator = Accelerator(
        name=file.name,
        title=file.title or file.name,
        vendor=file.vendor,
        peaks={dtype: stated[peak_name(dtype)].value for dtype in peaks},
        figures=stated,
        **numbers,
    )
    return accelerator, stated
