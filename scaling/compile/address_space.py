"""The address space that jax needs: where `ulimit -v` leaves less, its C++ ends the process."""

import resource

from scaling.meshes.errors import InputError

# Bytes; on two cores `scaling train tiny` ends well with 3.5e9, and is aborted by a thread that
# cannot begin, without a message, with 3.28e9 (jaxlib 0.10.2, CPU devices). GPUs need far more.
LEAST = 3.3e9


def check_address_space() -> None:
    """Refuse a limit of the address space with which no program can be compiled and run.

    Raises:
        InputError: the limit, and how to lift it.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < LEAST:
        raise InputError(
            f"this process may use {limit / 1e9:.1f} GB of address space, and jax needs "
            f"{LEAST / 1e9:.1f} GB at least: lift the limit (ulimit -v unlimited)"
        )
