"""Matrix products in every form that XLA gives them: dot, convolution, calls of libraries.

    dot, __cublas$gemm, __cublas$lt$matmul, __onednn$matmul     2 batch m n k
    convolution, __cudnn$conv...     2 (batch x positions) features (inputs x window)
    scaled-dot, __cudnn$blockScaledDot    2 batch m n k, of [batch, m, k] and [batch, n, k]
    __cudnn$fmha...                  forward 2 products, backward 5, of 2 B N S T H each
    __gpu$xla.gpu.triton             what its metadata says, for kernels of Pallas-Triton whose
                                     metadata is that of `scaling.models.moe.triton_products`

B sequences, N query heads, S queries, T keys, H the length of a head. Attention is counted as a
full square of S x T scores whatever the mask, so that it compares with `models.accounting`. That
credits the backward pass with 4 products (two gradients of two); the kernel multiplies queries and
keys once more, because the scores are not stored. `train_flops` has that recomputation under
remat "selective", and agrees; under "none" and "full" a program has one `scores` per layer more.
"""

import json
import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from scaling.hlo.parse import Instruction, UnknownHlo
from scaling.hlo.shapes import Array, arrays
from scaling.program.ir import CAUSAL
from scaling.program.ops import TRAINING, attention_flops, visible_share

# XLA's element types by the names of the accelerator catalogue; the others keep XLA's.
NAMES = {"f16": "fp16", "f32": "fp32", "f64": "fp64", "c64": "fp32", "c128": "fp64"}
# Integers of products: those that tensor cores multiply, and those that vector units do.
INTEGERS = {
    **dict.fromkeys(("s8", "u8"), "int8"),
    **dict.fromkeys(("s4", "u4"), "int4"),
    **dict.fromkeys(("s32", "u32", "s16", "u16", "pred"), "int32"),
}
SIDES = ("lhs_batch", "lhs_contracting", "rhs_batch", "rhs_contracting")  # of a dot's dimensions
# A product may say what it computes in: dot_tf32_tf32_f32; dot_bf16_bf16_f32_x3 adds three products
# of the halves of its operands, X6 six, X9 nine (xla_data.proto, PrecisionConfig.Algorithm).
ALGORITHM = re.compile(r"DOT_(TF32|BF16|F16|F32|F64)_\w*?(?:_X(\d))?\b")
# Library calls by name (those of NVIDIA: openxla/xla, xla/service/gpu/cublas_cudnn.cc).
CUBLAS = ("__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8")
CONVOLUTIONS = (
    "__cudnn$convForward",
    "__cudnn$convForwardGraph",
    "__cudnn$convBiasActivationForward",
    "__cudnn$convBackwardInput",
    "__cudnn$convBackwardFilter",
)
ATTENTION = "__cudnn$fmha"  # how those of attention begin
ONEDNN = "__onednn$matmul"
# Products of blocks with a scale each, as they are asked for and as cuDNN is called (openxla/xla,
# xla/backends/gpu/transforms/block_scaling_rewriter.h).
BLOCK_SCALED = ("__op$block_scaled_dot", "__cudnn$blockScaledDot")
DOTS = ("dot", "scaled-dot")
TRITON = "__gpu$xla.gpu.triton"
METADATA = re.compile(r'serialized_metadata = "((?:[^"\\]|\\.)*)"')  # in MLIR's notation
ESCAPED = re.compile(r"\\([0-9A-F]{2})")
GROUPED, STREAM = "grouped_matmul", "stream"  # the kinds that a kernel says it is
TILE, MANY_TILES = 128, 128  # sides of a tile of a product; as many as a chip has cores
# Share of the rate of its matrix units that a chip reaches in a convolution in groups by cuDNN: 2.1
# TFLOP/s of 31 x 31 on 384 channels (DingXiaoH/RepLKNet-pytorch, issue 56, 2023, chip not stated:
# 0.7 % of an A100, 1.6 % of a V100), 32 groups of 64 features 0.2 % of a V100's (pytorch/pytorch,
# issue 34977, 2020).
GROUPED_SHARE, GROUPED_ERROR = 0.01, 5.0
SCRATCH = ("u8", "s8")  # element types of a library's workspace, a flat array after the results


@dataclass(frozen=True)
class HloProduct:
    """One matrix product, or those of one attention or of groups of rows; or, by a kernel of our
    own, a "fusion" that multiplies nothing."""

    kind: Literal["matmul", "grouped", "attention", "fusion"]
    flops: float
    dtype: str  # of the operands
    dims: tuple[float, ...]  # (batch, m, n, k); (batch, heads, queries, keys, head_dim)
    transcendentals: float = 0.0
    may_round: bool = False  # float32 that need not be exact: NVIDIA's chips round it to TF32
    bytes: float | None = None  # read and written; None: its operands and results, once each
    # Attention's, as in `scaling.program.ir.Kernel`:
    visible: float = CAUSAL
    kv_heads: int = 0
    library: str = ""
    value_dim: float = 0
    is_timed: bool = True  # whether fits to products of its kind say how long it takes
    share: float = 1.0  # of the rate of other products, and how far published times differ from it
    error: float = 1.0


