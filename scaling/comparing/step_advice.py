"""What a step that is not ours could leave out, from its program: where, and what it costs.

    ragged_dot            jax.lax.ragged_dot, for which XLA multiplies all rows for every group
    fp32_products         products of float32 operands, where the chip multiplies 16 bits faster
    loop_copies           copies of what a loop carries, such as a cache, around it or inside of it
    replicated_arguments  arguments that lie whole on several devices
    not_donated           arguments of results' shapes, which stay beside these

Seconds are those of the step less those of the same program priced without what is named; bytes are
of one device's memory, at most.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from scaling.hlo.buffer_categories import category_of_argument
from scaling.hlo.parse import Instruction, Module
from scaling.hlo.shapes import Array, arrays, leaves
from scaling.hlo.source_lines import short, source_line
from scaling.meshes.units import format_memory, format_time
from scaling.program.ir import Kernel, Program, with_operations
from scaling.simulate.step import Priced, running_kernels

SHARE = 0.02  # of the step time, or of the peak, from which on something is said
MOST = 3  # places of one kind that are said, the most expensive first
SMALLEST = 2**20  # bytes of an array whose copies are looked at, and of what is worth a word
NAMED = 3  # arrays of a loop that are named; all four chosen by this project
FLOAT32 = ("fp32", "tf32")
SHORTER = ("bf16", "fp16")  # formats instead, the first that the chip multiplies
RAGGED = "ragged_dot"  # in the name of an operation that jax.lax.ragged_dot made
PRODUCTS = ("dot", "convolution", "custom-call")
UPDATE = "dynamic-update-slice"
MOVES = {"parameter", "constant", "bitcast", "copy", "transpose"}
# A sharding over tiles, and words that say that their last dimension counts copies
TILES = re.compile(r"devices=\[([\d,]+)\]")
COPIES = ("last_tile_dim_replicate", "last_tile_dims={replicated}")
Key = tuple[str, str]  # kind and place

TEXTS = {
    "ragged_dot": (
        "jax.lax.ragged_dot at {place} multiplies all rows for each of {words} groups: {time} a "
        "step more than a grouped product; kernels of jax.experimental.pallas.ops.gpu, or buffers "
        "of a capacity, multiply each row once"
    ),
    "fp32_products": (
        "products at {place} are of float32 operands ({words}): {time} a step more than in 16 "
        "bits; cast both operands"
    ),
    "loop_copies": (
        "the loop at {place} copies what it carries ({words}), in or around it: {time} a step; an "
        "array stays in place if it is carried (no xs and ys), donated, written by .at[].set, and "
        "read only after it is written, in one layout"
    ),
}


@dataclass(frozen=True)
class StepAdvice:
    """One thing that a step could leave out."""

    kind: str
    place: str  # the line of code, `moe.py:12`, or the name of an argument
    text: str  # a sentence with its cost, and what to do
    seconds: float | None = None  # of the step; None: it costs memory
    bytes: float | None = None  # of a device's memory; None: it costs time


def step_advice(
    module: Module, priced: Priced, price: Callable[[Program], Priced]
) -> tuple[StepAdvice, ...]:
    """The advice on a compiled program, kind by kind, the most expensive places first.

    `priced` is the module's program; `price` prices it with operations changed.
    """
    step = float(priced.timeline.total)
    found = []
    for (kind, place), (changed, words) in _changes(module, priced).items():
        saved = step - float(price(_with_kernels(priced.program, changed)).timeline.total)
        if saved >= SHARE * step > 0:
            text = TEXTS[kind].format(place=place, words=words, time=format_time(saved))
            found.append(StepAdvice(kind, place, text, seconds=saved))
    found.sort(key=lambda advice: -(advice.seconds or 0.0))
    most = (a for kind in TEXTS for a in [b for b in found if b.kind == kind][:MOST])
    return (*most, *_arguments(module, priced))


def _with_kernels(program: Program, changed: Mapping[str, Kernel]) -> Program:
    return with_operations(program, lambda operation: changed.get(operation.name, operation))


def _changes(module: Module, priced: Priced) -> dict[Key, tuple[dict[str, Kernel], str]]:
    """What may be worth a change -> the kernels as they could be, by name, and words about them."""
    instructions = {i.name: i for part in module.computations.values() for i in part}
    running = {kernel.name: (kernel, calls) for kernel, calls in running_kernels(priced)}
    peaks = priced.cluster.accelerator.peaks
    shorter = next((dtype for dtype in SHORTER if dtype in peaks), "")
    found: dict[Key, dict[str, Kernel]] = defaultdict(dict)
    words: dict[Key, dict[str, None]] = defaultdict(dict)
    for name, place, array in _loop_copies(module):
        if name in running:
            key = "loop_copies", place
            found[key][name] = replace(running[name][0], bytes=0.0)
            words[key][f"{array.dtype}{list(array.dims)}".replace(" ", "")] = None
    for name, (kernel, _) in running.items():
        instruction = instructions.get(name)
        product = instruction and _product(instruction)
        if instruction is None or product is None:
            continue
        is_ragged = RAGGED in product.op_name and kernel.kind == "matmul"  # not a kernel of its own
        if is_ragged and (groups := _groups(instruction, kernel)) > 1:
            key = "ragged_dot", _place(product)
            found[key][name] = _grouped(kernel, groups)
            for spread in filter(running.__contains__, _spread(instruction.operands)):
                rows = running[spread][0]
                found[key][spread] = replace(rows, bytes=rows.bytes / groups)
            words[key][f"{groups}"] = None
        elif kernel.dtype in FLOAT32 and shorter and not _is_complex(product):
            key = "fp32_products", _place(product)
            found[key][name] = replace(kernel, dtype=shorter, bytes=kernel.bytes / 2)
            words[key][f"{kernel.dtype}"] = None
    time = lambda name: float(running[name][1] * priced.kernels[name].time)
    least = SHARE * float(priced.timeline.total)
    said = {
        key: [*each][:NAMED] + [f"{len(each) - NAMED} more"] * (len(each) > NAMED)
        for key, each in words.items()
    }
    return {
        key: (changed, ", ".join(said[key]))
        for key, changed in found.items()
        if sum(map(time, changed)) >= least
    }


def _product(instruction: Instruction) -> Instruction | None:
    """The matrix product that an instruction is, or has inside."""
    inside = [i for part in instruction.called("calls") for i in part]
    return next((i for i in (instruction, *inside) if i.opcode in PRODUCTS), None)


def _is_complex(product: Instruction) -> bool:
    """Whether it multiplies complex numbers, which have no format of 16 bits."""
    return arrays(product.shape)[0].dtype.startswith("c")


def _place(instruction: Instruction, *inside: Instruction) -> str:
    """The line of code of an instruction, or of the first inside of it that has one; or a name."""
    places = instruction.computation.module.places
    lines = (source_line(i.attribute("metadata") or "", places) for i in (instruction, *inside))
    return short(next(filter(None, lines), "")) or instruction.op_name or instruction.name


# What XLA makes of ragged_dot: [rows, groups, k] x [groups, k, n] as one product over groups and k,
# with zeros outside of a row's own group; of weights' gradients a batch of products, one per group.


def _groups(instruction: Instruction, kernel: Kernel) -> int:
    """Groups that a ragged product is dense over; 1: not known."""
    batch, *_, contracted = (int(n) for n in kernel.dims[:4])
    if batch > 1:
        return batch
    found = []  # of each operand the sizes that can be the groups: of neighbours (groups, k)
    for operand in map(_renamed, instruction.operands):
        dims = [n for n in arrays(operand.shape)[0].dims if n > 1]
        found.append({a for a, b in pairwise(dims) if a * b == contracted and len(dims) > 2})
    known = [sizes for sizes in found if sizes]
    return min(set.intersection(*known), default=1) if known else 1


def _spread(operands: tuple[Instruction, ...]) -> Iterator[str]:
    """The kernels that spread rows over groups, back to where they select, by name."""
    for operand in map(_renamed, operands):
        if inside := [i.opcode for part in operand.called("calls") for i in part]:
            before = [] if "select" in inside else list(_spread(operand.operands))
            if before or "select" in inside:
                yield from (operand.name, *before)


def _grouped(kernel: Kernel, groups: int) -> Kernel:
    """The kernel that multiplies each row for its own group alone."""
    batch, m, n, k = kernel.dims[:4]
    dims = (groups, m, n, k / groups) if batch > 1 else (groups, m / groups, n, k / groups)
    rows = batch * (m * k + k * n) if batch > 1 else m * k
    spared = kernel.bytes * (1 - 1 / groups) * rows / (batch * (m * k + k * n + m * n))
    flops, moved = kernel.flops / groups, kernel.bytes - spared
    return replace(kernel, kind="grouped", flops=flops, bytes=moved, dims=dims)


def _loop_copies(module: Module) -> Iterator[tuple[str, str, Array]]:
    """Each kernel that only copies what a loop carries: its name, the loop's line, the array.

    It stands in the loop, makes what the loop begins with, or takes what it ends with. What a
    product of the loop makes anew has to be copied.
    """
    for loop in (i for part in module.computations.values() for i in part if i.opcode == "while"):
        (body,) = loop.called("body")
        carried = {array.bytes for array in arrays(loop.shape) if array.bytes >= SMALLEST}
        (begin,) = loop.operands
        before = map(_renamed, begin.operands if begin.opcode == "tuple" else ())
        after = (user for part in loop.users for user in _users(part))
        inside = (i for i in body if _is_carried(i) and not any(map(_product, i.operands)))
        for instruction in (*inside, *before, *after):
            if instruction.opcode in ("copy", "transpose", "fusion") and _is_copy(instruction):
                (array, *_) = arrays(instruction.shape)
                if array.bytes in carried:
                    yield instruction.name, _place(loop, *body), array


def _is_carried(instruction: Instruction) -> bool:
    """Whether it copies, in a loop's body, what the iteration begins or ends with, or to that."""
    sources = [_renamed(operand) for operand in instruction.operands]
    begins = any(
        s.opcode == "get-tuple-element" and s.operands[0].opcode == "parameter" for s in sources
    )
    return begins or any(user.is_root for i in (instruction, *sources) for user in _users(i))


