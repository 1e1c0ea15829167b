"""Files of token ids, or of other numbers, that are read piece by piece, with `pread`.

A memory map would end the process (SIGBUS) where the file is cut short, or its server is gone;
this is an error with numbers. A window of 1,024 ids takes 3.4 us, 2.1 us of a map (CPU time on this
project's machine, a file of 400 MB that the kernel holds).
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError

PIECE = 1 << 20  # numbers that are read at once where all are: 8 MiB of the longest


class _OpenFile:
    """A file descriptor, closed with the last slice that uses it."""

    def __init__(self, path: Path):
        self.path, self.number = path, os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.number).st_size

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)

    def read(self, left: memoryview, place: int) -> None:
        """Fill `left` with the bytes from `place` on."""
        try:
            while left and (count := os.preadv(self.number, [left], place)):
                left, place = left[count:], place + count
        except OSError as error:
            raise InputError(f"token file {self.path} cannot be read: {error.strerror}") from error
        if left:
            size = os.fstat(self.number).st_size
            raise InputError(
                f"token file {self.path} was cut while it was read: it has {size:,} bytes, and "
                f"{place + len(left):,} are wanted. Put it back as it was."
            )


class TokenFile:
    """Numbers of files, one after the other. A slice reads nothing, `numpy.asarray` of it does."""

    def __init__(self, path: Path, dtype: np.dtype):
        self.dtype, self._files = dtype, [_OpenFile(path)]
        self._ends = [self._files[0].size // dtype.itemsize]
        self._places = range(self._ends[-1])

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, part: slice) -> "TokenFile":
        piece = copy(self)
        piece._places = self._places[part]
        assert piece._places.step == 1
        return piece

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The numbers, read.

        Raises:
            InputError: a file is shorter than when it was opened, or cannot be read.
        """
        numbers, start, begin = np.empty(len(self), self.dtype), self._places.start, 0
        for file, end in zip(self._files, self._ends, strict=True):
            first, last = max(start, begin), min(self._places.stop, end)
            if first < last:
                into = numbers[first - start : last - start].view(np.uint8).data
                file.read(into, (first - begin) * self.dtype.itemsize)
            begin = end
        return numbers if dtype is None else numbers.astype(dtype, copy=False)


Stream = np.ndarray | TokenFile  # numbers [n]


def joined(files: Sequence[TokenFile]) -> TokenFile:
    """Whole files of one dtype, one after the other."""
    whole = copy(files[0])
    whole._files = [opened for file in files for opened in file._files]
    whole._ends = list(itertools.accumulate(len(file) for file in files))
    whole._places = range(whole._ends[-1])
    return whole


def pieces(stream: Stream, length: int = PIECE) -> Iterator[np.ndarray]:
    """All of a stream, so many numbers at a time."""
    for start in range(0, len(stream), length):
        yield np.asarray(stream[start : start + length])


def total(stream: Stream) -> int:
    """The sum of a stream of integers."""
    return sum(int(piece.sum(dtype=np.int64)) for piece in pieces(stream))
