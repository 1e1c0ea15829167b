"""Reads figures.toml: the unit of each figure, whether it is whole, and its plausible range."""

import math
from dataclasses import dataclass, replace

from scaling.meshes.accelerator import peak_name
from scaling.meshes.reading import package_toml, read
from scaling.meshes.units import Unit

# Formats in which chips of the catalogue multiply, or others may.
FORMATS = ("bf16", "fp16", "fp8", "fp4", "int8", "int4", "int32", "tf32", "fp32", "fp64")
PEAKS = {peak_name(dtype): dtype for dtype in FORMATS}


@dataclass(frozen=True)
class Figure:
    """One kind of figure, in SI units."""

    unit: Unit = ""
    whole: bool = False
    low: float = 0.0  # plausible figures lie between the two, which are plausible too
    high: float = math.inf
    source: str = ""  # what the two are

    def times(self, count: int) -> "Figure":
        """The sum of `count` such figures."""
        return replace(self, low=count * self.low, high=count * self.high)


@dataclass(frozen=True)
class _Schema:
    figures: dict[str, Figure]
    links: dict[str, Figure]


_SCHEMA = read(_Schema, package_toml("scaling.meshes.catalog", "figures.toml"), "figures.toml")
FIGURES, LINKS = _SCHEMA.figures, _SCHEMA.links


def figure(name: str) -> Figure:
    """The entry of the figure `name`; a ratio of any value for a name that has no entry."""
    return FIGURES.get("peak" if name.startswith(peak_name("")) else name, Figure())
