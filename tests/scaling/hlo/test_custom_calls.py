"""FLOPs, number formats and dims of products, from the lines that XLA prints for them."""

import json
import math
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.hlo.custom_calls import HloProduct, product_of, type_name, written_by
from scaling.hlo.parse import Instruction, UnknownHlo, parse_instruction
from scaling.models.accounting import forward_flops, train_flops
from scaling.models.config import ModelConfig
from tests.scaling.hlo.texts import module

HALF, SINGLE = "bf16[64,32]{1,0}", "f32[64,32]{1,0}"


def product(line: str, *shapes: str) -> HloProduct | None:
    """Of an instruction that takes %0, %1, ... of these shapes."""
    parameters = [f"{i} = {shape} parameter({i})" for i, shape in enumerate(shapes)]
    return product_of(module("; ".join([*parameters, f"r = {line}"])).entry.root)


def library(target: str, config: dict, result: str, operands: int, rest: str = "") -> str:
    names = ", ".join(f"%{i}" for i in range(operands))
    call = f'{result} custom-call({names}), custom_call_target="{target}"{rest}'
    return f"{call}, backend_config={json.dumps(config)}"


def cublas(**precision: object) -> dict:
    numbers = {"lhs_contracting_dimensions": ["2"], "rhs_contracting_dimensions": ["1"]}
    batch = {"lhs_batch_dimensions": ["1"], "rhs_batch_dimensions": ["0"]}
    config = {"dot_dimension_numbers": numbers | batch, "precision_config": precision}
    return {"gemm_backend_config": config}


def attention(
    direction: str, kv_heads: int, value_dim: int = 64, keys: int = 512, **mask: object
) -> HloProduct:
    """Of 2 sequences with 8 heads of length 64, 256 queries and 512 keys."""
    scores = {"dimensions": ["2", "8", "256", str(keys)]}
    config = {"cudnn_fmha_backend_config": {"intermediate_tensor_shape": scores, **mask}}
    query, key = "bf16[2,256,8,64]{3,2,1,0}", f"bf16[2,{keys},{kv_heads},64]{{3,2,1,0}}"
    value = f"bf16[2,{keys},{kv_heads},{value_dim}]{{3,2,1,0}}"
    result = "(bf16[2,8,256,64]{3,2,1,0}, u8[0]{0})"
    line = library(f"__cudnn$fmhaSoftmax{direction}", config, result, 3)
    found = product(line, query, key, value)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mask", "visible"),
    [
        ({}, 1.0),  # protocol buffers leave out what is zero, NO_MASK
        ({"mask_type": "NO_MASK"}, 1.0),
        ({"mask_type": "CAUSAL", "sliding_window_length": 0}, 0.5),
        ({"mask_type": "PADDING_CAUSAL"}, 0.5),
        ({"mask_type": "CAUSAL", "sliding_window_length": 128}, 1 / 4 * 7 / 8),
        ({"mask_type": "CAUSAL", "sliding_window_length": 9999}, 0.5),
    ],
)
def test_the_share_of_scores_that_a_mask_leaves(mask, visible):
    assert attention("", 8, **mask).visible == pytest.approx(visible)


@given(
    batch=st.lists(st.integers(1, 4), max_size=2),
    m=st.lists(st.integers(1, 5), max_size=2),
    n=st.lists(st.integers(1, 5), max_size=2),
    k=st.lists(st.integers(1, 5), max_size=2),
    seed=st.integers(0, 99),
)
def test_a_dot_is_two_flops_per_multiply_add(batch, m, n, k, seed) -> None:
    """Whatever the order of dimensions: counted by an einsum of ones."""
    names = iter("abcdefgh")
    b, rows, columns, inner = ([(next(names), size) for size in part] for part in (batch, m, n, k))
    order = np.random.default_rng(seed)
    lhs = [(b + rows + inner)[i] for i in order.permutation(len(b + rows + inner))]
    rhs = [(b + columns + inner)[i] for i in order.permutation(len(b + columns + inner))]
    where = lambda side, dims: ",".join(str(side.index(dim)) for dim in dims)
    shape = lambda dims: f"f32[{','.join(str(size) for _, size in dims)}]"
    line = (
        f"{shape(b + rows + columns)} dot(%0, %1), lhs_batch_dims={{{where(lhs, b)}}}, "
        f"lhs_contracting_dims={{{where(lhs, inner)}}}, rhs_batch_dims={{{where(rhs, b)}}}, "
        f"rhs_contracting_dims={{{where(rhs, inner)}}}"
    )
    letters = lambda dims: "".join(name for name, _ in dims)
    equation = f"{letters(lhs)},{letters(rhs)}->{letters(b + rows + columns)}"
    ones = [np.ones([size for _, size in dims]) for dims in (lhs, rhs)]
    found = product(line, shape(lhs), shape(rhs))
    assert found is not None and found.flops == 2 * np.einsum(equation, *ones).sum()
    assert found.dims == tuple(math.prod(part) for part in (batch, m, n, k))


