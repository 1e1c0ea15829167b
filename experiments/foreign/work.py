"""What one device must do in one call of a program, counted by hand, and the time that it bounds.

time >= max(FLOPs / peak rate of the chip, bytes / bandwidth of its memory)
"""

from dataclasses import dataclass

from scaling.meshes.accelerator import Accelerator
from scaling.program.ir import Kernel, Number


@dataclass(frozen=True)
class Work:
    """Counts of one device and call."""

    flops: float = 0.0  # of matrix products and convolutions; a multiply-add counts as two
    bytes: float = 0.0  # of device memory that cannot but be read or written
    dtype: str = "bf16"  # of the products' operands; float32 is multiplied as tf32 by default
    state: float = 0.0  # bytes of weights and the optimizer's moments; 0: not counted

    def least_time(self, chip: Accelerator) -> float:
        """Return the seconds that a chip takes at its peaks; 0 where nothing was counted."""
        products = self.flops / chip.peak(self.dtype) if self.flops else 0.0
        return max(products, self.bytes / chip.required("memory_bandwidth"))


def product_flops(kernel: Kernel) -> Number:
    """FLOPs of a kernel's products; of an attention those that its mask leaves."""
    return kernel.flops * (kernel.visible if kernel.kind == "attention" else 1.0)
