"""The work of library calls whose shapes tell it: factorisations, solvers, random numbers.

    potrf n^3/3   getrf m n^2 - n^3/3   geqrf, orgqr 2 m n^2 - 2 n^3/3   triangular solve n^2 k
    syevd    4 n^3/3 to a tridiagonal form, 2 n^3 to bring its vectors back; divide and conquer
             takes up to 4 n^3/3 between them, less where it deflates: none is counted
    gesvd    QR iteration with both kinds of vectors: the less of 14 m n^2 + 8 n^3 and, after a
             QR, 6 m n^2 + 20 n^3, 22 n^3 of a square; values 4 m n^2 - 4 n^3/3, 2 m n^2 + 2 n^3
    gesvdj   Jacobi, one sweep: n^2/2 pairs of columns, each with an inner product (2 m) and a
    syevj    rotation (6 m), and as much again (6 n) for vectors; 3 n^3, and 3 n^3, of a symmetric
    gesvdp   polar: one step by Cholesky 4 m n^2 + n^3/3, U^T A 2 m n^2, its syevd; U 2 m n^2

m is the longer side. Which of them runs stands in the target and its configuration; jax takes
gesvdj up to 1024 x 1024 and gesvd beyond (jax/_src/lax/linalg.py), and syevj up to 32 in the
target named syevd (jaxlib/gpu/solver_kernels_ffi.cc). cuSOLVER's documentation names the methods.

Sources: LAPACK's working note 41 (Blackford and Dongarra, Installation Guide for LAPACK, 1999,
appendix C); Golub and Van Loan, Matrix Computations, 5.4.5 and 8.6.3 for gesvd and chapter 8 for
Jacobi, whose number of sweeps grows like log n and is not known before; Demmel, Applied Numerical
Linear Algebra, 5.3.3 for divide and conquer; Nakatsukasa and Higham, SIAM J. Sci. Comput. 35, 2013,
for the polar steps. QR iteration counts two steps for a singular value, as is usual. The 9 n^3 of
Golub and Van Loan for eigenvectors are of QR iteration (syev), which jax does not call.

All bound the time from below: half of a reduction to tridiagonal or bidiagonal form are products
with vectors, which wait for memory, and how fast a library does the rest was measured by nobody
here. So such a call has no upper end. Calls that only move what they read are known.
"""

import math
import re
from collections.abc import Callable

from scaling.hlo.custom_calls import call_target, type_name
from scaling.hlo.parse import Instruction
from scaling.hlo.shapes import Array, arrays
from scaling.hlo.user_hints import Work

Flops = Callable[[float, float, float], float]  # of one matrix, see FLOPS

# cu_lu_pivots_to_permutation swaps integers; the others copy, or do a few operations an element.
MOVES = tuple(
    "cu_lu_pivots_to_permutation PadToStatic SliceToDynamic MoveToHost MoveToDevice "
    "annotate_device_placement __onednn$softmax __onednn$layernorm __cudnn$norm __gpu$TopK".split()
)
THREEFRY = "cu_threefry2x32"
# Threefry-2x32 of 20 rounds, each an addition, a rotation (two shifts, an or) and an exclusive or,
# and 5 injections of the key, makes two numbers (Salmon and others, Parallel Random Numbers, 2011).
THREEFRY_FLOPS = (20 * 5 + 5 * 3) / 2

ALGORITHM = re.compile(r"\balgorithm = (\d+)")  # of a syevd of jax
DEFAULT, JACOBI = 0, 2  # its values
SMALL = 32  # sides up to which the default is Jacobi


