"""Accelerator files of the catalogue (accelerators/*.toml), and tables that all files share.

name = "my-gpu"
vendor = "NVIDIA"
[peaks]
bf16 = "165TFLOP/s"          # dense
[figures]
memory = "24GiB"
memory_bandwidth = { value = 1.008e12, source = "a key of [sources]" }
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scaling.meshes.accelerator import FIGURE_NAMES, Accelerator, peak_name
from scaling.meshes.errors import Problems, check_keys
from scaling.meshes.provenance import Source, SourcedValue, ValueEntry, file_itself, resolve
from scaling.meshes.reading import convert, read
from scaling.meshes.units import Unit

INTEGER_FIGURES = (
    "cores",
    "fpus_per_core",
    "l2_cache",
    "registers_per_core",
    "threads_per_core",
    "shared_memory_per_core",
    "shared_memory_per_block",
)
UNITS: dict[str, Unit] = {  # of an accelerator's figures; the others are counts
    **dict.fromkeys(("memory", "usable_memory", "l2_cache"), "B"),
    **dict.fromkeys(("shared_memory_per_core", "shared_memory_per_block"), "B"),
    **{"memory_bandwidth": "B/s", "clock": "Hz", "launch_time": "s"},
}


@dataclass(frozen=True)
class AcceleratorFile:
    """One accelerators/*.toml."""

    name: str
    vendor: str
    title: str = ""
    peaks: dict[str, ValueEntry] = field(default_factory=dict)  # dense FLOP/s by number format
    figures: dict[str, ValueEntry] = field(default_factory=dict)  # FIGURE_NAMES
    sources: dict[str, Source] = field(default_factory=dict)


def accelerator_from(data: Any, where: str) -> Accelerator:
    """The accelerator that a file's `data` describes.

    Raises:
        InputError: all that is wrong with it, a line each.
    """
    problems = Problems()
    accelerator = read_accelerator(data, where, problems)[0]
    problems.raise_any()
    assert accelerator is not None
    return accelerator


def read_accelerator(
    data: Any, where: str, problems: Problems
) -> tuple[Accelerator | None, dict[str, SourcedValue]]:
    """The accelerator, None if there are problems, and all figures that could be read."""
    sources = read_sources(data, where, problems)
    tables = ("peaks", "figures")
    entries = {name: read_table(data, name, f"{where}: {name}", problems) for name in tables}
    top = {**data, "sources": {}, "peaks": {}, "figures": {}}
    file = problems.attempt(read, AcceleratorFile, top, where)
    problems.attempt(check_keys, entries["figures"], FIGURE_NAMES, f"{where}: figures")
    figures: dict[str, SourcedValue] = {}
    for table, of_table in entries.items():
        for name, entry in of_table.items():
            unit: Unit = "FLOP/s" if table == "peaks" else UNITS.get(name, "")
            label = f"{where}: {table}.{name}"
            value = problems.attempt(_value, entry, sources, label, unit)
            if value is not None:
                figures[peak_name(name) if table == "peaks" else name] = value
    if file is None or problems.messages:
        return None, figures
    numbers: dict[str, Any] = {
        name: int(figures[name].value) if name in INTEGER_FIGURES else figures[name].value
        for name in entries["figures"]
    }
    accelerator = Accelerator(
        name=file.name,
        title=file.title or file.name,
        vendor=file.vendor,
        peaks={dtype: figures[peak_name(dtype)].value for dtype in entries["peaks"]},
        figures=figures,
        **numbers,
    )
    return accelerator, figures


def read_table(data: Mapping[str, Any], key: str, where: str, problems: Problems) -> dict[str, Any]:
    """The table `key`; empty where it is missing or none."""
    table = data.get(key, {})
    if not isinstance(table, Mapping):
        problems.messages.append(f"{where}: expected a table of keys, got {table!r}")
        return {}
    return dict(table)


def read_sources(data: Mapping[str, Any], where: str, problems: Problems) -> dict[str, Source]:
    """[sources], with an empty one in place of each that cannot be read."""
    table = read_table(data, "sources", f"{where}: sources", problems)
    entries = {
        key: problems.attempt(read, Source, value, f"{where}: sources.{key}")
        for key, value in table.items()
    }
    return {key: source or Source("") for key, source in entries.items()} | file_itself(where)


def _value(data: Any, sources: Mapping[str, Source], where: str, unit: Unit) -> SourcedValue:
    """The figure that a file writes for a key."""
    return resolve(convert(ValueEntry, data, where), sources, where, unit)