def product_of(instruction: Instruction) -> HloProduct | None:
    """The product that `instruction` is; None if it is none, or a call of something unknown.

    Raises:
        UnknownHlo: a library's call without the configuration that says what it computes.
    """
    target = call_target(instruction)
    if target == TRITON:
        return _grouped(instruction)
    is_attention = target.startswith(ATTENTION)
    is_known = is_attention or target in (*CUBLAS, *CONVOLUTIONS, *BLOCK_SCALED, ONEDNN)
    if instruction.opcode not in (*DOTS, "convolution") and not is_known:
        return None
    operands = [arrays(operand.shape)[0] for operand in instruction.operands]
    if instruction.opcode in DOTS:
        sides = [instruction.numbers(f"{side}_dims") for side in SIDES]
        algorithm = instruction.attribute("algorithm") or ""
        dims = _dot_dims(operands, *sides)
        return _matmul(operands[0], dims, _is_exact(instruction), algorithm)
    if target in BLOCK_SCALED:
        *batch, m, k = (1, *operands[0].dims)
        dims = (math.prod(batch), m, operands[1].dims[-2], k)
        return _matmul(operands[0], dims, exact=True, algorithm="")
    if target in CUBLAS:
        return _cublas(instruction, operands)
    if is_attention:
        return _attention(instruction, operands, backward="Backward" in target)
    if target == ONEDNN:
        # transposed operands or not, the result is [..., m, n] and the left one has m x k
        *batch, m, n = (1, *_result(instruction).dims)
        k = operands[0].elements // (math.prod(batch) * m)
        return _matmul(operands[0], (math.prod(batch), m, n, k), exact=True, algorithm="")
    kernel, output = operands[1], _result(instruction)
    # a gradient as the convolution that it belongs to, which costs the same
    if "BackwardInput" in target:
        output = operands[0]
    elif "BackwardFilter" in target:
        kernel, output = output, kernel
    return _convolution(instruction, kernel, output, nvidia=bool(target))


def call_target(instruction: Instruction) -> str:
    """Name of the function that a custom call calls; "" for any other instruction."""
    if instruction.opcode not in ("custom-call", "custom-call-start"):
        return ""
    return (instruction.attribute("custom_call_target") or "").strip('"')


def written_by(instruction: Instruction) -> list[Array]:
    """The arrays that an instruction writes, without the scratch memory of a library's call."""
    found = arrays(instruction.shape)
    is_library = call_target(instruction).startswith(("__cublas$", "__cudnn$"))
    if is_library and len(found) > 1 and found[-1].dtype in SCRATCH and len(found[-1].dims) == 1:
        return found[:-1]
    return found


def type_name(xla: str) -> str:
    """`bf16`, `fp32`, `fp8` for XLA's `bf16`, `f32`, `f8e4m3fn`."""
    return NAMES.get(xla, re.sub(r"^f([48])e.*", r"fp\1", xla))


def _is_exact(instruction: Instruction) -> bool:
    return "highest" in (instruction.attribute("operand_precision") or "")


def _cublas(instruction: Instruction, operands: list[Array]) -> HloProduct:
    config = _stated(instruction, "gemm_backend_config")
    numbers = _stated(instruction, "gemm_backend_config", "dot_dimension_numbers")
    sides = [tuple(map(int, numbers.get(f"{side}_dimensions", ()))) for side in SIDES]
    precision = config.get("precision_config", {})
    exact = "HIGHEST" in precision.get("operand_precision", ())
    dims, algorithm = _dot_dims(operands, *sides), precision.get("algorithm", "")
    return _matmul(operands[0], dims, exact, algorithm, nvidia=True)


def _dot_dims(
    operands: list[Array],
    lhs_batch: tuple[int, ...],
    lhs_contracting: tuple[int, ...],
    rhs_batch: tuple[int, ...],
    rhs_contracting: tuple[int, ...],
) -> tuple[int, int, int, int]:
    lhs, rhs = operands[0].dims, operands[1].dims
    batch = math.prod(lhs[i] for i in lhs_batch)
    k = math.prod(lhs[i] for i in lhs_contracting)
    m = math.prod(size for i, size in enumerate(lhs) if i not in lhs_batch + lhs_contracting)
    n = math.prod(size for i, size in enumerate(rhs) if i not in rhs_batch + rhs_contracting)
    return batch, m, n, k


def _matmul(
    lhs: Array, dims: tuple[int, ...], exact: bool, algorithm: str, nvidia: bool = False
) -> HloProduct:
    """Two FLOPs per multiply-add, eight per complex one."""
    flops = (8.0 if lhs.dtype.startswith("c") else 2.0) * math.prod(dims)
    stated = ALGORITHM.search(algorithm.upper())
    if stated:
        flops *= int(stated[2] or 1)
        return HloProduct("matmul", flops, type_name(stated[1].lower()), dims)
    may_round = lhs.dtype == "f32" and not exact
    named = INTEGERS.get(lhs.dtype) or type_name(lhs.dtype)
    dtype = "tf32" if nvidia and may_round else named
    return HloProduct("matmul", flops, dtype, dims, may_round=may_round)


