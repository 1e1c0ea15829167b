"""XLA's memory pool on a GPU: the share of the memory that it is given when JAX starts.

our trainer        MEMORY_FRACTION
other programs     as the caller says, else XLA_CLIENT_MEM_FRACTION, else XLA's default of 0.75
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from scaling.meshes.errors import InputError

# The trainer sets XLA_CLIENT_MEM_FRACTION to this share; a predicted step of it fits if the pool
# holds it. 0.92 is in public launch scripts of MaxText (A3 Mega, up to 128 hosts). The rest, 6.8 of
# 85 GB, is for the CUDA context, the libraries and NCCL's buffers, outside the pool.
MEMORY_FRACTION = 0.92


@dataclass(frozen=True)
class Pool:
    """The share of a GPU's memory that XLA's pool is given, and who says so."""

    share: float
    source: str


TRAINERS = Pool(MEMORY_FRACTION, "the share of XLA's pool")
# docs.jax.dev, "GPU memory allocation" (reviewed 2026-07-10).
XLA_DEFAULT = Pool(0.75, "XLA's default share for its pool; XLA_CLIENT_MEM_FRACTION sets another")
# Read by jaxlib 0.10.2 (xla_client.py: generate_pjrt_gpu_plugin_options), which refuses both.
VARIABLES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


def xla_pool(fraction: float | None = None, env: Mapping[str, str] = os.environ) -> Pool:
    """The pool of a program that is not ours: as given, else as the environment says, else XLA's.

    Raises:
        InputError: a share that is no number above 0 and at most 1; both variables are set.
    """
    if fraction is not None:
        return Pool(_share("--memory-fraction", fraction), "the share of XLA's pool that was given")
    stated = [name for name in VARIABLES if env.get(name)]
    if len(stated) > 1:
        raise InputError(f"{' and '.join(stated)} are both set, which jax refuses: unset one")
    for name in stated:
        share = _share(name, env[name])
        return Pool(share, f"the share of XLA's pool that {name} of this environment sets")
    return XLA_DEFAULT


def _share(name: str, value: float | str) -> float:
    """The value as a share; InputError names where it comes from."""
    try:
        share = float(value)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise InputError(f"{name}={value} must be a share of the memory, above 0 and at most 1")
    return share
