"""Environment variables that must be set before jax looks for GPUs."""

import ctypes
import importlib.util
import os
import sys
from collections.abc import MutableMapping

from scaling.meshes.memory_pool import MEMORY_FRACTION, VARIABLES

MEMORY_VARIABLE, OLD_MEMORY_VARIABLE = VARIABLES


def avoid_absent_gpus() -> None:
    """Keep jax from looking for GPUs where only the CUDA compiler is installed, not a driver.

    Call it before jax makes its devices. Without it each start prints a traceback.
    """
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    if os.environ.get("JAX_PLATFORMS") or not any(map(importlib.util.find_spec, plugins)):
        return
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        os.environ["JAX_PLATFORMS"] = "cpu"
        if "jax" in sys.modules:  # which has read its environment
            sys.modules["jax"].config.update("jax_platforms", "cpu")


def reserve_gpu_memory(env: MutableMapping[str, str] = os.environ) -> None:
    """Let XLA's pool take `MEMORY_FRACTION` of each GPU, unless the user has set the share.

    Call it before jax makes its devices. Other platforms ignore the variable.
    """
    if OLD_MEMORY_VARIABLE not in env:
        env.setdefault(MEMORY_VARIABLE, str(MEMORY_FRACTION))
