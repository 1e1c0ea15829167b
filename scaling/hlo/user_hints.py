"""What the caller says about a program: how often loops run, what kernels do.

    trips    {"while.8": 512}            a loop by the name of its instruction,
             {"step.py:6": 512}          by the line of code where it stands,
             {"decode/while": 512}       or by a part of its name in the traced function
    kernels  {"mha_forward": Work(...)}  a custom call by the name of its kernel or of its target
             {"mosaic_gpu": "local"}     no communication, though its target may communicate

A key of `trips` is for loops whose number of iterations the compiler does not know. Where several
keys name one loop or call, an exact name goes before a part of it, then the longest counts.
"""

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

from scaling.hlo.custom_calls import TRITON, call_target
from scaling.hlo.parse import Instruction
from scaling.meshes.catalog.figures import FORMATS
from scaling.meshes.errors import InputError, check_keys

KERNEL_NAME = re.compile(r'\bname = "([^"]*)"')  # in the configuration of a Triton kernel
LARGEST = 1e30  # FLOPs or bytes: sums of such numbers are finite
MOST_TRIPS = 2.0**53  # up to which a float counts exactly
LOCAL = "local"
SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Work:
    """What one call of a kernel does.

    The `flops` are those of matrix products in the format `dtype`; without one they are vector
    arithmetic. `bytes` are read and written in the device's memory; None: operands and results,
    once each.
    """

    flops: float = 0.0
    bytes: float | None = None
    dtype: str = ""  # "bf16"
    transcendentals: float = 0.0

    def __post_init__(self) -> None:
        for name in ("flops", "bytes", "transcendentals"):
            value = getattr(self, name)
            if value is not None:
                _check_number(value, f"Work({name}=...)")
                object.__setattr__(self, name, float(value))
        if not isinstance(self.dtype, str):
            raise InputError(f"Work(dtype={self.dtype!r}): write a number format, such as 'bf16'")
        if self.dtype:
            check_keys([self.dtype], FORMATS, "Work(dtype=...)", "number format")


KernelWork = Work | Literal["local"]


@dataclass
class UserHints:
    """The caller's answers, and which of them were used."""

    trips: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, KernelWork] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    loops: dict[str, None] = field(default_factory=dict)  # asked for, in the caller's words
    calls: dict[str, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, trips in self.trips.items():
            _check_name(name, "trips")
            _check_number(trips, f"trips: {name!r}", MOST_TRIPS)
        for name, work in self.kernels.items():
            _check_name(name, "kernels")
            if not isinstance(work, Work) and work != LOCAL:
                raise InputError(
                    f"kernels: {name!r} is given {work!r}; write Work(flops=..., dtype='bf16') "
                    f"or {LOCAL!r}, for a kernel that talks to no other device"
                )

    def trips_of(self, loop: Instruction, place: str) -> float | None:
        """How often a loop runs; None: not said."""
        self.loops[f"{loop.name} ({place or loop.op_name})"] = None
        # the end of a place by whole names of folders: `train/step.py:6`
        named = [k for k in self.trips if k in (loop.name, place) or place.endswith(f"/{k}")]
        key = self._best(named, [k for k in self.trips if k in loop.op_name])
        return None if key is None else float(self.trips[key])

    def work_of(self, call: Instruction) -> KernelWork | None:
        """What is said about a custom call; None: nothing."""
        self.calls[kernel_name(call)] = None
        names = (kernel_name(call), call_target(call), call.name)
        named = [k for k in self.kernels if k in names]
        key = self._best(named, [k for k in self.kernels if k in call_target(call)])
        return None if key is None else self.kernels[key]

    def _best(self, exact: Sequence[str], partial: Sequence[str]) -> str | None:
        """The longest key that names it exactly, else the longest that is a part of its name."""
        self.used |= {*exact, *partial}
        return max(exact or partial, key=len, default=None)

    def check_all_used(self) -> None:
        """Raise InputError if something was said about what the program does not have."""
        parts = (
            (self.trips, self.loops, "trips", "loop"),
            (self.kernels, self.calls, "kernels", "kernel"),
        )
        for given, known, argument, what in parts:
            unused = [key for key in given if key not in self.used]
            if unused:
                names = ", ".join(list(known)[:SHOWN]) or "none"
                raise InputError(
                    f"{argument}: the program has no {what} {unused[0]!r} that is not known; "
                    f"there are: {names}"
                )


def kernel_name(call: Instruction) -> str:
    """The name of the kernel that a custom call runs, or its target."""
    target = call_target(call)
    named = KERNEL_NAME.search(call.attribute("backend_config") or "") if target == TRITON else None
    return named[1] if named else target


def _check_name(name: Any, argument: str) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(f"{argument}: {name!r} is no name; write the one that the page shows")


def _check_number(value: Any, where: str, largest: float = LARGEST) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's are Real, too
    if not is_number or not 0 <= value <= largest:  # nor NaN
        raise InputError(f"{where} is {reprlib.repr(value)}; write a number from 0 to {largest:g}")
