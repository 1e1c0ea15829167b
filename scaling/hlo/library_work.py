"""The work of library calls whose shapes tell it: factorisations, solvers, random numbers.

    potrf n^3/3   getrf m n^2 - n^3/3   geqrf, orgqr 2 m n^2 - 2 n^3/3   triangular solve n^2 k
    syevd  4 n^3/3 to a tridiagonal form, 2 n^3 to bring the vectors back
    gesvd  4 m n^2 - 4 n^3/3 to a bidiagonal form, as QR again and 4 n^3/3 for both kinds of vectors

m is the longer side. These are the FLOPs of LAPACK's working note 41 (Blackford and Dongarra,
Installation Guide for LAPACK, 1999, appendix C; Golub and Van Loan, Matrix Computations, chapters
5 and 8, count alike); what is iterated, and what Jacobi's method does more, is left out. How fast a
library does them was measured by nobody here: much of it waits for memory or for the step before.
So they bound the time from below. Calls that only move what they read are known.
"""

import math
import re
from collections.abc import Callable

from scaling.hlo.custom_calls import call_target, type_name
from scaling.hlo.given import Work
from scaling.hlo.parse import Computation, Instruction
from scaling.hlo.shapes import Array, arrays

Flops = Callable[[Array, Array], float]  # of one matrix [.., m, n] and of the second operand

# cu_lu_pivots_to_permutation swaps integers; the others copy, or do a few operations an element.
MOVES = (
    *("cu_lu_pivots_to_permutation", "PadToStatic", "SliceToDynamic", "MoveToHost"),
    *("MoveToDevice", "annotate_device_placement", "__onednn$softmax", "__onednn$layernorm"),
    *("__cudnn$norm", "__gpu$TopK"),
)
THREEFRY = "cu_threefry2x32"
# Threefry-2x32 of 20 rounds, each an addition, a rotation (two shifts, an or) and an exclusive or,
# and 5 injections of the key, makes two numbers (Salmon and others, Parallel Random Numbers, 2011).
THREEFRY_FLOPS = (20 * 5 + 5 * 3) / 2


def library_work(call: Instruction, computation: Computation) -> tuple[Work, bool] | None:
    """The work of a custom call, and whether that is all that decides its time; None: not known."""
    target = call_target(call)
    if target.startswith(MOVES):
        return Work(), True
    if target.startswith(THREEFRY):
        made = sum(array.elements for array in arrays(call.shape))
        return Work(flops=THREEFRY_FLOPS * made), True
    flops = next((count for name, count in SOLVERS.items() if re.search(name, target)), None)
    operands = [arrays(operand.shape)[0] for operand in computation.operands(call)]
    if flops is None or not operands or len(operands[0].dims) < 2:
        return None
    matrix, second = operands[0], operands[min(1, len(operands) - 1)]
    # Four real multiplications and additions for a complex one
    factor = 4.0 if matrix.dtype.startswith("c") else 1.0
    batch = math.prod(matrix.dims[:-2])
    if "compute_uv = true" in (call.attribute("backend_config") or "") and "gesvd" in target:
        flops = _singular_vectors
    total = factor * batch * flops(matrix, second)
    return Work(flops=total, dtype=type_name(matrix.dtype)), False


def _sides(matrix: Array) -> tuple[float, float]:
    """The longer and the shorter side."""
    return float(max(matrix.dims[-2:])), float(min(matrix.dims[-2:]))


def _cholesky(matrix: Array, _: Array) -> float:
    return _sides(matrix)[1] ** 3 / 3


def _lu(matrix: Array, _: Array) -> float:
    m, n = _sides(matrix)
    return m * n**2 - n**3 / 3


def _qr(matrix: Array, _: Array) -> float:
    m, n = _sides(matrix)
    return 2 * m * n**2 - 2 * n**3 / 3


def _solve(matrix: Array, right: Array) -> float:
    """All right-hand sides of a triangular matrix."""
    n = _sides(matrix)[1]
    return n * math.prod(right.dims[-2:])


def _eigenvectors(matrix: Array, _: Array) -> float:
    return (4 / 3 + 2) * _sides(matrix)[1] ** 3


def _tridiagonal(matrix: Array, _: Array) -> float:
    return 4 * _sides(matrix)[1] ** 3 / 3


def _singular_values(matrix: Array, _: Array) -> float:
    m, n = _sides(matrix)
    return 4 * m * n**2 - 4 * n**3 / 3


def _singular_vectors(matrix: Array, right: Array) -> float:
    values, n = _singular_values(matrix, right), _sides(matrix)[1]
    return values + _qr(matrix, right) + 4 * n**3 / 3


SOLVERS: dict[str, Flops] = {
    r"potrf": _cholesky,
    r"getrf": _lu,
    r"geqrf|orgqr|ungqr": _qr,
    r"triangularSolve|trsm": _solve,
    r"syevd|heevd|syev": _eigenvectors,
    r"sytrd|hetrd": _tridiagonal,
    r"gesvd|gesdd": _singular_values,
}