def library_work(call: Instruction) -> tuple[Work, bool] | None:
    """The work of a custom call, and whether that is all that decides its time; None: not known."""
    target = call_target(call)
    if target.startswith(MOVES):
        return Work(), True
    if target.startswith(THREEFRY):
        made = sum(array.elements for array in arrays(call.shape))
        return Work(flops=THREEFRY_FLOPS * made), True
    operands = [arrays(operand.shape)[0] for operand in call.operands]
    if not operands or len(operands[0].dims) < 2:
        return None
    matrix, second = operands[0], operands[min(1, len(operands) - 1)]
    flops = _method(target, call.attribute("backend_config") or "", matrix)
    if flops is None:
        return None
    # Four real multiplications and additions for a complex one
    factor = 4.0 if matrix.dtype.startswith("c") else 1.0
    batch, sides = math.prod(matrix.dims[:-2]), [float(side) for side in matrix.dims[-2:]]
    right = math.prod(second.dims[-2:])
    total = factor * batch * flops(max(sides), min(sides), right)
    return Work(flops=total, dtype=type_name(matrix.dtype)), False


def _method(target: str, config: str, matrix: Array) -> Flops | None:
    """The count of a solver, by its target and configuration."""
    method = next((name for words, name in SOLVERS.items() if re.search(words, target)), None)
    if method == "eigenvectors":
        stated = ALGORITHM.search(config)
        algorithm = int(stated[1]) if stated else DEFAULT
        small = algorithm == DEFAULT and matrix.dims[-1] <= SMALL
        method = "eigenvectors, Jacobi" if algorithm == JACOBI or small else method
    elif method in WITH_VECTORS and "compute_uv = true" in config:
        is_full = "full_matrices = true" in config and method == "singular values"
        method = "singular vectors, all" if is_full else WITH_VECTORS[method]
    return None if method is None else FLOPS[method]


# m and n are the longer and the shorter side, `right` the numbers of the right-hand sides.
FLOPS: dict[str, Flops] = {
    "Cholesky": lambda m, n, right: n**3 / 3,
    "LU": lambda m, n, right: m * n**2 - n**3 / 3,
    "QR": lambda m, n, right: 2 * m * n**2 - 2 * n**3 / 3,
    "triangular": lambda m, n, right: n * right,
    "eigenvectors": lambda m, n, right: (4 / 3 + 2) * n**3,
    "eigenvectors, Jacobi": lambda m, n, right: 6 * n**3,
    "tridiagonal": lambda m, n, right: 4 * n**3 / 3,
    "singular values": lambda m, n, right: min(
        4 * m * n**2 - 4 * n**3 / 3, 2 * m * n**2 + 2 * n**3
    ),
    "singular vectors": lambda m, n, right: min(14 * m * n**2 + 8 * n**3, 6 * m * n**2 + 20 * n**3),
    "singular vectors, all": lambda m, n, right: min(  # all m columns of U
        4 * m**2 * n + 8 * m * n**2 + 9 * n**3, 4 * m**2 * n + 22 * n**3
    ),
    "singular values, Jacobi": lambda m, n, right: n**2 / 2 * 8 * m,
    "singular vectors, Jacobi": lambda m, n, right: n**2 / 2 * 8 * m + n**2 / 2 * 6 * n,
    "singular values, polar": lambda m, n, right: (
        4 * m * n**2 + n**3 / 3 + 2 * m * n**2 + (4 / 3 + 2) * n**3
    ),
    "singular vectors, polar": lambda m, n, right: (
        4 * m * n**2 + n**3 / 3 + 2 * m * n**2 + (4 / 3 + 2) * n**3 + 2 * m * n**2
    ),
}
SOLVERS = {  # words of a target -> what it computes; the first that matches
    r"potrf": "Cholesky",
    r"getrf": "LU",
    r"geqrf|orgqr|ungqr": "QR",
    r"triangularSolve|trsm": "triangular",
    r"syevd|heevd|syev": "eigenvectors",
    r"sytrd|hetrd": "tridiagonal",
    r"gesvdj": "singular values, Jacobi",
    r"gesvdp": "singular values, polar",
    r"gesvd|gesdd": "singular values",
}
WITH_VECTORS = {
    "singular values": "singular vectors",
    "singular values, Jacobi": "singular vectors, Jacobi",
    "singular values, polar": "singular vectors, polar",
}
