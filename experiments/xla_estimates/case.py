"""A small program, what it must do counted by hand, and what each estimate says of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax

from experiments.foreign.work import Work
from scaling.meshes.accelerator import Accelerator


@dataclass(frozen=True)
class Count:
    """The work of one device in one call, counted by hand; None: nothing to compare."""

    flops: float | None = None  # of products alone where a program has some, else of all arithmetic
    bytes: float | None = None  # of device memory: every kernel's operands and results
    how: str = ""
    dtype: str = "bf16"  # of the products; "": there are none

    def least_time(self, chip: Accelerator) -> float:
        """Return the seconds that a chip takes at its peaks; 0 where nothing was counted."""
        products = self.flops if self.flops and self.dtype else 0.0
        return Work(products, self.bytes or 0.0, self.dtype).least_time(chip)


@dataclass(frozen=True)
class Case:
    """A program that shows one thing."""

    name: str
    shows: str
    make: Callable[[], tuple[Any, tuple[Any, ...]]]  # the function, its arguments with shardings
    count: Count
    devices: int = 1
    words: dict[str, Any] = field(default_factory=dict)  # of sc.predict_step
    donated: tuple[int, ...] = ()


@dataclass(frozen=True)
class Row:
    """The figures of a case. FLOPs, bytes and seconds of one device and call."""

    name: str
    shows: str
    how: str
    flops: float | None  # by hand
    xla_flops: float  # cost_analysis of the compiled program
    traced_flops: float  # cost_analysis of the lowered one, before XLA's passes
    our_flops: float  # products (of an attention what its mask leaves), else vector arithmetic
    bytes: float | None
    xla_bytes: float
    our_bytes: float
    least_seconds: float  # of what was counted by hand, at the chip's peaks; 0: nothing was
    xla_seconds: float  # the compiler's estimates of its instructions, each once
    xla_seconds_looped: float  # times the iterations of their loops
    unestimated: int  # kernels and collectives without an estimate
    our_seconds: float
    our_low: float
    our_high: float | None  # None: open
    network: float  # seconds of collectives in our price
    arguments: int  # by memory_analysis
    results: int
    donated: int
    temporary: int
    compiler_peak: int | None
    our_peak: float


def abstract(mesh: jax.sharding.Mesh, shape: tuple[int, ...], dtype: Any, *spec: Any) -> Any:
    """Return an array of which only the shape exists."""
    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(shape, dtype, sharding=where)
