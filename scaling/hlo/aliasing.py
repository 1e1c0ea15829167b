"""Results that take the memory of an operand: passed on, updated or written over.

    bitcast, tuple, get-tuple-element     name a part of what is there
    x-start                               (operands, results, ...): the operands are passed on
    x-done                                the results of the start
    dynamic-update-slice, scatter         write into their operand, alone or as the root of a fusion
    all-reduce-start                      writes into its operands
    elementwise operations, sort          may write over an operand that nobody needs any more,
    all-reduce                            also a synchronous sum (jaxlib 0.11.1 has some)

These are the rules of XLA's buffer assignment (openxla/xla, xla/hlo/analysis/
hlo_dataflow_analysis.cc and alias_info.cc, xla/service/gpu/alias_info.cc).
"""

from scaling.hlo.elementwise import ARITHMETIC, TRANSCENDENTAL
from scaling.hlo.fusions import UPDATING, called, results, update_in_place
from scaling.hlo.parse import Computation, Instruction, read_aliases
from scaling.hlo.shapes import Array, Path, arrays, size

Source = tuple[int, Path]  # number of an operand, index in its shape

PASSED_ON = ("bitcast", "optimization-barrier", "opt-barrier", "add-dependency", "while")
ELEMENTWISE = ARITHMETIC | TRANSCENDENTAL | {"bitcast"}
STATED = "output_to_operand_aliasing"  # of custom calls and fusions


def source_of(instruction: Instruction, path: Path) -> Source | None:
    """The part of an operand whose memory holds the result at `path`; None: memory of its own."""
    return _passed_on(instruction, path) or _updated(instruction, path)


def may_write_over(instruction: Instruction) -> list[tuple[int, Path]]:
    """The operands, by number, whose memory a result, by path, may take; none of a copy."""
    operands = instruction.operands
    whole = [i for i, operand in enumerate(operands) if isinstance(operand.shape, Array)]
    if instruction.opcode in ("sort", "all-reduce"):
        return [(i, (i,) if len(operands) > 1 else ()) for i in whole]
    if instruction.opcode in ELEMENTWISE:
        return [(i, ()) for i in whole if size(operands[i].shape) == size(instruction.shape)]
    if instruction.opcode != "fusion":
        return []
    inner = called(instruction)
    if inner.root.opcode == "sort":
        keys = inner.root.operands
        taken = [(i, inner.parameters[i]) for i in whole]
        return [(i, (keys.index(p),) if len(keys) > 1 else ()) for i, p in taken if p in keys]
    pairs = [(i, k) for i in whole for k in _elementwise(inner, inner.parameters[i])]
    return [(i, (k,) if inner.root.opcode == "tuple" else ()) for i, k in pairs]


def makes(instruction: Instruction, path: Path) -> bool:
    """Return True if the value at `path` of a result is made there, not named or passed on."""
    if instruction.opcode in ("parameter", "call"):
        return False
    return _passed_on(instruction, path) is None


def is_operand(instruction: Instruction, path: Path) -> bool:
    """Return True if an asynchronous start has an operand at `path`, which it leaves as it is."""
    opcode = instruction.opcode
    may_hold = opcode.endswith("-start") and opcode != "all-reduce-start"
    return may_hold and _passed_on(instruction, path) is not None


def holds_operands(instruction: Instruction) -> bool:
    """Return True if the shape of an asynchronous start begins with its operands.

    Those of jax 0.10's all-reduces have the results only.
    """
    shape = instruction.shape
    operands = sum(size(operand.shape) for operand in instruction.operands)
    return isinstance(shape, tuple) and len(shape) > 1 and size(shape[0]) == operands


def _passed_on(instruction: Instruction, path: Path) -> Source | None:
    opcode = instruction.opcode
    if opcode in PASSED_ON or opcode == "async-update":
        return 0, path
    if opcode == "get-tuple-element":
        return 0, (int(instruction.attribute("index") or 0), *path)
    if opcode == "tuple":
        return path[0], path[1:]
    if opcode == "copy-start":  # (destination, source, context)
        return (0, path[1:]) if path[0] == 1 else None
    if opcode == "copy-done":
        return 0, (0, *path)
    if opcode.endswith("-done"):
        start = instruction.operands[0]
        while start.opcode == "async-update":
            start = start.operands[0]
        return 0, (1, *path) if holds_operands(start) else path
    if opcode.endswith("-start") and path[:1] == (0,) and holds_operands(instruction):
        return (path[1], path[2:]) if len(path) > 1 else (0, ())
    if opcode == "all-reduce-start":  # in place
        result = path[1:] if holds_operands(instruction) else path
        return result[0] if result else 0, ()
    return None


def _updated(instruction: Instruction, path: Path) -> Source | None:
    """The operand that is updated in place, by an asynchronous start as well."""
    opcode = instruction.opcode.removesuffix("-start")
    if opcode != instruction.opcode and holds_operands(instruction):
        if path[:1] != (1,):
            return None
        path = path[1:]
    if opcode in UPDATING:
        return path[0] if path else 0, ()
    if stated := instruction.attribute(STATED):
        return read_aliases(stated).get(path)
    if opcode != "fusion":
        return None
    inner = called(instruction)
    made = results(inner)[path[0]] if inner.root.opcode == "tuple" else inner.root
    number = path[0] if path and made is inner.root else 0  # of a scatter into several arrays
    update = update_in_place(made, number)
    return (update.parameter.parameter_number, ()) if update else None


def _elementwise(inner: Computation, parameter: Instruction) -> list[int]:
    """Numbers of the results of its size that need each element for the same one; [] if others do.

    The first reduction of a fusion is done before any result is written, so it may take what it
    likes (openxla/xla, xla/service/gpu/alias_info.cc: FusionCanShareBufferHint).
    """
    made = results(inner)
    reduction = next((r for r in made if r.opcode == "reduce"), None)
    todo, seen = [parameter], {parameter}
    while todo:
        users = todo.pop().users
        users = tuple(user for user in users if not (user.is_root and user.opcode == "tuple"))
        if any(user.opcode not in ELEMENTWISE and user is not reduction for user in users):
            return []
        todo += [user for user in users if user not in seen and user is not reduction]
        seen.update(users)
    whole = _size_of(parameter)
    return [i for i, leaf in enumerate(made) if leaf in seen and _size_of(leaf) == whole]


def _size_of(instruction: Instruction) -> list[tuple[int, int]]:
    return [(array.elements, array.bytes) for array in arrays(instruction.shape)]
