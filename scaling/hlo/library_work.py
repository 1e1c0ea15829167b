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

Each works on column after column, and a column waits for the one before: that takes far longer than
the FLOPs of what a training step factorises, and as long on one chip as on another. So besides the
roofline of its FLOPs a call has a chain of steps,

    seconds = each x n^power     n: the shorter side; times the batch, where jax loops over it

A batch of triangular solves is one call (xla/service/gpu/triangular_solve_thunk.cc), and so is one
of small matrices (jaxlib/gpu/solver_kernels_ffi.cc: getrf of squares with n / batch <= 128, geqrf
with both sides so, gesvdj up to 32 x 32). Nobody timed these here: they take between one matrix and
all of them in turn, and are priced at the geometric mean.

`TIMED`, fitted to published times (experiments/published/library_timings.csv has all rows with
source, date and chip; `python -m experiments.published.score_library` the errors). Nobody timed
other methods here: they have no upper end. Calls that only move what they read are known.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from scaling.hlo.custom_calls import call_target, type_name
from scaling.hlo.parse import Instruction
from scaling.hlo.shapes import Array, arrays
from scaling.hlo.user_hints import Work

Flops = Callable[[float, float, float], float]  # of one matrix, see FLOPS


@dataclass(frozen=True)
class LibraryWork:
    """What a call does, and the steps in it that wait for one another."""

    work: Work
    is_known: bool = True  # whether that is all that decides its time
    chain: float = 0.0  # s
    error: float = 1.0  # factor between published times and the price; 1: none is needed
    share: float = 1.0  # rate of its products over that of the best kernel of the chip


@dataclass(frozen=True)
class Chain:
    """Seconds of the steps of a factorisation by the shorter side of the matrix."""

    each: float  # s
    power: float
    error: float  # factor that holds nine of ten published times that were not fitted
    loops: bool = True  # over a batch, one matrix after the other
    imaginary: float = 1.0  # times as long for complex numbers


# cu_lu_pivots_to_permutation swaps integers; the others copy, or do a few operations an element.
MOVES = tuple(
    "cu_lu_pivots_to_permutation PadToStatic SliceToDynamic MoveToHost MoveToDevice "
    "annotate_device_placement __onednn$softmax __onednn$layernorm __cudnn$norm".split()
)
TOP_K = "__gpu$TopK"  # one block of threads a row
# s of a call, and of each element of a row: torch.topk, likewise a block a row, takes 14.3 to
# 42.2 us for 128 to 8,192 bf16 numbers on an RTX 4080 SUPER (intel/torch-xpu-ops, pull request
# 3369, 2026-04). XLA's own kernel is another, which nobody timed here: hence the error.
ROW, ELEMENT, ROW_ERROR = 10e-6, 3.4e-9, 4.0
THREEFRY = "cu_threefry2x32"
# Threefry-2x32 of 20 rounds, each an addition, a rotation (two shifts, an or) and an exclusive or,
# and 5 injections of the key, makes two numbers (Salmon and others, Parallel Random Numbers, 2011).
THREEFRY_FLOPS = (20 * 5 + 5 * 3) / 2

ALGORITHM = re.compile(r"\balgorithm = (\d+)")  # of a syevd of jax
DEFAULT, JACOBI = 0, 2  # its values
SMALL = 32  # sides up to which the default is Jacobi, and a batch of Jacobi's SVD is one call
BATCHED = 128  # sides by the batch, up to which cuBLAS takes all of it in one call


