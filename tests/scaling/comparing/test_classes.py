"""Classes by name: as XLA names instructions on GPUs, and as libraries name their kernels."""

from pathlib import Path

import pytest

from scaling.comparing.classes import CLASSES, class_by_name, class_of, library_class
from scaling.comparing.steps import known_operations
from scaling.hlo.dump import read_dump
from scaling.hlo.reader import read_program

DUMPS = Path(__file__).parents[1] / "hlo" / "dumps"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemm_fusion_dot_general.12", "matmul"),
        ("cublas-lt-matmul.3", "matmul"),
        ("dot.1", "matmul"),
        ("dot_product_attention_fwd.2", "attention"),
        ("te_fused_attn_backward_ffi.12", "attention"),
        ("cudnn-conv-bw-filter.1", "convolution"),
        ("convert.3", "custom"),  # a lone convert is a fusion, wrapped_convert, on GPUs
        ("wrapped_convert", "fusion"),
        ("loop_dynamic_update_slice_fusion.4", "fusion"),
        ("copy.2", "fusion"),
        ("all-gather-start.7", "all-gather"),
        ("reduce_scatter.1", "reduce-scatter"),
        ("psum.5", "all-reduce"),
        ("ppermute.1", "permute"),
        ("ragged-all-to-all.2", "all-to-all"),
        ("cholesky.4", "custom"),
    ],
)
def test_an_instruction_is_of_the_class_that_xla_names_it_after(name, expected):
    assert class_by_name(name) == expected


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage)", "all-reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce-scatter"),
        ("ncclDevKernel_SendRecv", "permute"),
        ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NTN", "matmul"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x16x1", "matmul"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob", "attention"),
        ("void cudnn::fusion::compute_flash_fwd_kernel", "attention"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32", "convolution"),
        ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc", "convolution"),
        ("maxwell_scudnn_winograd_128x128_ldg1_ldg4_tile148n_nt", "convolution"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256x32", "convolution"),
        ("Im3d2Col", "convolution"),
        ("loop_add_fusion_3", ""),
        ("gemm_fusion_dot_4", ""),  # XLA's own
    ],
)
def test_a_librarys_kernel_is_of_the_class_that_it_is_named_after(kernel, expected):
    assert library_class(kernel) == expected


@pytest.mark.parametrize("version", ["jax-0.5.3", "jax-0.10.2", "jax-0.12.0"])
def test_names_tell_the_classes_of_whole_programs(version):
    """What a dump's own kernels are, by what they do; one of a custom call cannot be told."""
    dump = read_dump(DUMPS / version)
    program = read_program(dump.text, dump.axes or {"data": dump.devices}, "step")
    found = known_operations(program)
    assert found and {class_of(step) for step in found.values()} <= set(CLASSES)
    wrong = {n for n, step in found.items() if class_by_name(n) != class_of(step)}
    assert {n for n in wrong if not n.startswith("custom-call")} == set()