@pytest.mark.parametrize(
    "rest, shape, dtype, may_round",
    [
        ("", HALF, "bf16", False),
        ("", SINGLE, "fp32", True),
        (", operand_precision={highest,highest}", SINGLE, "fp32", False),
        (", algorithm=dot_tf32_tf32_f32", SINGLE, "tf32", False),
        (", algorithm=dot_bf16_bf16_f32_x3", SINGLE, "bf16", False),
        ("", "f64[64,32]{1,0}", "fp64", False),
        ("", "f8e4m3fn[64,32]{1,0}", "fp8", False),
        ("", "s8[64,32]{1,0}", "int8", False),
    ],
)
def test_the_operands_say_the_number_format(rest, shape, dtype, may_round) -> None:
    line = f"f32[64,64] dot(%0, %1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}{rest}"
    found = product(line, shape, shape)
    assert found is not None and (found.dtype, found.may_round) == (dtype, may_round)
    assert found.dims == (1, 64, 64, 32)


@pytest.mark.parametrize(
    "name, products",
    [("f32", 1), ("f32_x3", 3), ("f32_x6", 6), ("f32_x9", 9), ("f32_fast_accum", 1)],
)
def test_a_product_of_split_operands_costs_all_that_it_adds(name, products) -> None:
    line = "f32[64,64] dot(%0, %1), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    found = product(f"{line}, algorithm=dot_bf16_bf16_{name}", SINGLE, SINGLE)
    assert found is not None and found.flops == products * 2 * 64 * 64 * 32
    assert (found.dtype, found.dims) == ("bf16", (1, 64, 64, 32))


def test_complex_products_cost_four_real_ones() -> None:
    line = "c64[64,64] dot(%0, %1), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    found = product(line, "c64[64,32]{1,0}", "c64[64,32]{1,0}")
    assert found is not None and found.flops == 4 * 2 * 64 * 64 * 32


@pytest.mark.parametrize(
    "shape, precision, dtype",
    [
        ("bf16", {}, "bf16"),
        ("f32", {"operand_precision": ["DEFAULT", "DEFAULT"], "algorithm": "ALG_UNSET"}, "tf32"),
        ("f32", {"operand_precision": ["HIGHEST", "HIGHEST"]}, "fp32"),
        ("f32", {"algorithm": "ALG_DOT_TF32_TF32_F32"}, "tf32"),
        ("f32", {"algorithm": "ALG_DOT_F32_F32_F32"}, "fp32"),
    ],
)
@pytest.mark.parametrize("target", ["__cublas$gemm", "__cublas$lt$matmul", "__cublas$lt$matmul$f8"])
def test_cublas_says_its_dimensions_in_the_configuration(target, shape, precision, dtype) -> None:
    line = library(target, cublas(**precision), "(f32[4,128,96]{2,1,0}, s8[4194304]{0})", 2)
    found = product(line, f"{shape}[128,4,64]{{2,1,0}}", f"{shape}[4,64,96]{{2,1,0}}")
    assert found == HloProduct("matmul", 2.0 * 4 * 128 * 96 * 64, dtype, (4, 128, 96, 64), 0.0, ANY)


BLOCKS = ", ".join(f"{s}_batch_dims={{0}}, {s}_contracting_dims={{2}}" for s in ("lhs", "rhs"))


@pytest.mark.parametrize(("xla", "dtype"), [("f8e4m3fn", "fp8"), ("f4e2m1fn", "fp4")])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_of_blocks_with_scales_are_those_of_their_operands(xla, dtype, batch) -> None:
    shape = lambda *dims: f"[{','.join(map(str, (*batch, *dims)))}]"
    shapes = f"{xla}{shape(256, 512)}", f"{xla}{shape(128, 512)}", *["f8e8m0fnu[9]"] * 2
    result = f"(bf16{shape(256, 128)}, u8[0]{{0}})"
    found = product(library("__cudnn$blockScaledDot", {}, result, 4), *shapes)
    expected = (math.prod(batch), 256, 128, 512)
    assert found == HloProduct("matmul", 2 * math.prod(expected), dtype, expected)
    if batch:
        line = f"bf16{shape(256, 128)} scaled-dot(%0, %1, %2, %3), {BLOCKS}"
        assert product(line, *shapes) == found