def _renamed(instruction: Instruction) -> Instruction:
    """What a bitcast names, else the instruction itself."""
    return _renamed(instruction.operands[0]) if instruction.opcode == "bitcast" else instruction


def _users(instruction: Instruction) -> Iterator[Instruction]:
    """Those that take a result, by whatever name."""
    for user in instruction.users:
        yield from _users(user) if user.opcode == "bitcast" else (user,)


def _is_copy(instruction: Instruction) -> bool:
    """Whether a whole array is only moved, or a slice of it written back with an update inside."""
    inside = [i for part in instruction.called("calls") for i in part]
    is_written_back = sum(i.opcode == UPDATE for i in inside) > 1
    is_written_back &= any(i.is_root and i.opcode == UPDATE for i in inside)
    is_moved = {i.opcode for i in inside} <= MOVES
    sizes = {array.bytes for operand in instruction.operands for array in arrays(operand.shape)}
    return (is_moved or is_written_back) and {a.bytes for a in arrays(instruction.shape)} <= sizes


def _arguments(module: Module, priced: Priced) -> Iterator[StepAdvice]:
    """The advice on arguments that lie whole on several devices, and on those not donated."""
    least = max(SHARE * float(priced.memory.peak), SMALLEST)
    results = Counter(
        _kind(array)
        for path, array in leaves(module.entry.root.shape)
        if path not in module.aliases
    )
    donated = {number for number, _ in module.aliases.values()}
    devices = math.prod(priced.program.mesh.values())
    whole, inputs, kept = dict[str, float](), dict[str, float](), dict[str, float]()
    copies = dict[str, int]()
    for parameter in module.entry.parameters:
        name = (parameter.op_name or parameter.name).replace("\\'", "'")
        array = arrays(parameter.shape)[0]
        if array.is_on_host:
            continue
        of_each = _copies(parameter.attribute("sharding") or "", devices)
        copies[name] = of_each
        is_input = category_of_argument(name) == "activations"
        if of_each > 1:
            (inputs if is_input else whole)[name] = array.bytes * (1 - 1 / of_each)
        if is_input:
            continue
        if parameter.parameter_number not in donated and results[_kind(array)]:
            results[_kind(array)] -= 1
            kept[name] = array.bytes
    is_nothing = {*copies.values()} == {devices} != {1}
    whole |= inputs if is_nothing else {}
    if whole and ((size := sum(whole.values())) >= least or is_nothing):
        yield StepAdvice(
            "replicated_arguments",
            max(whole, key=whole.__getitem__),
            f"{_named(whole)}: whole on up to {max(copies[name] for name in whole)} devices each; "
            f"sharded over these, {format_memory(size)} less on every device"
            + ": as nothing is sharded, all of them do the whole step"
            * is_nothing,
            bytes=size,
        )
    if (size := sum(kept.values())) >= least:
        yield StepAdvice(
            "not_donated",
            max(kept, key=kept.__getitem__),
            f"{_named(kept)}: not donated, and results have the same shapes; if they take their "
            f"place, jax.jit(..., donate_argnums=...) frees up to {format_memory(size)}",
            bytes=size,
        )


def _kind(array: Array) -> tuple[str, tuple[int, ...], bool]:
    return array.dtype, array.dims, array.is_on_host


def _named(arguments: Mapping[str, float]) -> str:
    """`params.w and 3 more arguments`, the largest first."""
    first, rest = max(arguments, key=arguments.__getitem__), len(arguments) - 1
    return f"{first} and {rest} more argument{'s' * (rest > 1)}" if rest else first


def _copies(sharding: str, devices: int) -> int:
    """Devices that hold each part of an argument, by its sharding; 1 where that is not said."""
    if sharding == "{replicated}":
        return devices
    tiles = TILES.search(sharding)
    is_copied = any(words in sharding for words in COPIES)
    return int(tiles[1].split(",")[-1]) if tiles and is_copied else 1
