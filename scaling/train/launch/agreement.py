"""Values that the processes of a job agree on; all of them call these at the same points."""

import jax
import numpy as np
from jax.experimental import multihost_utils


def broadcast_from_first(value: int) -> int:
    """The number or truth value of process 0."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.array(value)))


def all_processes(verdict: bool) -> bool:
    """True if the verdict of every process is."""
    if jax.process_count() == 1:
        return verdict
    return bool(multihost_utils.process_allgather(np.array(verdict)).all())


def mismatched_processes(numbers: np.ndarray) -> list[int]:
    """Processes whose numbers, [n] on each, are not those of process 0."""
    if jax.process_count() == 1:
        return []
    everybody = multihost_utils.process_allgather(numbers)
    return [int(i) for i in np.flatnonzero((everybody != everybody[0]).any(axis=1))]
