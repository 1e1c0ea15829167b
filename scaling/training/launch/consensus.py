"""Values that the processes of a job agree on; all of them call these at the same points.

Only a Coordinator's keys each writes and reads when it likes.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.typing import ArrayLike

from scaling.meshes.errors import InputError

HOST_NAME = 64  # bytes of the longest name of a host on Linux (gethostname(2))


def gather(value: ArrayLike) -> np.ndarray:
    """The values of all processes, stacked: [processes, ...]."""
    return np.asarray(multihost_utils.process_allgather(np.asarray(value)))


def on_host(array: ArrayLike) -> np.ndarray:
    """The whole of an array, also where processes have parts of it."""
    whole = lambda x: x.is_fully_addressable or x.is_fully_replicated
    if isinstance(array, jax.Array) and not whole(array):
        array = multihost_utils.process_allgather(array, tiled=True)
    return np.asarray(array)


def process_names() -> list[str]:
    """`process 1 (node7)`, of each process."""
    host = socket.gethostname().encode()[:HOST_NAME].ljust(HOST_NAME)
    hosts = gather(np.frombuffer(host, np.uint8)).reshape(-1, len(host))
    return [f"process {i} ({bytes(name).decode().rstrip()})" for i, name in enumerate(hosts)]


def broadcast_from_first(value: int) -> int:
    """The number or truth value of process 0."""
    return int(multihost_utils.broadcast_one_to_all(np.array(value)))


def all_processes(verdict: bool) -> bool:
    """True if the verdict of every process is."""
    return bool(gather(verdict).all())


@contextmanager
def refused_by_all(elsewhere: str) -> Iterator[None]:
    """Let an InputError of one process end all of them.

    Raises:
        InputError: this process's own, or `elsewhere` where it is another's, who prints its own.
    """
    problem: InputError | None = None
    try:
        yield
    except InputError as error:
        problem = error
    if not all_processes(problem is None):
        raise problem or InputError(elsewhere)


def mismatched_processes(numbers: np.ndarray) -> list[int]:
    """Processes whose numbers, [n] on each, are not those of process 0."""
    everybody = gather(numbers)
    return [int(i) for i in np.flatnonzero((everybody != everybody[0]).any(axis=1))]


@dataclass(frozen=True)
class Coordinator:
    """The keys and values of jax's coordination service, which its public interface lacks."""

    client: Any
    prefix: str

    def set(self, key: str, text: str) -> None:
        """Write, over what was there."""
        self.client.key_value_set(self.prefix + key, text, allow_overwrite=True)

    def get(self, key: str) -> str | None:
        """Read; None if nothing is there."""
        try:
            return self.client.key_value_try_get(self.prefix + key)
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" not in str(error):
                raise
            return None

    def below(self, folder: str) -> dict[str, str]:
        """All below a folder."""
        pairs = self.client.key_value_dir_get(self.prefix + folder)
        return {key.rpartition("/")[2]: text for key, text in pairs}
