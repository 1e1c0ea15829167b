"""Fourier transforms: passes over memory, and FLOPs.

    n = 2^20   [ read, transform parts of it in a core's memory, write ] twice
    8 x 512    an axis after the other, each a pass; one pass for all that a core's memory holds
    n = 8191   a convolution of length m = 16384 by two transforms of it (Bluestein)

A pass reads and writes the whole array once, and transforms what a block of threads holds in shared
memory, so an axis of n takes ceil(log n / log held) of them: the usual decomposition (Tolmachev,
VkFFT, IEEE Access 11, 2023; Bailey, FFTs in External or Hierarchical Memory, 1990). cuFFT does not
say what it holds. At least it is as if a block held the most that any has; at most what every GPU
gives without asking, and then the arrays between two passes are found in the L2 cache as far as
that holds them. Nobody has timed cuFFT here.
"""

import math
import re
from dataclasses import dataclass

from scaling.hlo.parse import Computation, Instruction
from scaling.hlo.shapes import Array, arrays

FFT_FLOPS = 5  # x N log2 N of a complex transform: the convention of fftw.org/speed
# Bytes of shared memory of a block: what each has without asking, and the most, on Hopper (CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability")
STATIC, MOST = 48 * 1024, 227 * 1024
# Lengths with larger prime factors are convolved: cuFFT has kernels for factors up to 127
# (vincefn/pyvkfft, its benchmark's options; cuFFT's documentation promises those up to 7).
PRIMES = [p for p in range(2, 128) if all(p % d for d in range(2, p))]


@dataclass(frozen=True)
class Transform:
    """The work of an `fft` instruction."""

    flops: float
    bytes: float  # read and written, of the least passes
    again: float  # bytes of further passes, if the arrays between them are not found in a cache
    spread: float  # bytes of such an array


def transform(fft: Instruction, computation: Computation) -> Transform:
    """The work of an `fft` of complex numbers, or of real ones, which is half as much."""
    operand, result = arrays(computation.operands(fft)[0].shape)[0], arrays(fft.shape)[0]
    lengths = [int(n) for n in re.findall(r"\d+", fft.attribute("fft_length") or "")]
    real = 0.5 if operand.dtype.startswith("f") else 1.0
    flops = real * FFT_FLOPS * operand.elements * sum(map(_steps, lengths))
    if "RFFT" in (fft.attribute("fft_type") or "") and lengths[-1:] > [1]:
        lengths[-1] = math.ceil(lengths[-1] / 2)  # two real numbers as one
    width = _width(operand)
    least, most = (_passes(lengths, held // width) for held in (MOST, STATIC))
    moved = operand.bytes + result.bytes
    spread = float(max(operand.bytes, result.bytes))
    return Transform(flops, least * moved, max(0.0, most - least) * moved, spread)


def _width(array: Array) -> int:
    """Bytes of a complex number of an array's precision."""
    return 16 if array.dtype in ("f64", "c128") else 8


def _passes(lengths: list[int], held: int) -> float:
    """Passes over the array, where a block of threads holds so many numbers."""
    if math.prod(map(_padded, lengths)) <= held:
        return 1.0
    return sum(_passes_of(n, held) for n in lengths if n > 1)


def _passes_of(n: int, held: int) -> float:
    m = _padded(n)
    if m <= held:
        return 1.0
    passes = math.ceil(math.log(m) / math.log(held))
    return passes if m == n else 2 * passes * m / n


def _steps(n: int) -> float:
    """log2 n, and of a length that is convolved as much as that takes."""
    m = _padded(n)
    return math.log2(max(n, 1)) if m == n else 2 * math.log2(m) * m / n


def _padded(n: int) -> int:
    """The length that is transformed: n, or of a convolution the next power of two from 2n - 1."""
    rest = max(n, 1)
    for prime in PRIMES:
        while rest % prime == 0:
            rest //= prime
    return max(n, 1) if rest == 1 else 1 << (2 * n - 2).bit_length()
