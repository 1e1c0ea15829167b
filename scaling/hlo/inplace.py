"""Results of a fusion that update one of its parameters in place: only new elements are written.

    %p = parameter(0)
    %u = dynamic-update-slice(bitcast(%p), %slice, ...)      in place: %u is %p with a slice changed
    ROOT bitcast(%u)

Bitcasts may stand around the update, because they name the same bytes. A `convert` or `copy`
makes all of the array anew, and so does a `reshape` that the compiler did not turn into a bitcast.
XLA shares buffers and emits such fusions by the same rules (openxla/xla, xla/service/gpu/
alias_info.cc, and GetOutputDefiningDynamicUpdateSlices in ir_emission_utils.cc).
"""

from dataclasses import dataclass

from scaling.hlo.parse import Computation, Instruction

UPDATING = ("dynamic-update-slice", "scatter")


@dataclass(frozen=True)
class Update:
    """An instruction of a fusion that changes a part of one of its parameters."""

    instruction: Instruction  # of opcode UPDATING
    parameter: Instruction


def results(body: Computation) -> list[Instruction]:
    """Results of a fusion: the parts of its tuple, or its root."""
    return body.operands(body.root) if body.root.opcode == "tuple" else [body.root]


def update_in_place(result: Instruction, body: Computation) -> Update | None:
    """The update that makes one of the `results` of a fusion; None: all of it is made anew."""
    update = _behind(result, body)
    if update.opcode not in UPDATING:
        return None
    target = _behind(body.operands(update)[0], body)
    return Update(update, target) if target.opcode == "parameter" else None


def _behind(instruction: Instruction, body: Computation) -> Instruction:
    """The instruction behind bitcasts."""
    while instruction.opcode == "bitcast":
        (instruction,) = body.operands(instruction)
    return instruction
