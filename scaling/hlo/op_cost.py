"""FLOPs and bytes of device memory of one instruction of a compiled program.

    %f = fusion(%big, %i, %x, %x), calls=%body    one kernel: reads %x once and, of %big, only the
                                                  slice that %body takes; writes its result

Conventions are XLA's own (openxla/xla, xla/service/hlo_cost_analysis.cc,
xla/service/gpu/model/gpu_hlo_cost_analysis.cc), except that nothing is read more than once, and
that a library's scratch memory and arrays on the host do not count.
"""

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import replace

from scaling.hlo.custom_calls import DOTS, call_target, product_of, type_name, written_by
from scaling.hlo.elementwise import ARITHMETIC, FREE, vector_work
from scaling.hlo.fusions import FusionContent, fusion_content, single_content
from scaling.hlo.parse import Computation, Instruction
from scaling.hlo.passes import (
    CUB,
    LAUNCH_ERROR,
    MOST_ARRAYS,
    Sorting,
    radix_sorting,
    sorting,
    transform,
)
from scaling.hlo.shapes import SCALAR_MEMORY, Array, arrays
from scaling.program.ir import CAUSAL, Kernel, KernelKind

FINISHING = ("-done", "-update")  # later parts of an asynchronous instruction
CALLED = {"call": "to_apply", "async-start": "calls"}  # -> attribute that names what runs
ALLOCATION = "AllocateBuffer"  # a custom call that writes nothing: stacks in the host's memory
PREFETCHED = "cross_program_prefetch_index"
QUEUE = "operation_queue_id"  # in the configuration of what XLA compiled for a GPU
INTEGERS = ("s32", "u32", "s64", "u64", "pred")
Bytes = dict[str, float]  # by element type


def work_of(instruction: Instruction) -> Kernel | None:
    """The kernel that `instruction` is, without its buffers; None if it costs nothing.

    A call does all that it calls. Where there are several products, `dtype` and `dims` are those
    of the largest. Kind "copy" computes nothing, kind "custom" calls an unknown function:
    bytes only.

    `instruction` is no collective, loop or conditional, and not inside a fusion.

    Raises:
        UnknownHlo: an operation that cannot be priced, with its line.
    """
    opcode = instruction.opcode
    if opcode in FREE or opcode.endswith(FINISHING) or call_target(instruction) == ALLOCATION:
        return None
    if _is_beside(instruction):
        return None
    if opcode in CALLED:
        (inner,) = instruction.called(CALLED[opcode])
        return _total(inner)
    opcode, start, _ = opcode.rpartition("-start")
    if start and not isinstance(instruction.shape, Array):
        # as what it starts, whose result stands among other things
        result = instruction.shape[0 if opcode == "copy" else 1]
        instruction = replace(instruction, opcode=opcode, shape=result)
    return _kernel(instruction)


def _is_beside(instruction: Instruction) -> bool:
    """True for what a TPU does beside its kernels: sums of its scalar core, and the copy into the
    chip that XLA moves to the end of the program before (cross-program prefetch)."""
    if instruction.attribute(PREFETCHED) is not None:
        return True
    found = arrays(instruction.shape)
    return all(array.is_tiled for array in found) and (
        all(array.memory_space == SCALAR_MEMORY for array in found) or _is_address(instruction)
    )


def unknown_calls(instruction: Instruction) -> Iterator[Instruction]:
    """The custom calls, among all that an instruction runs, of which only the bytes are known."""
    target = call_target(instruction)
    if target and not target.startswith(CUB) and product_of(instruction) is None:
        yield instruction
    for inner in instruction.called(CALLED.get(instruction.opcode, "calls")):
        for part in inner:
            yield from unknown_calls(part)


def _total(computation: Computation) -> Kernel | None:
    found = [work for i in computation if (work := work_of(i))]
    if not found:
        return None
    added = "flops vector_flops transcendentals bytes host_bytes again clashes chain".split()
    largest = max(found, key=lambda work: (work.flops, work.bytes))
    sums = {name: sum(getattr(work, name) for work in found) for name in added}
    spread, is_timed = max(work.spread for work in found), all(work.is_timed for work in found)
    error = max(work.error for work in found)
    return replace(largest, **sums, spread=spread, is_timed=is_timed, error=error)


