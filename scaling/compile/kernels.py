"""Compiles for absent GPUs without the machine code of kernels, which nothing here reads.

    HLO passes -> schedule, plan of memory -> | LLVM -> PTX -> ptxas -> machine code
                  what is read                | what is left out, as far as XLA lets it be

XLA has no option that stops it at the line. LLVM optimises nothing, and in the place of NVIDIA's
ptxas, a process for each kernel, stands a script that writes one byte. For MaxText's Llama-2 7B
that is 3.5 s of CPU instead of 7.4 s. Texts and plans are the same to the letter
(experiments/results/2026-11-23-kernels-left-out).
"""

import os
from pathlib import Path

import jax

from scaling.compile.options import QUICK, Options, compile_with

NO_ASSEMBLER = Path(__file__).parent / "no_assembler"  # as a CUDA toolkit: bin/ptxas
TOOLKIT = "xla_gpu_cuda_data_dir"  # XLA's option: where it looks first for the toolkit
TOOLS = ("ptxas", "PTX", "libdevice", "cubin")  # in messages of what the script could be at fault


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
    named = TOOLKIT in os.environ.get("XLA_FLAGS", "")
    can_run = os.access(NO_ASSEMBLER / "bin" / "ptxas", os.X_OK)
    return {**QUICK, **({TOOLKIT: str(NO_ASSEMBLER)} if can_run and not named else {})}