def test_onednn_multiplies_transposed_or_not() -> None:
    line = library("__onednn$matmul", {}, "f32[3,128,96]{2,1,0}", 2)
    for lhs in ("f32[3,128,64]{2,1,0}", "f32[3,64,128]{2,1,0}"):
        found = product(line, lhs, "f32[3,64,96]{2,1,0}")
        assert found is not None and (found.dims, found.dtype) == ((3, 128, 96, 64), "fp32")


def triton(metadata: str | None) -> str:
    said = "" if metadata is None else f', serialized_metadata = "{metadata}"'
    config = f'backend_config={{grid_x = 72 : i32, ir = "ML\\EFR\\22"{said}}}'
    return f'{HALF} custom-call(%0, %1), custom_call_target="__gpu$xla.gpu.triton", {config}'


def test_a_grouped_product_says_what_it_computes_in_its_metadata() -> None:
    text = r"{\22kind\22: \22grouped_matmul\22, \22dims\22: \228,0.5,32,16\22, "
    text += r"\22flops\22: \224096\22, \22bytes\22: \221000\22, \22dtype\22: \22bf16\22"
    found = product(triton(text + "}"), HALF, HALF)
    assert found == HloProduct("grouped", 4096.0, "bf16", (8, 0.5, 32, 16), bytes=1000.0)
    found = product(triton(text + r", \22transcendentals\22: \2264\22}"), HALF, HALF)
    assert found == HloProduct("grouped", 4096.0, "bf16", (8, 0.5, 32, 16), 64.0, bytes=1000.0)


def test_a_kernel_that_adds_rows_up_says_what_it_moves() -> None:
    text = r"{\22kind\22: \22stream\22, \22bytes\22: \221000\22, \22dtype\22: \22bf16\22}"
    found = product(triton(text), HALF, HALF)
    assert found == HloProduct("fusion", 0.0, "bf16", (), bytes=1000.0)


@pytest.mark.parametrize("metadata", [None, "{}", r"{\22kind\22: \22mine\22}"])
def test_another_triton_kernel_is_no_product(metadata: str | None) -> None:
    assert product(triton(metadata), HALF, HALF) is None


@pytest.mark.parametrize("metadata", ["{", "[]", r"{\22kind\22: \22grouped_matmul\22}"])
def test_metadata_that_cannot_be_read_is_an_error(metadata: str) -> None:
    with pytest.raises(UnknownHlo, match="metadata"):
        product(triton(metadata), HALF, HALF)


def test_attention_is_two_products_forward_and_five_backward() -> None:
    pairs, grouped = 2 * 8 * 256 * 512, 2
    forward, backward = attention("", grouped), attention("Backward", grouped)
    assert forward.dims == backward.dims == (2, 8, 256, 512, 64)
    assert forward.flops == 2 * 2 * pairs * 64 and backward.flops == 5 * 2 * pairs * 64
    assert forward.transcendentals == backward.transcendentals == pairs
    assert (forward.kind, forward.dtype) == ("attention", "bf16")


def test_values_may_be_shorter_than_keys() -> None:
    pairs = 2 * 8 * 256 * 512
    assert attention("", 8, value_dim=32).flops == 2 * pairs * (64 + 32)
    assert attention("Backward", 8, value_dim=32).flops == 2 * pairs * (3 * 64 + 2 * 32)


def test_attention_compares_with_the_accounting_of_the_model() -> None:
    """Backward there is four products, and the scores again under remat "selective"."""
    model = ModelConfig(256, d_model=512, n_layers=1, n_heads=8, head_dim=64, d_ff=1024)
    credited = forward_flops(model, 2, 256).components
    forward, backward = attention("", 8, keys=256), attention("Backward", 8, keys=256)
    assert forward.flops == credited["scores"] + credited["values"]
    trained = train_flops(model, 2, 256, "selective").components
    assert forward.flops + backward.flops == trained["scores"] + trained["values"]
    kept = train_flops(model, 2, 256, "none").components
    once_more = forward.flops + backward.flops - kept["scores"] - kept["values"]
    assert once_more == credited["scores"]


CONVOLUTION = ", window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
IMAGE, KERNEL, RESULT = "f32[4,32,32,8]", "f32[3,3,8,16]", "f32[4,16,16,16]"
CONVOLVED = 2 * (4 * 16 * 16) * 16 * (3 * 3 * 8)


def test_a_convolution_multiplies_a_window_per_result() -> None:
    found = product(f"{RESULT} convolution(%0, %1){CONVOLUTION}", IMAGE, KERNEL)
    assert found is not None and found.flops == CONVOLVED
    assert found.dims == (1, 4 * 16 * 16, 16, 3 * 3 * 8)


