"""Which instructions read across the order in which an array lies: transpositions, and products.

    f32[512,256]{1,0} copy(f32[512,256]{0,1} %x)    neighbours of the result lie 512 floats apart
    dot(f32[k,m], f32[k,n]), lhs contracting 0      a row of the left matrix lies apart likewise

A CPU pays for it, in lines of its cache of which it uses one number at a time; which array of a
fusion is read across cannot be told from outside, so all that a transposing fusion reads counts.

The lines of one column are used again for the next, if the cache still has them. It keeps lines by
their address modulo a power of two: a column whose numbers lie s bytes apart takes up as much of it
as if they lay p apart, the largest power of two in s.
"""

import math
import re

from scaling.hlo.fusions import Part
from scaling.hlo.shapes import BITS, Array, arrays


def strided_bytes(parts: list[Part], read: float) -> float:
    """Bytes that a kernel reads across.

    Args:
        parts: what the kernel consists of.
        read: bytes that it reads.
    """
    dots = [part for part in parts if part.instruction.opcode == "dot"]
    if dots:
        return sum(part.share * _left_across(part) for part in dots)
    return read if any(map(_column, parts)) else 0.0


def column_span(parts: list[Part], read: float) -> float:
    """Bytes of cache that one column of all the arrays takes up which a kernel reads across."""
    if any(part.instruction.opcode == "dot" for part in parts):
        return 0.0  # libraries read in blocks
    spans = [
        read / _operand(part).bytes * rows * _power_of_two(stride)
        for part in parts
        for rows, stride in [_column(part) or (0, 1)]
        if rows
    ]
    return max(spans, default=0.0)


def _left_across(part: Part) -> float:
    """Bytes of a product's left operand, if what is summed over does not lie together there."""
    left = _operand(part)
    summed = re.findall(r"\d+", part.instruction.attribute("lhs_contracting_dims") or "")
    order = _order(left)
    across = bool(order) and bool(summed) and order[0] not in map(int, summed)
    return float(left.bytes) if across else 0.0


def _column(part: Part) -> tuple[int, int] | None:
    """(numbers, bytes from one to the next) that lie apart and come together; None: none do."""
    instruction = part.instruction
    if instruction.opcode not in ("copy", "transpose") or not part.share:
        return None
    operand, result = _operand(part), arrays(instruction.shape)[0]
    come, lie = _order(result), _order(operand)
    if instruction.opcode == "transpose":
        moved = [int(n) for n in re.findall(r"\d+", instruction.attribute("dimensions") or "")]
        come = [moved[i] for i in come]
    if come[:1] == lie[:1]:
        return None
    rows = math.prod(operand.dims[i] for i in come[: come.index(lie[0])])
    stride = math.prod(operand.dims[i] for i in lie[: lie.index(come[0])])
    return rows, max(1, stride * BITS[operand.dtype] // 8)


def _operand(part: Part) -> Array:
    return arrays(part.computation.operands(part.instruction)[0].shape)[0]


def _order(array: Array) -> list[int]:
    """Dimensions of more than one element, the one along which neighbours lie first; of an array
    without elements none."""
    if not array.elements:
        return []
    order = array.layout or tuple(reversed(range(len(array.dims))))
    return [i for i in order if array.dims[i] > 1]


def _power_of_two(number: int) -> int:
    """The largest that divides it."""
    return number & -number
