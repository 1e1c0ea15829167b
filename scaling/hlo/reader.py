"""A Program from a compiled module: the schedule as it stands, every operation with its figures.

Nothing is guessed. An unknown instruction that may communicate is an error with its line. Warnings
name groups of devices that lie along no mesh axes (they keep their device ids). Loops of which the
compiler does not know the number of iterations count once, calls of unknown functions by their
bytes, unless the caller says more (`scaling.hlo.user_hints`); such operations have `unknown` set.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scaling.hlo.attribution import origins
from scaling.hlo.buffer_categories import with_categories
from scaling.hlo.buffers import Assignment, assign
from scaling.hlo.collectives import communication_of
from scaling.hlo.extent import check_extent
from scaling.hlo.library_work import LibraryWork, library_work
from scaling.hlo.op_cost import QUEUE, unknown_calls, work_of
from scaling.hlo.parse import LINE, Computation, Instruction, Module, UnknownHlo, parse_module
from scaling.hlo.source_lines import short, source_line
from scaling.hlo.user_hints import (
    KernelWork,
    Shares,
    TracedKernel,
    UserHints,
    Work,
    kernel_name,
)
from scaling.meshes.errors import InputError, is_count
from scaling.program.ir import (
    Branch,
    Collective,
    Kernel,
    Loop,
    Operation,
    Origin,
    Program,
    Wait,
    operations,
)
from scaling.program.versions import compiler_versions

# s, the copy of a condition to the host, 5 to 7 us (Wu and others, DualPath, arXiv 2602.21548, 5.2,
# 2026), and the launch of the next kernel, 2.7 us: a scan of three tiny kernels takes 8.05 us an
# iteration (QuantEcon/lecture-python-programming, pull request 437, JAX 0.8.1, chip not stated,
# 2025-11-27). Nobody timed both together: hence the error.
HOST_READ, HOST_READ_ERROR = 9e-6, 2.5
MOST_RUNS = 1e18  # of an operation, chosen by this project: 30 years of a nanosecond each
# Products of kernels that people write, over the best kernel (734 of an H100's 989 TFLOP/s):
# attention of 4096 tokens there reaches 368 (FlashAttention-2), 389 (Triton), 609 (cuDNN) and 638
# (FlashAttention-3; arXiv 2407.08608, figure 5), a grouped product in Triton 771 (marin, PR 4297).
WRITTEN_SHARE = 0.66  # geometric mean of the four
WRITTEN_ERROR = 1.5  # from two thirds of the mean's rate, 324, to 1.5 times it, 727
# What lines that contradict each other, or JSON of another form, raise as they are read.
CONTRADICTIONS = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError


@dataclass(frozen=True)
class Reading:
    """The parts of one module that its operations are made from."""

    module: Module
    mesh: Mapping[str, int]
    origins: Mapping[Instruction, Origin]
    memory: Assignment
    ungrouped: list[Collective]  # of which the groups of devices are those of no axes
    computations: dict[str, str]  # kernel or collective -> name of its computation
    places: dict[str, str]  # operation -> its line of code
    hints: UserHints


def read_program(
    text: str,
    mesh: Mapping[str, int],
    name: str,
    peak: int | None = None,
    *,
    trips: Mapping[str, float] | None = None,
    kernels: Mapping[str, KernelWork] | None = None,
    branches: Mapping[str, Shares] | None = None,
    traced: Sequence[TracedKernel] = (),
) -> Program:
    """The Program in the text of a compiled, scheduled module.

    Args:
        mesh: axis sizes, outermost first; device numbers count in this order.
        peak: bytes on one device at the fullest moment, as the compiler planned them; arguments
            and results that stay in the host's memory among them.
        trips: of loops whose count the compiler does not know (`scaling.hlo.user_hints`).
        kernels: the work of custom calls, or "local" for one that does not communicate.
        branches: of conditionals the shares of their runs that branches have.
        traced: Pallas kernels of the step; what `kernels` says goes before.

    Raises:
        UnknownHlo: with the line that is not understood, or why the lines contradict each other.
        InputError: `trips`, `kernels` or `branches` name what the program does not have, or are no
            numbers.
    """
    hints = UserHints(trips or {}, kernels or {}, branches or {}, traced)
    try:
        program = _read(parse_module(text), mesh, name, peak, hints)
        hints.check_all_used()
        return program
    except InputError:
        raise
    except CONTRADICTIONS as error:
        raise UnknownHlo(f"its lines contradict each other ({error!r:.{LINE}})") from error


def _read(
    module: Module, mesh: Mapping[str, int], name: str, peak: int | None, hints: UserHints
) -> Program:
    check_extent(module)
    reading = Reading(module, mesh, origins(module), assign(module), [], {}, {}, hints)
    schedule = tuple(_block(module.entry, reading))
    buffers = tuple(reading.memory.buffers)
    if peak is not None:  # XLA counts arguments and results in the host's memory too
        held = (buffer for buffer in buffers if buffer.persistent)
        peak -= int(sum((b.bytes for b in held if b.category == "pinned_host"), 0.0))
    warnings = tuple(_ungrouped(reading.ungrouped, mesh))
    program = Program(
        name,
        "compiled",
        dict(mesh),
        schedule,
        buffers,
        peak,
        warnings,
        compiler_versions(),
        module=module.name,
        places=reading.places,
    )
    for step, runs in operations(schedule):
        if runs > MOST_RUNS:
            raise InputError(f"loops run {step.name} more than {MOST_RUNS:.0e} times")
    arguments = {
        index: parameter.op_name
        for parameter in module.entry.parameters
        for index in reading.memory.of(parameter)
    }
    return with_categories(program, arguments)


def _ungrouped(found: Sequence[Collective], mesh: Mapping[str, int]) -> Iterator[str]:
    """One warning for all collectives whose groups of devices are those of no axes."""
    found = list({collective.name: collective for collective in found}.values())
    if found:
        first = found[0]
        more = f" and {len(found) - 1} more collectives" if len(found) > 1 else ""
        yield (
            f"{first.name} ({first.kind} among devices {list(first.groups[0])[:8]} ...){more}: no "
            f"group of axes of the mesh {dict(mesh)}; priced by the numbers of the devices"
        )


def _block(computation: Computation, reading: Reading) -> Iterator[Operation]:
    for instruction in computation:
        yield from _operations(instruction, reading)


def _operations(instruction: Instruction, reading: Reading) -> Iterator[Operation]:
    """The operations of one instruction: none, one, or those of the computation that it calls."""
    opcode, blocks = instruction.opcode, instruction.blocks
    common = partial(_common, instruction, reading)  # for those that take time
    if opcode == "call":
        yield from _block(blocks[0], reading)
    elif opcode == "while":
        yield _loop(instruction, common(), reading)
    elif opcode == "conditional":
        yield from _host_read(instruction, reading)
        yield _conditional(instruction, common(), reading)
    elif opcode.endswith("-done"):
        yield from _done(instruction, reading, common)
    elif moved := _communication(instruction, reading):
        _check_name(instruction, reading)
        if moved.groups and not moved.axes:
            reading.ungrouped.append(moved)
        line = instruction.line.strip()[:LINE]
        yield replace(moved, **common(), estimate=_estimate(instruction), line=line)
    elif work := work_of(instruction):
        _check_name(instruction, reading)
        work = _with_calls(work, instruction, reading.hints)
        inside = work.name if work.name != instruction.name else ""
        asynchronous, estimate = opcode.endswith("-start"), _estimate(instruction)
        work = replace(work, asynchronous=asynchronous, estimate=estimate, inside=inside)
        work = replace(work, cycles=_cycles(instruction))
        yield replace(work, **common())


def _communication(instruction: Instruction, reading: Reading) -> Collective | None:
    def is_local(call: Instruction) -> bool:
        traced = reading.hints.traced_kernel(call)
        return reading.hints.work_of(call) is not None or bool(traced and traced.is_local)

    return communication_of(instruction, reading.mesh, is_local)


def _with_calls(work: Kernel, instruction: Instruction, hints: UserHints) -> Kernel:
    """The kernel with what the caller says about its custom calls; it names those left unknown."""
    unknown: dict[str, None] = {}
    for call in unknown_calls(instruction):
        given, traced = hints.work_of(call), hints.traced_kernel(call)
        if isinstance(given, Work):
            counted: LibraryWork | None = _written(given)
        else:
            counted = _written(traced.work, traced.is_complete) if traced else library_work(call)
        if counted:
            work = _with_work(work, counted.work)
        if counted and counted.error > 1:
            chain, error = work.chain + counted.chain, max(work.error, counted.error)
            work = replace(work, chain=chain, error=error, share=counted.share, is_timed=False)
        if not (counted and counted.is_known):
            unknown[kernel_name(call)] = None
    return replace(work, unknown=", ".join(unknown))


def _written(work: Work, is_known: bool = True) -> LibraryWork:
    """What a kernel does that somebody wrote, at the rate that such kernels reach."""
    if not work.dtype:
        return LibraryWork(work, is_known)
    return LibraryWork(work, is_known, error=WRITTEN_ERROR, share=WRITTEN_SHARE)


def _with_work(kernel: Kernel, work: Work) -> Kernel:
    """The kernel with the work of a call; FLOPs without a format are vector arithmetic."""
    is_product = bool(work.dtype)
    return replace(
        kernel,
        flops=kernel.flops + (work.flops if is_product else 0.0),
        vector_flops=kernel.vector_flops + (0.0 if is_product else work.flops),
        transcendentals=kernel.transcendentals + work.transcendentals,
        bytes=kernel.bytes if work.bytes is None else work.bytes,
        dtype=work.dtype or kernel.dtype,
    )


def _check_name(instruction: Instruction, reading: Reading) -> None:
    """Raise UnknownHlo if another computation has an operation of that name: prices go by name."""
    computation = instruction.computation.name
    first = reading.computations.setdefault(instruction.name, computation)
    if first != computation:
        raise UnknownHlo(
            f"%{instruction.name} stands in {first} and in {computation}: {instruction.excerpt}"
        )


def _common(instruction: Instruction, reading: Reading) -> dict[str, Any]:
    memory = reading.memory
    if place := _place(instruction, reading):
        reading.places[instruction.name] = place
    reads = (buffer for operand in instruction.operands for buffer in memory.of(operand))
    return {
        "name": instruction.name,
        "origin": reading.origins.get(instruction, Origin()),
        "reads": tuple(dict.fromkeys(reads)),
        "writes": memory.written(instruction),
        "over": memory.replaced(instruction),
    }


def _place(instruction: Instruction, reading: Reading) -> str:
    """The line of code of an instruction, whole path; "" where it is not known."""
    return source_line(instruction.attribute("metadata") or "", reading.module.places)


def _loop(loop: Instruction, common: dict[str, Any], reading: Reading) -> Loop:
    """The loop; one that nobody knows the trips of counts once and says where it stands.

    One that the compiler does not know the trips of evaluates its condition in each of them (the
    last, which is false, is not counted), and its host reads the result.
    """
    known = loop.backend_config.get("known_trip_count", {}).get("n")
    if known is not None and not is_count(str(known)):
        raise InputError(f"a loop that runs {str(known)[:LINE]!r} times: {loop.excerpt}")
    place, body = _place(loop, reading), tuple(_block(loop.blocks[0], reading))
    if known is None:
        condition = (step for block in loop.called("condition") for step in _block(block, reading))
        body = *condition, *_host_read(loop, reading), *body
    said = float(known) if known is not None else reading.hints.trips_of(loop, place)
    if said is None:
        return Loop(**common, body=body, trips=1, unknown=short(place) or loop.name)
    return Loop(**common, body=body, trips=int(said) if said.is_integer() else said)


def _host_read(instruction: Instruction, reading: Reading) -> Iterator[Kernel]:
    """On a GPU the wait of the host for what decides how it goes on; nothing elsewhere.

    XLA records neither loops nor conditionals into CUDA graphs unless it is told to
    (xla/debug_options_flags.cc, `xla_gpu_enable_command_buffer`): the host copies the condition,
    waits for it, and only then launches what follows (xla/backends/gpu/runtime, while_thunk.cc and
    conditional_thunk.cc), while the device has nothing to do.
    """
    if any(QUEUE in step.backend_config for block in instruction.blocks for step in block):
        origin = reading.origins.get(instruction, Origin())
        yield Kernel(
            f"{instruction.name} read",
            origin,
            kind="copy",
            bytes=1.0,
            chain=HOST_READ,
            error=HOST_READ_ERROR,
            is_timed=False,
        )


def _conditional(instruction: Instruction, common: dict[str, Any], reading: Reading) -> Branch:
    """The conditional, its branches in the order of the code: a false condition is number 0."""
    branches = tuple(tuple(_block(block, reading)) for block in instruction.blocks)
    if instruction.attribute("true_computation"):
        branches = branches[::-1]
    place = _place(instruction, reading)
    shares = reading.hints.shares_of(instruction, place)
    return Branch(**common, branches=branches, shares=shares, place=short(place))


def _done(
    instruction: Instruction, reading: Reading, common: Callable[[], dict[str, Any]]
) -> Iterator[Operation]:
    """The wait for an asynchronous instruction; nothing for one that is not asynchronous."""
    start = instruction.operands[0]
    while start.opcode.endswith("-update"):
        start = start.operands[0]
    moved = _communication(start, reading)
    kernel = work_of(start) if moved is None else None
    if moved.asynchronous if moved else kernel and start.opcode.endswith("-start"):
        yield Wait(**{**common(), "name": start.name})
    elif not start.opcode.endswith("-start"):
        raise UnknownHlo(f"no start of {instruction.excerpt}")


# XLA's cost models by the order of trust: the one that its scheduler goes by (products and
# collectives from measured tables), that of fused loops, and one that overrates products tenfold.
MODELS = ("sol", "indexing-cost-model", "")


def _estimate(instruction: Instruction) -> float | None:
    """Seconds by XLA's own cost model, where the compile was asked for them."""
    entries = instruction.backend_config.get("reification_cost", ())
    times = {entry.get("name", ""): entry["exec_time_us"] for entry in entries}
    named = next((times[name] for name in MODELS if times.get(name)), None)
    return None if named is None else named * 1e-6


def _cycles(instruction: Instruction) -> float:
    """Clocks of a TPU that its compiler plans for a kernel; 0 of what it has no window for."""
    stated = instruction.backend_config.get("window_config", {}).get("estimated_cycles", "0")
    return float(stated) if is_count(str(stated)) else 0.0