@pytest.mark.parametrize(
    "direction, shapes, result",
    [
        ("Forward", (IMAGE, KERNEL), RESULT),
        ("BackwardInput", (RESULT, KERNEL), IMAGE),
        ("BackwardFilter", (IMAGE, RESULT), KERNEL),
    ],
)
def test_gradients_of_a_convolution_cost_what_it_costs(direction, shapes, result) -> None:
    line = library(f"__cudnn$conv{direction}", {}, f"({result}, u8[0]{{0}})", 2, CONVOLUTION)
    found = product(line, *shapes)
    assert found is not None and (found.flops, found.dtype) == (CONVOLVED, "tf32")


def test_a_gradient_of_few_weights_splits_its_long_sum() -> None:
    """A gradient by the weights that XLA writes as a forward convolution, as UNets have it."""
    images, results = "f32[32,64,64,128]", "f32[32,64,64,256]"
    rest = ", window={size=64x64}, dim_labels=f01b_i01o->f01b"
    line = library("__cudnn$convForward", {}, "(f32[128,1,1,256], u8[0]{0})", 2, rest)
    found = product(line, images, results)
    assert found is not None and found.flops == 2 * 32 * 64 * 64 * 128 * 256
    assert found.dims == (64, 128, 256, 2048)
    whole = product("f32[128,1,1,256] convolution(%0, %1)" + rest, images, results)
    assert whole is not None and whole.dims == (1, 128, 256, 131072)  # not for NVIDIA's chips


def test_zeros_between_the_inputs_are_not_multiplied() -> None:
    """The gradient by the input, as a convolution of the result spread out by the stride."""
    rest = CONVOLUTION.replace("stride=2x2", "lhs_dilate=2x2")
    found = product(f"f32[4,32,32,16] convolution(%0, %1){rest}", "f32[4,16,16,8]", KERNEL)
    assert found is not None and found.flops == 2 * (4 * 32 * 32) * 16 * (3 * 3 * 8) / 4


def test_groups_of_features_do_not_meet() -> None:
    rest = f"{CONVOLUTION}, feature_group_count=8"
    found = product(f"{RESULT} convolution(%0, %1){rest}", IMAGE, "f32[3,3,1,16]")
    assert found is not None and found.flops == CONVOLVED / 8
    assert found.dims == () and not found.is_timed
    assert (found.share, found.error) == (0.01, 5)
    whole = product(f"{RESULT} convolution(%0, %1){CONVOLUTION}", IMAGE, KERNEL)
    assert whole is not None and whole.is_timed


@pytest.mark.parametrize(
    "line", ["f32[8] add(%0, %0)", 'f32[8] custom-call(%0), custom_call_target="TopK"']
)
def test_other_instructions_are_no_products(line: str) -> None:
    assert product(line, "f32[8]") is None


def written(shape: str, target: str) -> list[str]:
    line = f'  ROOT %r = {shape} custom-call(), custom_call_target="{target}"'
    instruction: Instruction = parse_instruction(line)
    return [array.dtype for array in written_by(instruction)]


def test_scratch_memory_of_a_library_is_not_written() -> None:
    both = "(f32[8,8]{1,0}, s8[4096]{0})"
    assert written(both, "__cublas$lt$matmul") == ["f32"]
    assert written(both, "somebody's") == ["f32", "s8"]
    assert written("(f32[8,8]{1,0}, f32[8]{0})", "__cublas$lt$matmul") == ["f32", "f32"]


def test_number_formats_have_the_names_of_the_catalogue() -> None:
    names = ["bf16", "f16", "f32", "f64", "f8e5m2", "f4e2m1fn", "s32", "pred"]
    assert [type_name(name) for name in names] == [
        "bf16", "fp16", "fp32", "fp64", "fp8", "fp4", "s32", "pred",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "target",
    ["__cublas$triangularSolve", "__cudnn$norm", "__cudnn$convReorderFilter", "__gpu$xla.triton"],
)
def test_other_functions_of_the_libraries_are_no_products(target: str) -> None:
    assert product(library(target, {}, HALF, 2), HALF, HALF) is None


@pytest.mark.parametrize(
    "target, config, missing",
    [
        ("__cublas$gemm", {}, "gemm_backend_config"),
        ("__cublas$lt$matmul", {"gemm_backend_config": {}}, "dot_dimension_numbers"),
        ("__cublas$lt$matmul$f8", {}, "gemm_backend_config"),
        ("__cudnn$fmhaSoftmax", {"cudnn_fmha_backend_config": {}}, "intermediate_tensor_shape"),
        ("__cudnn$convForward", {}, "dim_labels"),
    ],
)
def test_a_product_without_its_configuration_is_an_error_with_its_line(
    target: str, config: dict, missing: str
) -> None:
    with pytest.raises(UnknownHlo, match=missing) as caught:
        product(library(target, config, HALF, 3), HALF, HALF, HALF)
    assert f'custom_call_target="{target}"' in str(caught.value)
