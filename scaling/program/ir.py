"""The Program: the operations of one device in one training step, as plain data.

Two front ends make it (the compiled step, read; closed forms), one back end prices it.

    Program
      schedule   Kernel  Collective ... Wait  Loop(Kernel Kernel Collective Wait)  Kernel
      buffers    memory that the operations read and write: bytes and category

The operations of a block stand in the order of the compute stream. An asynchronous one
starts where it stands, on its own stream, and is over at the Wait that names it. Figures are
numbers, or numpy arrays with one leading axis over configurations; everything that prices them
broadcasts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

Number = float | np.ndarray  # one value, or one per configuration

Phase = Literal["forward", "backward", "remat", "optimizer", ""]  # "": not known
Category = Literal[
    "parameters", "gradients", "optimizer_state", "activations", "temporary", "communication",
    "pinned_host",
]  # fmt: skip
KernelKind = Literal["matmul", "grouped", "attention", "fusion", "copy", "custom"]
CollectiveKind = Literal[
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "permute", "broadcast"
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
COLLECTIVE_KINDS: tuple[CollectiveKind, ...] = get_args(CollectiveKind)
CAUSAL = 0.5  # share of the scores that a causal mask leaves
CONSTANTS = "constants"  # the name of the buffer that holds a program's constants


@dataclass(frozen=True)
class Buffer:
    """Memory that operations read and write."""

    name: str
    bytes: Number
    category: Category
    persistent: bool = False  # holds an argument, a result or constants: allocated all the time


@dataclass(frozen=True)
class Origin:
    """The part of the model that an operation comes from."""

    phase: Phase = ""
    layer: str = ""  # "layers/mlp", "embed", "head"; "": not known

    def __bool__(self) -> bool:
        return bool(self.phase or self.layer)


@dataclass(frozen=True)
class Operation:
    """Name, origin and buffers (indices) of an operation: a kernel, a collective, a wait, a loop.

    A buffer that is written may take the place of one in `over`, if nobody reads that one later.
    Profiles name what runs `inside` of an asynchronous instruction, where it has a name of its own.
    """

    name: str
    origin: Origin = Origin()
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    over: tuple[int, ...] = ()
    inside: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Kernel(Operation):
    """One operation of the compute stream.

    `dims` are what its efficiency depends on: (batch, m, n, k) of a matmul, or of a grouped one
    whose groups have their own matrices and m (or k) on average; (batch, heads, queries, keys,
    head_dim) of attention.
    """

    kind: KernelKind = "fusion"
    flops: Number = 0.0  # of matrix products, a multiply-add counts as two
    vector_flops: Number = 0.0  # of everything else
    transcendentals: Number = 0.0  # exponentials, logarithms, sines, roots among them
    bytes: Number = 0.0  # device memory read and written
    dtype: str = ""  # "bf16": what the operands of its products are; decides the peak rate
    dims: tuple[Number, ...] = ()
    asynchronous: bool = False  # on a stream of its own, until the Wait that names it
    estimate: Number | None = None  # s, by the compiler's own cost model
    host_bytes: Number = 0.0  # of the host's memory, read and written
    share: float = 1.0  # rate of its products over that of the best kernel of the chip
    issue: Number = 0.0  # s that the host takes to start it
    late: bool = False  # only when all before it is over: its launches fill the host's queue
    # Of an attention: the share of its scores that the mask leaves, heads of keys and values (0: as
    # many as of queries), head dimension of values (0: as of keys), and the library that runs it.
    visible: Number = CAUSAL
    kv_heads: Number = 0
    value_dim: Number = 0
    library: str = ""
    # What decides how long rows take that indices name (scaling.hlo.random_access), and what lies
    # between two passes of a transform (scaling.hlo.passes):
    again: Number = 0.0  # bytes beyond `bytes` if nothing is found in a cache
    spread: Number = 0.0  # bytes of the arrays that may be found there
    clashes: Number = 0.0  # clocks of updates that all wait for one address
    is_timed: bool = True  # False: no fit describes a kernel of its kind
    chain: Number = 0.0  # s of steps that wait for one another, on whatever chip
    error: float = 1.0  # factor by which published times of its kind differ from its price
    cycles: float = 0.0  # of a TPU's clock, as its compiler planned them; 0: not stated
    unknown: str = ""  # "my_kernel": a call whose time the figures above only bound from below


@dataclass(frozen=True)
class Collective(Operation):
    """One communicating instruction; several tensors that travel together are one."""

    kind: CollectiveKind = "all-reduce"
    axes: tuple[str, ...] = ()  # mesh axes in mesh order
    bytes: Number = 0.0  # nccl-tests size of one call: the full buffer, the unsharded total, ...
    dtype: str = ""
    asynchronous: bool = True
    groups: tuple[tuple[int, ...], ...] = ()  # partitions, where the axes do not say who talks:
    # groups that are those of no axes, and the (source, target) pairs of a permute that is no ring
    estimate: Number | None = None  # s, by the compiler's own cost model
    issue: Number = 0.0  # s that the host takes to start it
    part: Number = 1.0  # of the call and its time, where only a part of it runs beside something
    line: str = ""  # of the compiled program, for messages
    apart: bool = False  # of a communicator with a stream of its own


@dataclass(frozen=True)
class Wait(Operation):
    """The compute stream waits until the asynchronous operation of the same name is over."""


@dataclass(frozen=True)
class Loop(Operation):
    """A body that runs several times."""

    body: "Block" = ()
    trips: Number = 1
    bubble_trips: Number = 0  # of the trips: those without work, run for the sake of the others
    unknown: str = ""  # where it stands, "step.py:6", if nobody knows how often it runs


@dataclass(frozen=True)
class Branch(Operation):
    """One of several blocks runs; the longest is assumed where no shares are given."""

    branches: tuple["Block", ...] = ()  # in the order of the code: of a cond, false and true
    shares: tuple[float, ...] = ()  # of the runs, of each branch; (): not known
    place: str = ""  # the line of code where it stands, "step.py:6"


Block = tuple[Operation, ...]


@dataclass(frozen=True)
class Program:
    """The operations and buffers of one device in one training step."""

    name: str
    source: Literal["compiled", "analytic"]
    mesh: Mapping[str, Any]  # axis sizes, outermost first; partitions count in this order
    # (int, or int arrays over configurations of several meshes)
    schedule: Block
    buffers: tuple[Buffer, ...] = ()
    compiler_peak: int | None = None  # bytes on one device, as the compiler planned them
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    is_xla: bool = True  # compiled by XLA, or the closed form of such a program
    device_ids: tuple[int, ...] = ()  # of partition 0, 1, ...; (): partition i is device i
    module: str = field(default="", compare=False)  # name of the HLO module
    places: Mapping[str, str] = field(default_factory=dict, compare=False)  # operation -> its line
    # of code, "/opt/step.py:6", where it is known

    @cached_property
    def operations(self) -> tuple[tuple[Operation, Number], ...]:
        """Every operation but loops and branches, with its runs per step, as `operations` has."""
        return tuple(operations(self.schedule))


def placed_on(program: Program, ids: Sequence[int]) -> Program:
    """The program with partition i on device ids[i]."""
    ascending = tuple(ids) == tuple(range(len(ids)))
    return replace(program, device_ids=() if ascending else tuple(ids))


def as_float(number: Number) -> Number:
    """One value as Python's own float; an array over configurations as it is."""
    return number if isinstance(number, np.ndarray) and number.ndim else float(number)


