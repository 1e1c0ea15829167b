"""The order in which XLA gives out the memory of results that are equally large.

Operands stand before what takes them, the first operand first, from the root down; a computation
stands before those that it runs, and of these the last first (openxla/xla, xla/hlo/ir/
hlo_computation.cc: MakeInstructionPostOrder; xla/service/buffer_assignment.cc:
AssignBuffersForComputations).
"""

from scaling.hlo.parse import NAME, Computation, Module
from scaling.hlo.result_reuse import Place

CONTROL = "control-predecessors"


def post_order(module: Module) -> dict[Place, int]:
    """Position of each instruction of all computations that the schedule runs."""
    order: list[Computation] = []
    _callees_first(module.entry, module, order, set())
    places = [(c.name, name) for c in reversed(order) for name in _in_post_order(c)]
    return {place: number for number, place in enumerate(places)}


def _callees_first(
    computation: Computation, module: Module, order: list[Computation], seen: set[str]
) -> None:
    seen.add(computation.name)
    for instruction in computation:
        for name in instruction.blocks:
            if name not in seen:
                _callees_first(module.computations[name], module, order, seen)
    order.append(computation)


def _in_post_order(computation: Computation) -> list[str]:
    """Names of the instructions, operands first."""
    found: dict[str, None] = {}
    entered: set[str] = set()
    for root in computation:
        waiting = [] if computation.users[root.name] else [root.name]
        while waiting:
            name = waiting[-1]
            if name in entered:
                found.setdefault(waiting.pop())
                continue
            entered.add(name)
            instruction = computation.instructions[name]
            before = NAME.findall(instruction.attribute(CONTROL) or "")
            todo = (*reversed(instruction.operands), *before)
            waiting += [other for other in todo if other not in found]
    return list(found)
