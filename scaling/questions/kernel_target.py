"""Where a kernel runs: a chip, its memory or another one, a link, a number of devices."""

from dataclasses import dataclass

from scaling.meshes.accelerator import Accelerator
from scaling.profiles.io import vector_peak
from scaling.questions.answer import Input
from scaling.questions.workloads import Work
from scaling.simulate.kernels import WIDER, peak_rate


@dataclass(frozen=True)
class KernelTarget:
    """Where a kernel runs."""

    chip: Accelerator  # its bandwidth may be that of another memory
    dtype: str  # of the products
    devices: int = 1  # that the work is divided over
    link: float | None = None  # bytes/s over which weights come; None: they lie in the memory
    memory: str = "memory bandwidth"  # what the bandwidth is of

    @property
    def vector_rate(self) -> float:
        """Operations per second of all vector lanes, one per lane and cycle."""
        return vector_peak(self.chip) / 2  # the peak counts a multiply-add as two


def bandwidth_of(place: KernelTarget) -> Input:
    """Return W, the bandwidth of the memory that the bytes are read from."""
    return Input("W", place.chip.required("memory_bandwidth"), "bytes/s", place.memory)


def peak_of(work: Work, place: KernelTarget) -> Input:
    """Return C, the peak rate that binds the FLOPs: of products, or of vector lanes."""
    if work.is_vector:
        return Input("C", place.vector_rate, "FLOP/s", "vector lanes, an operation per cycle")
    return peak_input(place.chip, place.dtype)


def peak_input(chip: Accelerator, dtype: str) -> Input:
    """Return C, the dense peak of a format; what a chip has no units for says whose peak it is."""
    units = dtype if dtype in chip.peaks else WIDER.get(dtype, dtype)
    meaning = f"dense {units} peak" + f", without units for {dtype}" * (units != dtype)
    return Input("C", peak_rate(chip, dtype), "FLOP/s", meaning)