def some(figures: Number) -> bool:
    """True if a number is not zero, or any of an array; `numpy.any` takes ten times as long."""
    return bool(figures.any() if isinstance(figures, np.ndarray) else figures)


def bodies(step: Operation) -> Iterator[Block]:
    """The blocks inside an operation."""
    if isinstance(step, Loop):
        yield step.body
    elif isinstance(step, Branch):
        yield from step.branches


def walk(block: Block, times: Number = 1) -> Iterator[tuple[Operation, Number]]:
    """Every operation with its runs per step, then those inside of it.

    All branches of a conditional are walked, by their shares where these are known.
    """
    for step in block:
        yield step, times
        runs = times * step.trips if isinstance(step, Loop) else times
        shares = iter(step.shares if isinstance(step, Branch) else ())
        for body in bodies(step):
            yield from walk(body, runs * next(shares, 1))


def with_operations(program: Program, change: Callable[[Operation], Operation]) -> Program:
    """The program with every operation but loops and branches changed, those inside of them too."""

    def changed(block: Block) -> Block:
        return tuple(map(each, block))

    def each(step: Operation) -> Operation:
        if isinstance(step, Loop):
            return replace(step, body=changed(step.body))
        if isinstance(step, Branch):
            return replace(step, branches=tuple(map(changed, step.branches)))
        return change(step)

    return replace(program, schedule=changed(program.schedule))


def operations(block: Block) -> Iterator[tuple[Operation, Number]]:
    """Every operation but loops and branches, with its runs per step; all branches are walked."""
    return ((step, n) for step, n in walk(block) if not isinstance(step, Loop | Branch))


def conditionals(block: Block) -> Iterator[tuple[Branch, Number]]:
    """Every conditional, with how often it is met in a step, those inside of branches too."""
    return ((step, n) for step, n in walk(block) if isinstance(step, Branch))


def kernels(program: Program) -> Iterator[tuple[Kernel, Number]]:
    """Every kernel with its calls per step."""
    return ((s, n) for s, n in program.operations if isinstance(s, Kernel))


def collectives(program: Program) -> Iterator[tuple[Collective, Number]]:
    """Every collective with its calls per step."""
    return ((s, n) for s, n in program.operations if isinstance(s, Collective))


def unattributed(program: Program) -> Number:
    """Fraction of kernel bytes with unknown origin; 0 if kernels move none."""
    moved = [(kernel.bytes * calls, bool(kernel.origin)) for kernel, calls in kernels(program)]
    total = sum((n for n, _ in moved), 0.0)
    unknown = sum((n for n, is_known in moved if not is_known), 0.0)
    return as_float(np.divide(unknown, np.where(np.equal(total, 0.0), 1.0, total)))