def library_work(call: Instruction) -> LibraryWork | None:
    """The work of a custom call; None: not known."""
    target = call_target(call)
    if target.startswith(MOVES):
        return LibraryWork(Work())
    if target.startswith(THREEFRY):
        made = sum(array.elements for array in arrays(call.shape))
        return LibraryWork(Work(flops=THREEFRY_FLOPS * made))
    operands = [arrays(operand.shape)[0] for operand in call.operands]
    if target == TOP_K and operands:
        return LibraryWork(Work(), chain=ROW + ELEMENT * operands[0].dims[-1], error=ROW_ERROR)
    if not operands or len(operands[0].dims) < 2:
        return None
    matrix, second = operands[0], operands[min(1, len(operands) - 1)]
    method = _method(target, call.attribute("backend_config") or "", matrix)
    if method is None:
        return None
    # Four real multiplications and additions for a complex one
    factor = 4.0 if matrix.dtype.startswith("c") else 1.0
    batch, sides = math.prod(matrix.dims[:-2]), [float(side) for side in matrix.dims[-2:]]
    right = math.prod(second.dims[-2:])
    total = factor * batch * FLOPS[method](max(sides), min(sides), right)
    work = Work(flops=total, dtype=type_name(matrix.dtype))
    timed = TIMED.get(method.removesuffix(", all").replace("vectors", "values", 1))
    if timed is None or not total:
        return LibraryWork(work, is_known=False)
    chain = timed.each * min(sides) ** timed.power * (timed.imaginary if factor > 1 else 1.0)
    if _is_one_call(target, batch, matrix):
        between = math.sqrt(batch)
        return LibraryWork(work, chain=chain * between, error=timed.error * between)
    return LibraryWork(work, chain=chain * (batch if timed.loops else 1), error=timed.error)


def _is_one_call(target: str, batch: int, matrix: Array) -> bool:
    """Whether one call that nobody timed here takes a batch of matrices."""
    rows, columns = matrix.dims[-2:]
    if batch == 1:
        return False
    if "gesvdj" in target:
        return max(rows, columns) <= SMALL
    if "geqrf" in target or ("getrf" in target and rows == columns):
        return max(rows, columns) // batch <= BATCHED
    return "triangularSolve" in target


def _method(target: str, config: str, matrix: Array) -> str | None:
    """What a solver computes, a key of FLOPS, by its target and configuration."""
    method = next((name for words, name in SOLVERS.items() if re.search(words, target)), None)
    if method == "eigenvectors":
        stated = ALGORITHM.search(config)
        algorithm = int(stated[1]) if stated else DEFAULT
        small = algorithm == DEFAULT and matrix.dims[-1] <= SMALL
        method = "eigenvectors, Jacobi" if algorithm == JACOBI or small else method
    elif method in WITH_VECTORS and "compute_uv = true" in config:
        is_full = "full_matrices = true" in config and method == "singular values"
        method = "singular vectors, all" if is_full else WITH_VECTORS[method]
    return method


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
# Fitted (fit) and held against other rows (score, system) of library_timings.csv:
TIMED = {
    # NVIDIA's chips, 2021; batches in one call, which take up to 2.7 times as long
    "Cholesky": Chain(1.57e-6, 0.944, error=3.0, loops=False),
    # LU and two triangular solves of one matrix, 2020; LU 5/8 of it (pytorch 56887, 2021)
    "LU": Chain(0.92e-6, 1.197, error=3.0),
    "triangular": Chain(0.28e-6, 1.197, error=3.0),
    # JAX on an A100 40 GB: geqrf and orgqr, half each; eigh
    "QR": Chain(2.1e-6, 1.081, error=1.8),
    "eigenvalues": Chain(9.95e-6, 1.259, error=4.0),
    # jax-ml/jax, issue 31368 (2025-08, chip not stated), up to 512; one call for a batch
    "eigenvalues, Jacobi": Chain(1.0e-4, 0.35, error=3.0, loops=False),
    # PyTorch on a V100, 2021
    "singular values, Jacobi": Chain(6.17e-6, 1.325, error=4.0, imaginary=4.0),
    # tenferro-rs on an A100 80 GB, 2026; the polar one of a single matrix
    "singular values": Chain(3.53e-6, 1.586, error=4.0),
    "singular values, polar": Chain(1.53e-5, 1.2, error=4.0),
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
