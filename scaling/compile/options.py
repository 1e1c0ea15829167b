"""Compiler options and jax settings, the same for training and for predicting a step.

They are passed with each compile, never through XLA_FLAGS, which is process-wide.
"""

import warnings
from pathlib import Path

import jax

from scaling.meshes.reading import cache_path

GPU_OPTIONS: dict[str, bool | str] = {
    # Starts each collective as early as its inputs allow, waits for it as late as its users allow.
    "xla_gpu_enable_latency_hiding_scheduler": True,
    # Not set: xla_gpu_enable_pipelined_all_gather / _reduce_scatter / _all_reduce, which move a
    # layer's collectives into the neighbouring iteration of the layer scan. Compiled for 8 H100
    # they cost 8 % more memory (jax 0.10.2, 4 layers); their effect on time is not measured.
}
MIN_COMPILE_TIME = 1.0  # s; programs that compile faster are not kept (jax's own default)


def compiler_options(platform: str) -> dict[str, bool | str]:
    """Options for `lowered.compile(compiler_options=...)` on "gpu"/"cuda", "cpu" or "tpu"."""
    return dict(GPU_OPTIONS) if platform in ("gpu", "cuda") else {}


def use_compilation_cache(folder: Path | None = None) -> Path | None:
    """Keep compiled programs on disk, so that the second start of a run compiles nothing.

    Args:
        folder: where; None: $SCALING_CACHE or ~/.cache/scaling, in a folder per jax version.

    Returns:
        The folder used, or None (with a warning) where it cannot be made.
    """
    folder = folder or cache_path(f"xla-jax-{jax.__version__}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        warnings.warn(f"no compilation cache: {error}; set SCALING_CACHE", stacklevel=2)
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_COMPILE_TIME)
    return folder
