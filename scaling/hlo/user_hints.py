"""What the caller says about a program: how often loops and branches run, what kernels do.

    trips    {"while.8": 512}            a loop by the name of its instruction,
             {"step.py:6": 512}          by the line of code where it stands,
             {"decode/while": 512}       or by a part of its name in the traced function
    branches {"soap.py:12": 0.1}         a conditional likewise: the share of its runs in which the
                                         condition is true,
             {"soap.py:12": "every=10"}  how many runs there are for one in which it is true,
             {"route.py:7": [0.2, 0.8]}  or the share of each branch, in the order of the code
    kernels  {"mha_forward": Work(...)}  a custom call by the name of its kernel or of its target
             {"mosaic_gpu": "local"}     no communication, though its target may communicate

A key of `trips` is for loops whose number of iterations the compiler does not know. Where several
keys name one loop or call, an exact name goes before a part of it, then the longest counts.
"""

import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Literal

import numpy as np

from scaling.hlo.custom_calls import TRITON, call_target
from scaling.hlo.parse import Instruction
from scaling.hlo.shapes import arrays
from scaling.meshes.catalog.figures import FORMATS
from scaling.meshes.errors import InputError, check_keys

KERNEL_NAME = re.compile(r'\bname = "([^"]*)"')  # in the configuration of a Triton kernel
LARGEST = 1e30  # FLOPs or bytes: sums of such numbers are finite
MOST_TRIPS = 2.0**53  # up to which a float counts exactly
LOCAL = "local"
EVERY = re.compile(r"every=(\d+\.?\d*)")
SUM_ERROR = 1e-3  # of shares that are written with three digits
MOSAIC = "mosaic_gpu"  # how the target of its kernels begins
SHOWN = 5  # names in a message
OPTIONS = {"trips": "--trips", "kernels": "--local", "branches": "--branches"}  # in messages


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
Shares = float | str | Sequence[float]


@dataclass(frozen=True)
class TracedKernel:
    """A kernel as it stands in a traced step, of which a compiled program holds only code."""

    name: str  # as in a compiled program, where it has one there
    operands: tuple[tuple[int, ...], ...]  # dimensions on one device
    results: tuple[tuple[int, ...], ...]
    work: Work
    is_complete: bool  # False: it does as much at least
    is_local: bool  # it reaches no other device


