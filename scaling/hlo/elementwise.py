"""Vector FLOPs and transcendentals of an instruction: its work besides matrix products.

    add, compare, select, convert ...   one FLOP per element of the result
    exponential, rsqrt, power ...       one transcendental per element of the result
    reduce                              its function, (elements in - elements out) times
    copy, transpose, gather ...         nothing: bytes only

The counts are those of XLA's HloCostAnalysis (openxla/xla, xla/service/hlo_cost_analysis.cc),
except for `sort` and `topk`, which count comparisons along the sorted dimension, and `fft`
(`scaling.hlo.passes`).
"""

import math
import re

from scaling.hlo.parse import Instruction, UnknownHlo
from scaling.hlo.passes import transform
from scaling.hlo.shapes import arrays

# Instructions that only name or order values: no kernel runs.
FREE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id"}
    | {"replica-id", "after-all", "add-dependency", "opt-barrier", "get-dimension-size", "domain"}
    | {"rng-get-and-update-state"}
)

# Bytes move, nothing is computed.
MOVES = frozenset(
    {"copy", "transpose", "reshape", "broadcast", "iota", "slice", "dynamic-slice", "pad"}
    | {"dynamic-update-slice", "gather", "concatenate", "reverse", "bitcast-convert"}
    | {"dynamic-reshape"}
)

TRANSCENDENTAL = frozenset(
    {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power"}
    | {"sqrt", "rsqrt", "cbrt", "tanh", "sine", "cosine", "tan", "atan2", "erf"}
    | {"acos", "acosh", "asin", "asinh", "atanh", "cosh", "sinh"}
)

ARITHMETIC = frozenset(
    {"add", "subtract", "multiply", "divide", "remainder", "negate", "abs", "sign"}
    | {"maximum", "minimum", "clamp", "compare", "select", "convert", "stochastic-convert"}
    | {"and", "or", "xor", "not", "shift-left", "shift-right-logical", "shift-right-arithmetic"}
    | {"floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite", "popcnt"}
    | {"count-leading-zeros", "reduce-precision", "complex", "real", "imag", "mulhi"}
)

APPLYING = frozenset({"reduce", "reduce-window", "scatter", "map", "select-and-scatter"})

Vector = tuple[float, float]  # vector FLOPs, transcendentals
NOTHING: Vector = (0.0, 0.0)


def vector_work(instruction: Instruction) -> Vector:
    """Vector FLOPs and transcendentals of one instruction that is no product, fusion or call.

    Raises:
        UnknownHlo: an operation that is in none of the tables, with its line.
    """
    opcode = instruction.opcode
    if opcode in FREE or opcode in MOVES:
        return NOTHING
    count = _elements(instruction)
    if opcode in TRANSCENDENTAL or opcode in ("rng", "rng-bit-generator"):
        return 0.0, count  # a random number costs about as much, as XLA has it
    if opcode in ARITHMETIC:
        return count, 0.0
    if opcode == "fft":
        return transform(instruction).flops, 0.0
    if opcode in ("sort", "topk"):
        operand = arrays(instruction.operands[0].shape)[0]
        along = (*instruction.numbers("dimensions"), -1)[0]  # the sorted dimension, or the last
        length = operand.dims[along] if operand.dims else 1
        return operand.elements * math.log2(max(length, 1)), 0.0
    if opcode in APPLYING:
        flops = transcendentals = 0.0
        for attribute, n in _applications(instruction).items():
            (function,) = instruction.called(attribute)
            for vector, transcendental in map(vector_work, function):
                flops += n * vector
                transcendentals += n * transcendental
        return flops, transcendentals
    raise UnknownHlo(f"no cost is known for {opcode!r}: {instruction.excerpt}")


def window_size(instruction: Instruction) -> tuple[int, ...]:
    """`window={size=3x32 stride=3x32}` -> (3, 32); () without one."""
    found = re.search(r"size=([\dx]+)", instruction.attribute("window") or "")
    return tuple(int(n) for n in found[1].split("x")) if found else ()


def _applications(instruction: Instruction) -> dict[str, float]:
    """Attribute that names a function -> how often an operation applies it."""
    sizes = [float(arrays(o.shape)[0].elements) for o in instruction.operands]
    result, beside = _elements(instruction), math.prod(window_size(instruction)) - 1
    match instruction.opcode:
        case "reduce":
            return {"to_apply": sizes[0] - result}
        case "reduce-window":
            return {"to_apply": beside * result}
        case "scatter":  # arrays, indices, updates: as many updates as arrays
            return {"to_apply": sizes[len(sizes) // 2 + 1]}
        case "select-and-scatter":
            return {"select": beside * sizes[1], "scatter": sizes[1]}
    return {"to_apply": result}  # map


def _elements(instruction: Instruction) -> float:
    """Elements of the result; of the first one, if there are several."""
    return float(arrays(instruction.shape)[0].elements)
