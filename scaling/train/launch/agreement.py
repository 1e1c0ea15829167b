"""What all processes of a job must take for the same, asked at the same point of each."""

import jax
import numpy as np
from jax.experimental import multihost_utils


def broadcast_from_first(verdict: bool) -> bool:
    """What process 0 finds; the others may see an older state of a shared folder."""
    if jax.process_count() == 1:
        return verdict
    return bool(multihost_utils.broadcast_one_to_all(np.array(verdict)))


def all_processes(verdict: bool) -> bool:
    """Whether every process finds so."""
    if jax.process_count() == 1:
        return verdict
    return bool(multihost_utils.process_allgather(np.array(verdict)).all())


def mismatched_processes(numbers: np.ndarray) -> list[int]:
    """Processes whose numbers, [n] on each, are not those of process 0."""
    if jax.process_count() == 1:
        return []
    everybody = multihost_utils.process_allgather(numbers)
    return [int(i) for i in np.flatnonzero((everybody != everybody[0]).any(axis=1))]
