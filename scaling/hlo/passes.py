"""Operations that go over their arrays several times: Fourier transforms and sorts.

Fourier transforms:

    n = 2^20   [ read, transform parts of it in a core's memory, write ] twice
    8 x 512    an axis after the other, each a pass; one pass for all that a core's memory holds
    n = 8191   a convolution of length m = 16384 by two transforms of it (Bluestein)

A pass reads and writes the whole array once, and transforms what a block of threads holds in shared
memory, so an axis of n takes ceil(log n / log held) of them: the usual decomposition (Tolmachev,
VkFFT, IEEE Access 11, 2023; Bailey, FFTs in External or Hierarchical Memory, 1990). cuFFT does not
say what it holds. At least it is as if a block held the most that any has; at most what every GPU
gives without asking, and then the arrays between two passes are found in the L2 cache as far as
that holds them. cuFFT on an RTX 3080 was held against that (docs/costs/kernels.md).

Sorts on a GPU:

    network   XLA's own: bitonic, one pass for every exchange over more than a tile, one for those
              inside (openxla/xla, xla/service/gpu, EmitSortThunkSequence and what it was before)
    radix     CUB's, for one or two arrays: a pass for every 8 bits of the key, and the keys read
              once before (Adinets and Merrill, Onesweep, arXiv 2206.01784)

A compile where no GPU is has networks only, though XLA takes CUB where it can: the cheaper of both
is priced. Positions that XLA adds to keep equal keys in order are no array of CUB's.
"""

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass

from scaling.hlo.parse import Instruction
from scaling.hlo.shapes import Array, arrays

FFT_FLOPS = 5  # x N log2 N of a complex transform: the convention of fftw.org/speed
# Bytes of shared memory of a block: what each has without asking, and the most, on Hopper (CUDA C++
# Programming Guide, "Technical Specifications per Compute Capability")
STATIC, MOST = 48 * 1024, 227 * 1024
# Lengths with larger prime factors are convolved: cuFFT has kernels for factors up to 127
# (vincefn/pyvkfft, its benchmark's options; cuFFT's documentation promises those up to 7).
PRIMES = [p for p in range(2, 128) if all(p % d for d in range(2, p))]
# Elements: 1,024 threads, the most of a block, with four each; a smaller one: more passes.
TILE = 4096
MOST_ARRAYS = 2  # keys and values, of CUB's sort
DIGIT = 1  # bytes of a key that a pass of CUB's sort looks at
# s from one tiny kernel to the next: a scan of three takes 8.05 us an iteration (QuantEcon/lecture-
# python-programming, pull request 437, JAX 0.8.1, chip not stated, 2025-11-27). CUB's sort of
# 200,000 keys with values, of as many kernels as digits and two, takes 63 us on an RTX PRO 6000
# (ggml-org/llama.cpp, tests of argsort, 2025), which is this three times over: hence the error.
LAUNCH, LAUNCH_ERROR = 2.7e-6, 4.0
NOMINAL = 2e12  # bytes/s of a chip, by which the cheaper way to sort is told: A100 to H100
CUB = "__cub$DeviceRadixSort"  # how the targets of XLA's calls of it begin


@dataclass(frozen=True)
class Sorting:
    """The work of a sort: bytes read and written, and kernels one after the other."""

    bytes: float
    kernels: int

    @property
    def launching(self) -> float:
        """Seconds from one kernel to the next, all of them."""
        return LAUNCH * (self.kernels - 1)


@dataclass(frozen=True)
class Transform:
    """The work of an `fft` instruction."""

    flops: float
    bytes: float  # read and written, of the least passes
    again: float  # bytes of further passes, if the arrays between them are not found in a cache
    spread: float  # bytes of such an array


def transform(fft: Instruction) -> Transform:
    """The work of an `fft` of complex numbers, or of real ones, which is half as much."""
    operand, result = arrays(fft.operands[0].shape)[0], arrays(fft.shape)[0]
    lengths = list(fft.numbers("fft_length"))
    real = 0.5 if operand.dtype.startswith("f") else 1.0
    flops = real * FFT_FLOPS * operand.elements * sum(map(_steps, lengths))
    if "RFFT" in (fft.attribute("fft_type") or "") and lengths[-1:] > [1]:
        lengths[-1] = math.ceil(lengths[-1] / 2)  # two real numbers as one
    width = 16 if operand.dtype in ("f64", "c128") else 8  # bytes of a complex number
    least, most = (_passes(lengths, held // width) for held in (MOST, STATIC))
    moved = operand.bytes + result.bytes
    spread = float(max(operand.bytes, result.bytes))
    return Transform(flops, least * moved, max(0.0, most - least) * moved, spread)


def _passes(lengths: list[int], held: int) -> float:
    """Passes over the array, where a block of threads holds so many numbers."""
    if math.prod(map(_padded, lengths)) <= held:
        return 1.0
    total = 0.0
    for n, m in ((n, _padded(n)) for n in lengths if n > 1):
        passes = 1.0 if m <= held else math.ceil(math.log(m) / math.log(held))
        total += passes if m <= held or m == n else 2 * passes * m / n
    return total


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


def sorting(sort: Instruction, used: Container[int]) -> Sorting:
    """The work of a `sort` on a GPU; `used` are the numbers of results in use."""
    found, last = arrays(sort.shape), sort.operands[-1]
    added = last.opcode == "iota" and len(found) - 1 not in used
    along = sort.numbers("dimensions")
    length = found[0].dims[along[0]] if along and found[0].dims else 1
    passes, moved = network_passes(length), float(sum(array.bytes for array in found))
    network = Sorting(2 * passes * moved, passes)
    sorted_by_cub = found[:-1] if added else found
    if not 1 <= len(sorted_by_cub) <= MOST_ARRAYS:
        return network
    seconds = lambda way: way.bytes / NOMINAL + way.launching
    return min(network, radix_sorting(sorted_by_cub), key=seconds)


def network_passes(length: int) -> int:
    """Times that a bitonic network over `length` elements goes over the memory."""
    stages = math.ceil(math.log2(max(2, length)))
    passes, is_inside = 0, False
    for stage in range(stages):
        for mask in range(stage, -1, -1):
            distance = 2 ** (stage + 1) - 1 if mask == stage else 2**mask
            is_wide = distance >= TILE
            passes += is_wide or not is_inside
            is_inside = not is_wide
    return passes


def radix_sorting(found: Sequence[Array]) -> Sorting:
    """The work of a radix sort of keys, and of values with them."""
    key, total = found[0], float(sum(array.bytes for array in found))
    digits = math.ceil(key.bytes / max(1, key.elements) / DIGIT)
    return Sorting(2 * digits * total + key.bytes, digits + 2)
