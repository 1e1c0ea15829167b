"""The collective that an instruction is: kind, mesh axes, bytes, synchronous or not.

    bytes = operands                    all-reduce, all-to-all, permute, broadcast
            operands x group members    all-gather: the unsharded result
            operands                    reduce-scatter: the unsharded operands

which is the size that nccl-tests counts by. It is computed from the operands and must agree with
the result, however the compiler spells that: alone, or with the operands in a tuple.

An instruction that may communicate but is not understood is an error, never free.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from scaling.hlo.custom_calls import call_target, type_name
from scaling.hlo.parse import Computation, Instruction, MayCommunicate, UnknownHlo
from scaling.hlo.replica_groups import (
    axes_of_groups,
    axes_of_pairs,
    replica_groups,
    source_target_pairs,
)
from scaling.hlo.shapes import Array, arrays, size
from scaling.program.ir import Collective, CollectiveKind

_KINDS: dict[str, CollectiveKind] = {
    "all-gather": "all-gather",
    "all-reduce": "all-reduce",
    "reduce-scatter": "reduce-scatter",
    "all-to-all": "all-to-all",
    "ragged-all-to-all": "all-to-all",
    "collective-permute": "permute",
    "collective-broadcast": "broadcast",
}
# opcode -> kind, synchronous and asynchronous
KINDS: dict[str, CollectiveKind] = _KINDS | {f"{op}-start": kind for op, kind in _KINDS.items()}

# opcode -> the attribute that names the computation it runs as one operation
WRAPPERS = {
    "async-start": "calls",
    "fusion": "calls",
    "fusion-start": "calls",
    "call-start": "to_apply",
}

COMMUNICATING = re.compile(r"(?:^|-)(?:all-|collective|permute|reduce-scatter|send|recv)")
# of XLA for TPUs: it starts in one fusion, goes on inside of others, and is over in one more
SPREAD = "AsyncCollective"
# custom-call targets that move data between devices, or may
TARGETS = {
    "nccl|rccl": "calls the collective library itself",
    "nvshmem": "reads and writes the memory of other devices",
    "mosaic_gpu": "is a kernel that can read and write the memory of other devices",
    "all_?reduce|all_?gather|reduce_?scatter|all_?to_?all": "is named like a collective",
    "collective|permute|sendrecv|mpi_|gloo": "is named like a collective",
}


def communication_of(
    instruction: Instruction,
    mesh: Mapping[str, int],
    is_local: Callable[[Instruction], bool] = lambda call: False,
) -> Collective | None:
    """The collective that `instruction` is or runs, without its buffers; None if it moves nothing.

    The second half of an asynchronous pair (`-done`, `-update`) moves nothing of its own. A fusion
    or asynchronous call around one collective is that collective. Operations whose blocks run one
    by one (`while`, `conditional`, `call`) are for the caller to walk.

    Transfers to and from the host are not counted. Device numbers are row-major coordinates of
    `mesh`, whose axis sizes are outermost first. A custom call that `is_local` communicates with
    nobody, whatever its name.

    Raises:
        UnknownHlo: an instruction that may communicate and is not known, groups that do not read,
            operands and result that do not agree.
    """
    opcode = instruction.opcode
    if opcode in KINDS:
        return _collective(instruction, mesh)
    if opcode.endswith(("-done", "-update")):
        return None
    if opcode in WRAPPERS:
        return _wrapped(instruction, lambda i: communication_of(i, mesh, is_local))
    if call_target(instruction).startswith(SPREAD):
        raise UnknownHlo(
            f"{instruction.name} is of a collective that goes on inside other kernels, which is "
            "not read: compile with xla_tpu_enable_async_collective_fusion=false "
            f"({instruction.excerpt})"
        )
    reason = _suspicion(instruction)
    is_call = instruction.opcode == "custom-call"
    if reason and not (is_call and is_local(instruction)):
        error = MayCommunicate if is_call and call_target(instruction) else UnknownHlo
        raise error(f"{instruction.name} {reason}: {instruction.excerpt}")
    return None


def _collective(instruction: Instruction, mesh: Mapping[str, int]) -> Collective:
    opcode, devices = instruction.opcode.removesuffix("-start"), math.prod(mesh.values())
    if opcode == "collective-permute":
        groups = source_target_pairs(instruction, devices)
        axes, is_ring = axes_of_pairs(groups, mesh)
        by_axes = is_ring or not axes
    else:
        groups = replica_groups(instruction, devices)
        found = axes_of_groups(groups, mesh)
        axes, by_axes = found or (), found is not None
    sent = _sent(instruction)
    # nccl-tests size. A ragged all-to-all says only when it runs how much it sends: the whole
    # buffer is counted.
    operands, members = sum(array.bytes for array in sent), groups.shape[1]
    gathered = {"all-gather": operands * members, "reduce-scatter": operands / members}
    if not opcode.startswith("ragged"):
        _check_result(instruction, sent, gathered.get(opcode, operands))
    return Collective(
        instruction.name,
        kind=KINDS[opcode],
        axes=axes,
        bytes=operands * members if opcode == "all-gather" else operands,
        dtype=type_name(max(sent, key=lambda array: array.bytes).dtype),
        asynchronous=_is_async(instruction),
        groups=() if by_axes else tuple(tuple(group) for group in groups.tolist()),
    )


def _sent(instruction: Instruction) -> list[Array]:
    operands = [operand.shape for operand in instruction.operands]
    if instruction.opcode.startswith("ragged"):
        operands = operands[:1]  # then: where to, and offsets and sizes of the parts
    sent = [array for shape in operands for array in arrays(shape)]
    if not sent:
        raise UnknownHlo(f"{instruction.name} sends nothing: {instruction.excerpt}")
    return sent


def _check_result(instruction: Instruction, sent: list[Array], result: float) -> None:
    """Raise UnknownHlo unless the shape has the bytes of the result, alone or after the operands'.

    An asynchronous one is `(operands, results, ...)`; jax 0.10's all-reduce-start results only.
    """
    shape = instruction.shape
    operands = sum(array.bytes for array in sent)
    alone = size(shape) == result and len(arrays(shape)) == len(sent)
    parts = shape if isinstance(shape, tuple) and instruction.opcode.endswith("-start") else ()
    follows = [size(part) for part in parts[:2]] == [operands, result]
    if not alone and not follows:
        raise UnknownHlo(
            f"{instruction.name} sends {operands} bytes and should make {result:g}, but its shape "
            f"has {size(shape)}: {instruction.excerpt}"
        )


# The collective that an instruction is; None: it moves nothing
Find = Callable[[Instruction], Collective | None]


def _wrapped(instruction: Instruction, find: Find) -> Collective | None:
    """The one collective inside a fusion or an asynchronous call."""
    called = instruction.called(WRAPPERS[instruction.opcode])
    found = [collective for inner in called for collective in _inside(inner, find)]
    if len(found) > 1:
        raise UnknownHlo(f"{instruction.name} holds several collectives: {instruction.excerpt}")
    if not found:
        return None
    inner = found[0].inside or found[0].name
    is_async = _is_async(instruction)
    return replace(found[0], name=instruction.name, asynchronous=is_async, inside=inner)


def _inside(computation: Computation, find: Find) -> list[Collective]:
    """The collectives of a computation and of those that it calls."""
    found = []
    for instruction in computation:
        if inner := find(instruction):
            found.append(inner)
        repeated = [c for block in instruction.blocks for c in _inside(block, find)]
        if repeated and instruction.opcode != "call":
            raise UnknownHlo(f"{computation.name} communicates in a loop: {instruction.excerpt}")
        found += repeated
    return found


def _suspicion(instruction: Instruction) -> str:
    """The reason why an instruction of another opcode may communicate; "" if it does not."""
    opcode = instruction.opcode
    if opcode in ("send", "recv") and instruction.attribute("is_host_transfer") == "true":
        return ""
    if COMMUNICATING.search(opcode):
        return f"({opcode}) communicates in a way that is not known"
    if opcode.startswith("custom-call"):
        target = (instruction.attribute("custom_call_target") or "").lower()
        for pattern, reason in TARGETS.items():
            if re.search(pattern, target):
                name = target.strip('"')
                say = f"say so: --local {name}"
                return f"({name}) {reason}; if it talks to no other device, {say}"
    for name in ("replica_groups", "source_target_pairs", "channel_id"):
        if name in instruction.attributes and instruction.attribute(name) is not None:
            return f"({opcode}) has {name}, so it communicates in a way that is not known"
    return ""


def _is_async(instruction: Instruction) -> bool:
    """Return True for a start, unless the compiler decided to run both halves of it at once."""
    config = instruction.backend_config.get("collective_backend_config", {})
    return instruction.opcode.endswith("-start") and not config.get("is_sync")
