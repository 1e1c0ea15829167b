"""One chip: dense peak rates by number format, memory, bandwidths, and what a compiler must know.

Nothing is assumed silently: a figure that the catalogue does not have is None, and `peak` and
`required` raise an error that says what is there. Figures of the CPU and launch costs come from
calibration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from scaling.meshes.errors import InputError
from scaling.meshes.provenance import SourcedValue


@dataclass(frozen=True)
class Accelerator:
    """One chip as a framework sees it. SI units; None: not known."""

    name: str
    title: str
    vendor: str
    peaks: Mapping[str, float] = field(hash=False)  # dense FLOP/s by number format, never sparse
    compute_capability: float | None = None  # NVIDIA's, 9.0
    memory: float | None = None  # bytes on the board
    usable_memory: float | None = None  # bytes that a framework can allocate
    memory_bandwidth: float | None = None  # bytes/s
    cores: int | None = None  # streaming multiprocessors
    clock: float | None = None  # Hz, boost
    base_clock: float | None = None  # Hz
    fpus_per_core: int | None = None  # fp32 lanes
    chip_cores: int | None = None  # of a TPU; `cores` are those that waves of tiles fill
    vector_lanes: int | None = None  # fp32 lanes of a chip whose `cores` are not stated
    vector_registers: int | None = None  # bytes, of one of chip_cores
    matrix_units_per_core: int | None = None  # NVIDIA's tensor cores, a TPU's MXUs
    matrix_unit_size: int | None = None  # rows, and columns, of multipliers of an MXU
    l2_cache: int | None = None  # bytes
    registers_per_core: int | None = None  # 32-bit registers
    threads_per_core: int | None = None  # resident at once
    shared_memory_per_core: int | None = None  # bytes
    shared_memory_per_block: int | None = None  # bytes, most that a kernel can opt in to
    launch_time: float | None = None  # s, one kernel; from calibration
    power: float | None = None  # W, the most that the board draws
    figures: Mapping[str, SourcedValue] = field(default_factory=dict, hash=False)  # name -> source

    def peak(self, dtype: str) -> float:
        """Dense peak FLOP/s of `dtype`; InputError names the formats that the chip has."""
        if dtype in self.peaks:
            return self.peaks[dtype]
        formats = ", ".join(self.peaks) or "none yet: run `scaling calibrate`"
        raise InputError(f"{self.name} has no peak rate for {dtype!r}; known: {formats}")

    @property
    def usual_format(self) -> str | None:
        """bf16, or fp16 or fp32 on chips that do not multiply it; None: none of them is known."""
        return next((dtype for dtype in ("bf16", "fp16", "fp32") if dtype in self.peaks), None)

    def required(self, name: str) -> float:
        """The figure `name`; InputError if it is not known."""
        value = getattr(self, name)
        if value is None:
            raise InputError(
                f"{self.name} has no figure {name!r}; `scaling calibrate` measures this machine, "
                "a TOML file of your own can state it with its source"
            )
        return value


FIGURE_NAMES = tuple(
    f.name
    for f in fields(Accelerator)
    if f.name not in ("name", "title", "vendor", "peaks", "figures")
)


def peak_name(dtype: str) -> str:
    """Name under which the source of a peak rate is kept in `figures`."""
    return f"peak_{dtype}"


def with_figures(accelerator: Accelerator, figures: Mapping[str, SourcedValue]) -> Accelerator:
    """The chip with some figures and peak rates (`peak_name`) replaced, their sources too."""
    peaks, values, prefix = dict(accelerator.peaks), dict[str, Any](), peak_name("")
    for name, figure in figures.items():
        if name.startswith(prefix):
            peaks[name.removeprefix(prefix)] = float(figure.value)
        else:
            values[name] = figure.value
    sources = {**accelerator.figures, **figures}
    return replace(accelerator, **values, peaks=peaks, figures=sources)