def _kernel(instruction: Instruction) -> Kernel:
    is_fusion = instruction.opcode == "fusion"
    content = fusion_content(instruction) if is_fusion else single_content(instruction)
    read, written = _moved(instruction, content, on_host=False)
    from_host = _moved(instruction, content, on_host=True)
    moved = {name: read.get(name, 0.0) + written.get(name, 0.0) for name in (*read, *written)}
    products = [p for i in content.parts if (p := product_of(i.instruction))]
    vector, transcendental = _vector_work(content)
    largest = max(products, key=lambda p: p.flops, default=None)
    stated, sorts = largest.bytes if largest else None, _sorts(instruction, content)
    again, launching = sum(s.bytes for s in sorts), sum(s.launching for s in sorts)
    floats = [name for name in moved if name.startswith(("f", "bf", "c"))]
    most = max(floats or moved, key=lambda name: moved[name], default="")
    dtype = largest.dtype if largest else type_name(most)
    if largest and largest.may_round and "fusion_backend_config" in instruction.backend_config:
        dtype = "tf32"  # as the compiler for NVIDIA's chips rounds float32
    kind: KernelKind = "fusion" if vector or transcendental else "copy"
    if any(part.instruction.opcode == "custom-call" for part in content.parts):
        kind = "custom"
    work = Kernel(
        instruction.name,
        kind=largest.kind if largest else kind,
        flops=sum(p.flops for p in products),
        vector_flops=vector,
        transcendentals=transcendental + sum(p.transcendentals for p in products),
        bytes=max(sum(moved.values()), again) if stated is None else stated,
        host_bytes=sum(sum(way.values()) for way in from_host),
        dtype=dtype,
        dims=largest.dims if largest else (),
        visible=largest.visible if largest else CAUSAL,
        kv_heads=largest.kv_heads if largest else 0,
        library=largest.library if largest else "",
        value_dim=largest.value_dim if largest else 0,
        is_timed=all(p.is_timed for p in products),
        share=largest.share if largest else 1.0,
        error=max((*(p.error for p in products), LAUNCH_ERROR if launching else 1.0)),
        chain=launching,
        again=content.rows.again,
        spread=content.rows.spread,
        clashes=content.rows.clashes,
    )
    if instruction.opcode != "fft":
        return work
    found = transform(instruction)
    passes = replace(work, bytes=found.bytes, again=found.again, spread=found.spread)
    return replace(passes, is_timed=False)


def _sorts(instruction: Instruction, content: FusionContent) -> list[Sorting]:
    """The sorts of a kernel on a GPU; none on a CPU, which sorts outside of fusions."""
    if call_target(instruction).startswith(CUB):
        return [radix_sorting(arrays(instruction.shape)[:MOST_ARRAYS])]
    if instruction.opcode != "fusion" and QUEUE not in instruction.backend_config:
        return []
    sorts = [p for p in content.parts if p.instruction.opcode == "sort"]
    used = _used(instruction) if sorts else ()
    return [sorting(p.instruction, used) for p in sorts]


def _used(instruction: Instruction) -> Container[int]:
    """Numbers of the results that somebody takes."""
    users = instruction.users
    taken = [user.attribute("index") for user in users if user.opcode == "get-tuple-element"]
    if instruction.is_root or len(taken) < len(users):
        return range(len(arrays(instruction.shape)))
    return {int(number) for number in taken if number}


def _vector_work(content: FusionContent) -> tuple[float, float]:
    vector = transcendental = 0.0
    for part in content.parts:
        is_product = part.instruction.opcode in (*DOTS, "convolution", "custom-call")
        if not is_product and not _is_address(part.instruction):
            flops, transcendentals = vector_work(part.instruction)
            vector += part.share * flops
            transcendental += part.share * transcendentals
    return vector, transcendental


def _is_address(instruction: Instruction) -> bool:
    """Arithmetic on single integers says where a slice begins: nothing that takes time."""
    result = arrays(instruction.shape)[0]
    return instruction.opcode in ARITHMETIC and result.elements == 1 and result.dtype in INTEGERS


def _moved(instruction: Instruction, content: FusionContent, on_host: bool) -> tuple[Bytes, Bytes]:
    """Bytes read, and written, of the host's memory or of the device's own, not of a TPU's chip.

    An operand that is passed twice is read once.
    """
    shares: dict[Instruction, float] = defaultdict(float)
    for operand, share in zip(instruction.operands, content.read, strict=True):
        shares[operand] = min(1.0, shares[operand] + share)
    read: Bytes = defaultdict(float)
    for operand, share in shares.items():
        for array in arrays(operand.shape):
            if array.is_on_host == on_host and not array.is_in_chip:
                read[array.dtype] += share * array.bytes
    written: Bytes = defaultdict(float)
    for array, share in zip(written_by(instruction), content.written, strict=False):
        if array.is_on_host == on_host and not array.is_in_chip:
            written[array.dtype] += share * array.bytes
    return read, written
