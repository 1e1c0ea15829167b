"""Compiler options and jax settings, the same for training and for predicting a step.

They are passed with each compile, never through XLA_FLAGS, which is process-wide. What the user
sets goes before ours, wherever it stands:

    options of the call > compiler_options of jax.jit > XLA_FLAGS > ours

Where nothing will run the program, the machine code of kernels, which nothing here reads, is left
out:

    HLO passes -> schedule, plan of memory -> | LLVM -> PTX -> ptxas -> machine code
                  what is read                | what is left out, as far as XLA lets it be

XLA has no option that stops it at the line. LLVM optimises nothing, and in the place of NVIDIA's
ptxas, a process for each kernel, stands a script that writes one byte. For MaxText's Llama-2 7B
that is 3.5 s of CPU instead of 7.4 s. Texts and plans are the same to the letter
(experiments/results/2026-11-23-kernels-left-out).
"""

import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from scaling.meshes.errors import InputError
from scaling.meshes.reading import cache_path
from scaling.program.versions import xla_flags

Options = Mapping[str, bool | str | int]  # of XLA, by name

# Moves a layer's sums of gradients into the next iteration of the layer scan, beside its compute.
# Of 14 sets of options priced for 13 steps on H100 the best in median and mean of those that XLA
# compiles everywhere: -4.1 and -3.3 %, -8.4 to +4.1 %, memory -17 to +3 %
# (experiments/results/2026-11-23-xla-options, jax 0.10.2). XLA has other names for them from jaxlib
# 0.11.1 on, and modes, of which the default follows XLA's level of optimisation.
ON = "COLLECTIVE_PIPELINING_MODE_ON"
PIPELINED: Options = (
    {"xla_gpu_pipeline_reduce_scatter": ON, "xla_gpu_pipeline_all_reduce": ON}
    if jax.__version_info__ >= (0, 11, 1)
    else {
        "xla_gpu_enable_pipelined_reduce_scatter": True,
        "xla_gpu_enable_pipelined_all_reduce": True,
    }
)
GPU_OPTIONS: Options = {
    # Starts each collective as early as its inputs allow, waits for it as late as its users allow.
    "xla_gpu_enable_latency_hiding_scheduler": True,
    **PIPELINED,
}
# Of each operation the implementation that gives the same bits at every run (it implies
# xla_gpu_exclude_nondeterministic_ops: openxla/xla#12520), and no kernel chosen by timing it.
DETERMINISTIC: Options = {"xla_gpu_deterministic_ops": True, "xla_gpu_autotune_level": 0}
WITHOUT_DEVICE: Options = {"xla_gpu_autotune_level": 0}  # kernels cannot be timed
# For compiles of which nothing will run: LLVM optimises no kernel. The schedule is the same.
QUICK: Options = {"xla_backend_optimization_level": 0}
# What a compiler needs from a CUDA toolkit, by words of XLA's messages where it is missing
TOOLKIT_MISSING = ("libdevice not found", "No PTX compilation provider")
# What cures a failure of XLA, by words of its message. For products of odd sizes its Triton
# products have no tiles (nnx.MultiHeadAttention of 197 tokens, 12 heads of 64; jaxlib 0.10.2).
CURES: Mapping[str, tuple[Options, str]] = {
    "Couldn't find output tile sizes": (
        {"xla_gpu_enable_triton_gemm": False},
        "XLA fails with its Triton products (no tile sizes): compiled without them",
    ),
}
UNKNOWN = re.compile(r"No such compile option: '(\w+)'")  # XLA's refusal of a name
NO_VALUE = re.compile(r"While setting option (\w+),")  # and of a value, or of its type
NO_ASSEMBLER = Path(__file__).parent / "no_assembler"  # as a CUDA toolkit: bin/ptxas
TOOLKIT = "xla_gpu_cuda_data_dir"  # XLA's option: where it looks first for the toolkit
TOOLS = ("ptxas", "PTX", "libdevice", "cubin")  # in messages of what the script could be at fault
MIN_COMPILE_TIME = 1.0  # s; programs that compile faster are not kept (jax's own default)


def compiler_options(
    platform: str, deterministic: bool = False, xla: Options | None = None
) -> dict[str, bool | str | int]:
    """Options for `compile_with` on "gpu"/"cuda", "cpu" or "tpu"; `xla` of the user go last.

    Where XLA_FLAGS has one of ours, XLA is left to read it there.
    """
    flags = xla_flags()
    ours = {name: value for name, value in GPU_OPTIONS.items() if name not in flags}
    ours |= DETERMINISTIC if deterministic else {}
    return {**(ours if platform in ("gpu", "cuda") else {}), **(xla or {})}


def check_options(options: Mapping[Any, Any]) -> None:
    """Raise InputError unless each option has a name and a value that XLA's flags can have."""
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, bool | str | int | float):
            raise InputError(
                f"options: {name!r} is {value!r}; write flags of XLA by name, such as "
                "{'xla_gpu_enable_triton_gemm': False}"
            )


def compile_with(lowered: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
    """Compile with these options, less those of ours that this jax does not know.

    Those of XLA_FLAGS that a call cannot set are left to XLA, which reads the variable itself.
    Where XLA fails by a fault of its own, without the pipelined ones, with a warning.

    Raises:
        InputError: an option of the user that XLA does not know.
        RuntimeError: XLA fails still (jax.errors.JaxRuntimeError, or a plain one).
    """
    given: dict[str, Any] = dict(options)
    try:
        return lowered.compile(compiler_options=given)
    except RuntimeError as error:
        unknown, no_value = UNKNOWN.search(str(error)), NO_VALUE.search(str(error))
        own_fault = "INTERNAL" in str(error)
        own_fault &= not any(words in str(error) for words in (*CURES, *TOOLKIT_MISSING))
        flags = {name for name, value in xla_flags().items() if options.get(name) == value}
        without = {*PIPELINED} if own_fault else set()
        if refused := unknown or no_value:
            without = {refused[1]} & {*flags, *((*GPU_OPTIONS, *QUICK) if unknown else ())}
        fewer = {name: value for name, value in options.items() if name not in without}
        if len(fewer) == len(options):
            if unknown:
                raise InputError(f"XLA has no option {unknown[1]!r}: leave it out") from None
            raise
        if not refused:
            first = str(error).splitlines()[0]
            warnings.warn(f"XLA fails ({first}); compiled without {sorted(without)}", stacklevel=2)
    return compile_with(lowered, fewer)


def compile_without_kernels(lowered: jax.stages.Lowered, options: Options) -> jax.stages.Compiled:
    """Compile with these options for GPUs that are not here; what comes out cannot be run.

    Raises:
        RuntimeError: XLA fails, also with the toolkit of this machine.
    """
    try:
        return compile_with(lowered, {**without_kernels(), **options})
    except RuntimeError as error:
        if not any(tool in str(error) for tool in TOOLS):
            raise
    return compile_with(lowered, options)


def without_kernels() -> Options:
    """Return the options of such a compile; the script is not among them where the user names a
    toolkit."""
    named = TOOLKIT in xla_flags()
    can_run = os.access(NO_ASSEMBLER / "bin" / "ptxas", os.X_OK)
    return {**QUICK, **({TOOLKIT: str(NO_ASSEMBLER)} if can_run and not named else {})}


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
