"""The instructions of a kernel, and the share of each array that it touches.

A fusion is read backwards, from its result to its parameters: each instruction inside makes the
share of its elements that its users need, and slices need little of their operand. These shares
weigh the arithmetic, and those of the parameters are what is read. A result that is a parameter
updated in place costs its new elements only:

    %p = parameter(0)
    %u = dynamic-update-slice(bitcast(%p), %slice, ...)      in place: %u is %p with a slice changed
    ROOT bitcast(%u)

Bitcasts may stand around the update, because they name the same bytes. A `convert` or `copy`
makes all of the array anew, and so does a `reshape` that the compiler did not turn into a bitcast.
XLA shares buffers and emits such fusions by the same rules (openxla/xla, xla/service/gpu/
alias_info.cc, and GetOutputDefiningDynamicUpdateSlices in ir_emission_utils.cc).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from scaling.hlo.parse import Computation, Instruction
from scaling.hlo.random_access import RandomAccess, random_access, replaces
from scaling.hlo.shapes import arrays

UPDATING = ("dynamic-update-slice", "scatter")
SLICING = ("slice", "dynamic-slice", "gather", "broadcast")  # need no more than they make


@dataclass(frozen=True)
class Update:
    """An instruction of a fusion that changes a part of one of its parameters."""

    instruction: Instruction  # of opcode UPDATING
    parameter: Instruction


@dataclass(frozen=True)
class FusedInstruction:
    """An instruction that a kernel runs, and the share of its elements that are needed."""

    instruction: Instruction
    share: float


@dataclass(frozen=True)
class FusionContent:
    """Instructions of a kernel, and the share of each operand and result that it touches."""

    parts: list[FusedInstruction]
    read: list[float]
    written: list[float]
    rows: RandomAccess  # what gathers and scatters take beyond these shares


def results(body: Computation) -> list[Instruction]:
    """Results of a fusion: the parts of its tuple, or its root."""
    return list(body.root.operands) if body.root.opcode == "tuple" else [body.root]


def update_in_place(result: Instruction, number: int = 0) -> Update | None:
    """The update that makes one of the `results` of a fusion; None: all of it is made anew.

    `number`: of the array that is asked for, where a scatter updates several.
    """
    update = _behind(result)
    if update.opcode not in UPDATING:
        return None
    target = _behind(update.operands[number])
    return Update(update, target) if target.opcode == "parameter" else None


def _behind(instruction: Instruction) -> Instruction:
    while instruction.opcode == "bitcast":
        (instruction,) = instruction.operands
    return instruction


def single_content(instruction: Instruction) -> FusionContent:
    """An instruction that is a kernel of its own; one that updates an operand does so in place."""
    read = [_share(instruction, i, in_place=True) for i in range(len(instruction.operands))]
    written = [_new(instruction)] * len(arrays(instruction.shape))
    rows = random_access(instruction, 1.0, is_fused=False)
    return FusionContent([FusedInstruction(instruction, 1.0)], read, written, rows)


def fusion_content(fusion: Instruction) -> FusionContent:
    """The instructions of a fusion, and the shares that the kernel reads and writes; made once."""
    body, known = called(fusion), fusion.computation.module.fusions
    if body not in known:
        updates = {leaf: update_in_place(leaf) for leaf in results(body)}
        in_place = {leaf: update.instruction for leaf, update in updates.items() if update}
        needed = _needed(body, set(in_place.values()))
        parts = [part for i in body for part in _parts(i, needed[i])]
        read = [needed[parameter] for parameter in body.parameters]
        written = []
        for leaf in results(body):
            new = _new(in_place[leaf]) if leaf in in_place else 1.0
            written += [new] * len(arrays(leaf.shape))
        rows = (random_access(i, needed[i], is_fused=True) for i in body)
        known[body] = FusionContent(parts, read, written, sum(rows, RandomAccess()))
    content: FusionContent = known[body]
    return content


def _needed(body: Computation, in_place: set[Instruction]) -> dict[Instruction, float]:
    """Instruction of a fusion -> the share of its elements that the results need.

    Shares of several slices add up. Several paths to one slice count once.
    """
    demands: dict[Instruction, dict[object, float]] = {i: {} for i in body}
    demands[body.root] = {body.root: 1.0}
    for instruction in reversed(body.instructions.values()):  # users come after their operands
        own = demands[instruction]
        for i, operand in enumerate(instruction.operands):
            share = _share(instruction, i, instruction in in_place)
            demands[operand].update(own if share == 1.0 else {(instruction, i): share * _sum(own)})
    return {instruction: _sum(demand) for instruction, demand in demands.items()}


def _sum(demand: Mapping[object, float]) -> float:
    return min(1.0, sum(demand.values()))


def _parts(instruction: Instruction, share: float) -> list[FusedInstruction]:
    """An instruction of a fusion; of a fusion in a fusion those inside."""
    if instruction.opcode != "fusion":
        return [FusedInstruction(instruction, share)]
    inner = fusion_content(instruction).parts
    return [replace(part, share=share * part.share) for part in inner]


def _share(instruction: Instruction, operand: int, in_place: bool) -> float:
    """Elements of an operand per element of it that the whole result needs; may exceed 1."""
    if instruction.opcode in SLICING and operand == 0:
        return _elements(instruction) / max(1, _elements(instruction.operands[0]))
    if instruction.opcode in UPDATING and operand < _updated(instruction):
        new = _new(instruction)
        if instruction.opcode == "scatter":
            if not in_place:
                return 1.0
            return 0.0 if replaces(instruction) else new  # what is added to is read
        return 0.0 if in_place else 1.0 - new
    if instruction.opcode == "fusion":
        return fusion_content(instruction).read[operand]
    return 1.0


def _new(instruction: Instruction) -> float:
    if instruction.opcode not in UPDATING:
        return 1.0
    count = _updated(instruction)
    update = instruction.operands[1 if instruction.opcode == "dynamic-update-slice" else count + 1]
    return min(1.0, _elements(update) / max(1, _elements(instruction)))


def _updated(instruction: Instruction) -> int:
    """Number of leading operands that are updated: `scatter` may take several arrays."""
    return 1 if instruction.opcode == "dynamic-update-slice" else len(instruction.operands) // 2


def _elements(instruction: Instruction) -> int:
    return arrays(instruction.shape)[0].elements


def called(fusion: Instruction) -> Computation:
    """The computation of a fusion."""
    (body,) = fusion.called("calls")
    return body