def _grouped(instruction: Instruction) -> HloProduct | None:
    """What a kernel says it is, under the load it expects: a grouped product, or rows that are
    added up; None for other kernels."""
    found = METADATA.search(instruction.attribute("backend_config") or "")
    text = ESCAPED.sub(lambda byte: chr(int(byte[1], 16)), found[1]) if found else "{}"
    try:
        said = json.loads(text)
        if said.get("kind") == STREAM:
            return HloProduct("fusion", 0.0, said["dtype"], (), bytes=float(said["bytes"]))
        if said.get("kind") != GROUPED:
            return None
        dims = tuple(float(d) for d in said["dims"].split(","))
        flops, moved = float(said["flops"]), float(said["bytes"])
        exponentials = float(said.get("transcendentals", 0))
        return HloProduct("grouped", flops, said["dtype"], dims, exponentials, bytes=moved)
    except (AttributeError, KeyError, ValueError):
        raise UnknownHlo(f"metadata {text[:80]!r}: {instruction.excerpt}") from None


def _attention(instruction: Instruction, operands: list[Array], backward: bool) -> HloProduct:
    """One exponential per score, in each direction."""
    config = _stated(instruction, "cudnn_fmha_backend_config")
    where = ("cudnn_fmha_backend_config", "intermediate_tensor_shape", "dimensions")
    scores = tuple(int(n) for n in _stated(instruction, *where))
    batch, heads, queries, _ = scores
    query, key, value = operands[:3]
    head_dim = query.elements // (batch * heads * queries)
    value_dim = head_dim * value.elements // key.elements
    groups = key.elements // (batch * scores[3] * head_dim)
    pairs = float(math.prod(scores))
    flops = float(attention_flops(pairs, head_dim, value_dim, backward))
    seen, dtype = 1.0, type_name(query.dtype)
    if "CAUSAL" in str(config.get("mask_type", "NO_MASK")):
        seen = visible_share(scores[3], int(config.get("sliding_window_length", 0)))
    return HloProduct(
        "attention", flops, dtype, (*scores, head_dim), pairs, visible=seen, kv_heads=groups,
        value_dim=value_dim, library=TRAINING,
    )  # fmt: skip


def _convolution(
    instruction: Instruction, kernel: Array, output: Array, nvidia: bool
) -> HloProduct:
    """A convolution as a product of unfolded windows, those over the edge included.

    `dim_labels=b01f_01io->b01f` says which dimension of the kernel counts output features (o).
    One in groups of features, such as a depthwise one, does not run like a batch of products: cuDNN
    has kernels of its own for it, at `GROUPED_SHARE` of their rate.
    """
    stated = instruction.attribute("dim_labels")
    if stated is None:
        raise UnknownHlo(f"no dim_labels: {instruction.excerpt}")
    labels = stated.split("_")[1]
    features = kernel.dims[labels.index("o")]
    groups = int(instruction.attribute("feature_group_count") or 1)
    dims = (groups, output.elements // features, features // groups, kernel.elements // features)
    holes = re.search(r"lhs_dilate=([\dx]+)", instruction.attribute("window") or "")
    zeros = math.prod(int(n) for n in holes[1].split("x")) if holes else 1  # input spread by these
    product = _matmul(kernel, dims, _is_exact(instruction), algorithm="", nvidia=nvidia)
    split = _split(*dims) if nvidia else 1
    dims = (split * dims[0], *dims[1:3], dims[3] // split)
    product = replace(product, flops=product.flops / zeros, dims=dims)
    if groups == 1:
        return product
    share, error = GROUPED_SHARE, GROUPED_ERROR
    return replace(product, dims=(), is_timed=False, share=share, error=error)


def _split(batch: int, m: int, n: int, k: int) -> int:
    """Parts of k that are summed up apart, so that a small result occupies all cores.

    XLA cuts products like this: of 16 shapes with m, n from 64 to 2,048 and k from 2,048 to 2^20
    (jax 0.10.2 for H100) this is what it does to 9; it makes half as many parts of one, two to four
    times as many of six. That cuDNN's kernels of weight gradients do no worse is assumed.
    """
    split, tiles = 1, batch * math.ceil(m / TILE) * math.ceil(n / TILE)
    while split * tiles < MANY_TILES and k / (2 * split) >= TILE:
        split *= 2
    return split


def _stated(instruction: Instruction, *keys: str) -> Any:
    """The value under these nested keys of the backend's configuration."""
    found: Any = instruction.backend_config
    for key in keys:
        if key not in found:
            raise UnknownHlo(f"no {key!r} in the configuration: {instruction.excerpt}")
        found = found[key]
    return found


def _result(instruction: Instruction) -> Array:
    return arrays(instruction.shape)[0]
