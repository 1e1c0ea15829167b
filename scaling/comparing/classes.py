"""The class of what a profile recorded: that of the program's kernel, else as names tell.

    hlo_op  gemm_fusion_dot.3          matmul        as XLA names instructions on GPUs
            cudnn-conv-bw-filter.1     convolution
            loop_transpose_fusion      fusion        all loops over elements, and copies
            all-gather-start.2         all-gather
    kernel  ncclDevKernel_AllReduce... all-reduce    where the instruction is not known, as inside
            nvjet_hsh_128x64...        matmul        of a command buffer (a CUDA graph)

Names of kernels are those of the libraries: NCCL and RCCL, cuBLAS (nvjet, xmma, cutlass), rocBLAS
and hipBLASLt (Cijk), cuDNN, MIOpen, Transformer Engine.
"""

import re
from functools import cache

from scaling.program.ir import COLLECTIVE_KINDS, Collective, Kernel, Operation

CONVOLUTION, FUSION, CUSTOM = "convolution", "fusion", "custom"
CLASSES = ("matmul", "grouped", "attention", CONVOLUTION, FUSION, CUSTOM, *COLLECTIVE_KINDS)
CONVOLVES = re.compile(r"cudnn-conv|convolution|conv_general")
# What an instruction's name begins with: XLA's opcodes and names of fusions, jax's primitives.
INSTRUCTIONS = (
    (re.compile(r"(?:ragged[-_])?all[-_]to[-_]all"), "all-to-all"),
    (re.compile(r"all[-_]gather"), "all-gather"),
    (re.compile(r"reduce[-_]scatter|psum[-_]scatter"), "reduce-scatter"),
    (re.compile(r"all[-_]reduce|psum|pmean"), "all-reduce"),
    (re.compile(r"collective[-_]permute|ppermute"), "permute"),
    (re.compile(r"collective[-_]broadcast|pbroadcast"), "broadcast"),
    (re.compile(r"dot_product_attention|.*(?:fmha|fused_attn|flash_attention)"), "attention"),
    (CONVOLVES, CONVOLUTION),
    (re.compile(r"gemm|triton_gemm|cublas|dot[._]|dot$|.*matmul"), "matmul"),
    (re.compile(r".*fusion|wrapped_|copy|slice|transpose|dynamic-update"), FUSION),
)
GENERATED = re.compile(r"(?:\w*fusion\w*|wrapped_\w+)(?:\.kd)?")  # XLA's kernels; on AMD's GPUs .kd
# What the name of a library's kernel contains. NCCL's SendRecv is a permute or an all-to-all.
KERNELS = tuple(
    (re.compile(pattern, re.IGNORECASE), found)
    for pattern, found in (
        (r"nccl.*all_?to_?all", "all-to-all"),
        (r"nccl.*all_?gather", "all-gather"),
        (r"nccl.*reduce_?scatter", "reduce-scatter"),
        (r"nccl.*all_?reduce", "all-reduce"),
        (r"nccl.*send_?recv", "permute"),
        (r"nccl.*broadcast", "broadcast"),
        (r"fmha|sdpa|flash_(?:fwd|bwd|[fb]prop|attn)|fused_attn", "attention"),
        (r"convol|fprop|[dw]grad|winograd|igemm|im(?:\d+d)?2col", CONVOLUTION),
        (r"nvjet|gemm|gemv|cutlass|splitk|Cijk_", "matmul"),
    )
)


def class_of(step: Operation) -> str:
    """The class of a program's kernel or collective."""
    if isinstance(step, Collective):
        return step.kind
    assert isinstance(step, Kernel)
    if step.kind == "matmul":
        return CONVOLUTION if CONVOLVES.match(step.name) else "matmul"
    return FUSION if step.kind == "copy" else step.kind


def class_by_name(instruction: str, kernel: str = "") -> str:
    """The class of what the program does not have, by its instruction's or its kernel's name."""
    for pattern, found in INSTRUCTIONS:
        if pattern.match(instruction):
            return found
    return library_class(kernel) or CUSTOM


@cache
def library_class(kernel: str) -> str:
    """The class of a library's kernel; "" for XLA's own, and for one of no known library."""
    if is_of_xla(kernel):
        return ""
    return next((found for pattern, found in KERNELS if pattern.search(kernel)), "")


def is_of_xla(kernel: str) -> bool:
    """True for a kernel that XLA generates, named after its fusion."""
    return bool(GENERATED.fullmatch(kernel))