@dataclass
class UserHints:
    """The caller's answers, and which of them were used."""

    trips: Mapping[str, float] = field(default_factory=dict)
    kernels: Mapping[str, KernelWork] = field(default_factory=dict)
    branches: Mapping[str, Shares] = field(default_factory=dict)
    traced: Sequence[TracedKernel] = ()
    used: set[tuple[str, str]] = field(default_factory=set)  # argument and key
    asked: dict[str, dict[str, None]] = field(  # argument -> names, in the caller's words
        default_factory=lambda: {"trips": {}, "kernels": {}, "branches": {}}
    )

    def __post_init__(self) -> None:
        for name, trips in self.trips.items():
            _check_name(name, "trips")
            _check_number(trips, f"--trips: {name!r}", MOST_TRIPS)
        for name, work in self.kernels.items():
            _check_name(name, "kernels")
            if not isinstance(work, Work) and work != LOCAL:
                raise InputError(
                    f"--local: {name!r} is given {work!r}; write Work(flops=..., dtype='bf16') "
                    f"or {LOCAL!r}, for a kernel that talks to no other device"
                )
        for name, shares in self.branches.items():
            _check_name(name, "branches")
            _shares(shares, f"--branches: {name!r}")

    def trips_of(self, loop: Instruction, place: str) -> float | None:
        """How often a loop runs; None: not said."""
        key = self._key_of("trips", self.trips, loop, place)
        return None if key is None else float(self.trips[key])

    def shares_of(self, conditional: Instruction, place: str) -> tuple[float, ...]:
        """Of the runs of a conditional the share of each branch; (): not said.

        Raises:
            InputError: shares of another number of branches.
        """
        key = self._key_of("branches", self.branches, conditional, place)
        if key is None:
            return ()
        found, count = _shares(self.branches[key], f"--branches: {key!r}"), len(conditional.blocks)
        if len(found) != count:
            raise InputError(
                f"--branches: {key!r} has {count} branches, and {self.branches[key]!r} says how "
                f"often {len(found)} run: write {count} shares that sum to 1"
            )
        return found

    def _key_of(
        self, argument: str, given: Mapping[str, Any], instruction: Instruction, place: str
    ) -> str | None:
        """The key that names a loop or a conditional."""
        self.asked[argument][f"{instruction.name} ({place or instruction.op_name})"] = None
        # the end of a place by whole names of folders: `train/step.py:6`
        named = [k for k in given if k in (instruction.name, place) or place.endswith(f"/{k}")]
        return self._best(argument, named, [k for k in given if k in instruction.op_name])

    def work_of(self, call: Instruction) -> KernelWork | None:
        """What is said about a custom call; None: nothing."""
        self.asked["kernels"][kernel_name(call)] = None
        names = (kernel_name(call), call_target(call), call.name)
        named = [k for k in self.kernels if k in names]
        parts = [k for k in self.kernels if k in call_target(call)]
        key = self._best("kernels", named, parts)
        return None if key is None else self.kernels[key]

    def traced_kernel(self, call: Instruction) -> TracedKernel | None:
        """The kernel that a custom call runs; None: none, or calls that differ look alike.

        Mosaic's have no name there, and may have scratch memory after their operands and results.
        """
        target = call_target(call)
        if target != TRITON and not target.startswith(MOSAIC):
            return None
        operands = [operand.dims for o in call.operands for operand in arrays(o.shape)]
        results = [result.dims for result in arrays(call.shape)]
        alike = {
            (kernel.work, kernel.is_complete, kernel.is_local): kernel
            for kernel in self.traced
            if (target != TRITON or kernel.name == kernel_name(call))
            and [*kernel.operands] == operands[: len(kernel.operands)]
            and [*kernel.results] == results[: len(kernel.results)]
        }
        return alike.popitem()[1] if len(alike) == 1 else None

    def _best(self, argument: str, exact: Sequence[str], partial: Sequence[str]) -> str | None:
        """The longest key that names it exactly, else the longest that is a part of its name."""
        self.used |= {(argument, key) for key in (*exact, *partial)}
        return max(exact or partial, key=len, default=None)

    def check_all_used(self) -> None:
        """Raise InputError if something was said about what the program does not have."""
        parts: tuple[tuple[str, Mapping[str, Any], str], ...] = (
            ("trips", self.trips, "loop of unknown length"),
            ("kernels", self.kernels, "custom kernel"),
            ("branches", self.branches, "conditional"),
        )
        for argument, given, what in parts:
            unused = [key for key in given if (argument, key) not in self.used]
            if unused:
                names = ", ".join(list(self.asked[argument])[:SHOWN]) or "none"
                raise InputError(
                    f"{OPTIONS[argument]}: the program has no {what} {unused[0]!r}; there are: "
                    f"{names}"
                )


def kernel_name(call: Instruction) -> str:
    """The name of the kernel that a custom call runs, or its target."""
    target = call_target(call)
    named = KERNEL_NAME.search(call.attribute("backend_config") or "") if target == TRITON else None
    return named[1] if named else target


def _check_name(name: Any, argument: str) -> None:
    if not isinstance(name, str) or not name:
        raise InputError(
            f"{OPTIONS[argument]}: {name!r} is no name; write the one that the page shows"
        )


def _shares(given: Any, where: str) -> tuple[float, ...]:
    """The share of each branch; a single one is of the runs whose condition is true."""
    if isinstance(given, str):
        every = EVERY.fullmatch(given)
        if not every or not float(every[1]) >= 1:
            raise InputError(f"{where} is {given!r}; write every=10 for one run in ten")
        given = 1 / float(every[1])
    if isinstance(given, Sequence | np.ndarray):
        for share in given:
            _check_number(share, where, 1)
        if not math.isclose(sum(given), 1, abs_tol=SUM_ERROR):
            raise InputError(f"{where}: {reprlib.repr(given)} sums to {sum(given):g}, not to 1")
        return tuple(float(share) / float(sum(given)) for share in given)
    _check_number(given, where, 1)
    return 1 - float(given), float(given)


def _check_number(value: Any, where: str, largest: float = LARGEST) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # NumPy's are Real, too
    if not is_number or not 0 <= value <= largest:  # nor NaN
        raise InputError(f"{where} is {reprlib.repr(value)}; write a number from 0 to {largest:g}")
